"""Judges findings: which differences are listed as exceptions, and which exceptions no longer occur."""

import collections

from opnet_exceptions import EXCEPTIONS, SOMETIMES


def described(work, failures, shown=2):
    """Returns lines about an item's failures: the first failure of each kind."""
    kinds = collections.defaultdict(list)
    for failure in failures:
        kinds[failure["aspect"], failure["kind"]].append(failure)
    for (aspect, kind), found in kinds.items():
        for failure in found[:shown]:
            yield f"{work.name} {work.dtype} {aspect}/{kind} [{failure['variant']}] {failure['message']}"
        if len(found) > shown:
            yield f"{work.name} {work.dtype} {aspect}/{kind} {len(found) - shown} more"


# What eager execution may do, compiled code may do.
AS_EAGER = {"compiled": "values", "compiled dynamic": "values", "compiled gradients": "gradients", "compiled evaluation": "evaluation",
            "compiled training": "training"}  # fmt: skip


def matches(entry, work, failure):
    name, dtype, what = entry
    aspects = {failure["aspect"], AS_EAGER.get(failure["aspect"], failure["aspect"])}
    covered = {"", *aspects, *(f"{aspect}/{failure['kind']}" for aspect in aspects)}
    return name == work.name and dtype in (None, work.dtype) and what in covered


def unexplained(work, found, entries=EXCEPTIONS):
    """Returns the failures of an item that no exception covers."""
    mine = [entry for entry in entries if entry[0] == work.name]
    return [failure for failure in found["failures"] if not any(matches(entry, work, failure) for entry in mine)]


def is_covered(entry, works, types):
    """Returns whether all items of an exception ran with all samples and aspects."""
    name, dtype, _ = entry
    ran = {work.dtype for work in works if work.name == name and work.full and not work.aspects}
    return ran >= ({dtype} if dtype else set(types))


def stale(results, types_of_name, entries=EXCEPTIONS):
    """Returns the exceptions whose items all ran without the difference, though they occur on every processor."""
    result = []
    for entry in entries:
        if entry in SOMETIMES:
            continue
        ran = {work: found for work, found in results.items() if work.name == entry[0]}
        if not ran or not is_covered(entry, ran, types_of_name(entry[0])):
            continue
        if not any(matches(entry, work, failure) for work, found in ran.items() for failure in found["failures"]):
            result.append(entry)
    return result
