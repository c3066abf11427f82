"""What the net's findings mean: which differences are listed with a reason, and which listed ones are gone."""

import collections

from opnet_exceptions import EXCEPTIONS


def described(work, failures, shown=2):
    """Lines about an item's failures, the first of each kind."""
    kinds = collections.defaultdict(list)
    for failure in failures:
        kinds[failure["aspect"], failure["kind"]].append(failure)
    for (aspect, kind), found in kinds.items():
        for failure in found[:shown]:
            yield f"{work.name} {work.dtype} {aspect}/{kind} [{failure['variant']}] {failure['message']}"
        if len(found) > shown:
            yield f"{work.name} {work.dtype} {aspect}/{kind} {len(found) - shown} more"


def matches(entry, work, failure):
    name, dtype, what = entry
    return name == work.name and dtype in (None, work.dtype) and what in ("", failure["aspect"], f"{failure['aspect']}/{failure['kind']}")


def unexplained(work, found, entries=EXCEPTIONS):
    """The failures of an item that no exception explains."""
    mine = [entry for entry in entries if entry[0] == work.name]
    return [failure for failure in found["failures"] if not any(matches(entry, work, failure) for entry in mine)]


def is_covered(entry, works, types):
    """Whether all items that an exception is about ran with all samples and aspects."""
    name, dtype, _ = entry
    ran = {work.dtype for work in works if work.name == name and work.full and not work.aspects}
    return ran >= ({dtype} if dtype else set(types))


def stale(results, types_of_name, entries=EXCEPTIONS):
    """Exceptions whose items all ran, and none differed."""
    result = []
    for entry in entries:
        ran = {work: found for work, found in results.items() if work.name == entry[0]}
        if not ran or not is_covered(entry, ran, types_of_name(entry[0])):
            continue
        if not any(matches(entry, work, failure) for work, found in ran.items() for failure in found["failures"]):
            result.append(entry)
    return result
