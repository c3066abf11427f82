"""Counts which of PyTorch's op and module databases run on xpud: completely by device kernels, with a fallback to the CPU, or not at all.

    .venv/bin/python tools/checks/coverage.py                     a table: for each type, the first samples of each entry, forward and backward
    .venv/bin/python tools/checks/coverage.py --json FILE         also which entries are where, and what they fell back on
    .venv/bin/python tools/checks/coverage.py --write-readme      also into README.md, between its markers

Takes some minutes, needs the release build, and starts a daemon of its own on the CPU device.
"""

import argparse
import collections
import json
import os
import pathlib
import sys

from runner import ROOT
from stages import own_daemon

sys.path.insert(0, str(ROOT / "sdk/torch/tests"))

BEGIN = "<!-- coverage begin: made by tools/checks/coverage.py, do not edit -->\n"
END = "<!-- coverage end -->"
NOTE = "Entries are those that PyTorch's CPU runs in the type; in int32, int16, int8 and uint8, those of them with device kernels.\n"
ASPECTS = {"ops": ("values", "gradients"), "modules": ("training", "evaluation")}
TITLES = {"ops": "operators (`op_db`)", "modules": "modules (`module_db`)"}
TYPES = ("float32", "bfloat16", "float16", "float64", "complex64", "int64", "int32", "int16", "int8", "uint8", "bool")
REFUSALS = ("refused", "exception", "crash", "hang", "net")
NATIVE, FALLBACK, REFUSED, DIFFERS = "native", "fallback", "refused", "differs"


def standing(work, found):
    """Returns (native, fallback, refused or differs; reason)."""
    from opnet_judge import unexplained

    refusals = [f for f in found["failures"] if f["kind"] in REFUSALS]
    if refusals:
        return REFUSED, reason(work.name, refusals[0])
    wrong = unexplained(work, found)
    if wrong:
        return DIFFERS, f"{wrong[0]['aspect']}/{wrong[0]['kind']}: {wrong[0]['message']}"
    fell = sorted({name for direction in ("forward", "backward") for name in found["fell_back"][direction]})
    return (FALLBACK, ", ".join(fell)) if fell else (NATIVE, "")


def reason(name, failure):
    """Returns why an entry is refused: the reason in the table of exceptions, or the raised error."""
    from opnet_exceptions import EXCEPTIONS

    kinds = ("", failure["aspect"], f"{failure['aspect']}/{failure['kind']}")
    listed = [why for (entry, _, what), why in EXCEPTIONS.items() if entry == name and what in kinds]
    return listed[0] if listed else failure["message"]


def counted(databases):
    """Returns {database: {type: {entry: (standing, reason)}}}."""
    import opnet

    result = {}
    for database in databases:
        known = opnet.known_types(database)
        types = [t for t in TYPES if any(t in types for types in known.values())]
        works = [work._replace(aspects=ASPECTS[database]) for work in opnet.works_of(database, types=types)]
        found = opnet.run_all(works, len(os.sched_getaffinity(0)))
        ran = [w for w in works if found[w]["compared"] or found[w]["failures"]]  # PyTorch's CPU cannot run the others in this type
        result[database] = {t: {w.name: standing(w, found[w]) for w in ran if w.dtype == t} for t in types}
    return result


def tally(entries):
    counts = collections.Counter(where for where, _ in entries.values())
    return [counts[where] for where in (NATIVE, FALLBACK, REFUSED, DIFFERS)]


def table(result):
    rows = ["| | type | entries | native | with fallback | refused | wrong |", "|---|---|---|---|---|---|---|"]
    for database, types in result.items():
        for dtype, entries in types.items():
            cells = [TITLES[database], dtype, len(entries), *tally(entries)]
            rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def refusals(result):
    """Returns each reason with the entries that it refuses."""
    by_reason = collections.defaultdict(dict)
    for types in result.values():
        for entries in types.values():
            for name, (where, why) in entries.items():
                if where in (REFUSED, DIFFERS):
                    by_reason[f"{where}: {why}"][name] = None
    return [f"{', '.join(f'`{name}`' for name in sorted(names))}: {why}" for why, names in by_reason.items()]


def text_of(result):
    lines = refusals(result)
    return table(result) + "\n" + NOTE + "".join(f"- {line}\n" for line in lines)


def write_readme(text, path):
    document = path.read_text()
    begin, end = document.find(BEGIN), document.find(END)
    if not 0 <= begin < end:
        sys.exit(f"coverage: {path} has no markers for the totals; add these two lines:\n{BEGIN}{END}")
    path.write_text(document[: begin + len(BEGIN)] + text + document[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=tuple(ASPECTS), action="append", help="only this one")
    parser.add_argument("--json", type=pathlib.Path, help="write every entry's standing to this file")
    parser.add_argument("--write-readme", action="store_true", help="write the table into README.md")
    arguments = parser.parse_args()
    with own_daemon() as env:
        os.environ.update(env)
        result = counted(arguments.database or ASPECTS)
    text = text_of(result)
    print(text, end="")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
    if arguments.write_readme:
        write_readme(text, ROOT / "README.md")


if __name__ == "__main__":
    main()
