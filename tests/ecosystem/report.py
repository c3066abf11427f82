"""Prints which operators of the ecosystem's programs ran on the CPU, the most wanted first: report.py [--json] FILE.

FILE is what tests/ecosystem wrote to XPUD_ECOSYSTEM_REPORT. An operator ranks by the number of programs, then by the number of calls.
"""

import argparse
import collections
import json
import pathlib


def ranked(lines):
    """Returns rows {operator, programs, calls}, ranked, and the number of all programs."""
    records = [json.loads(line) for line in lines if line.strip()]
    programs, calls = collections.defaultdict(set), collections.Counter()
    for record in records:
        for name, count in record["fallbacks"].items():
            programs[name].add(record["program"])
            calls[name] += count
    order = sorted(programs, key=lambda name: (-len(programs[name]), -calls[name], name))
    rows = [{"operator": name, "programs": sorted(programs[name]), "calls": calls[name]} for name in order]
    return rows, len({record["program"] for record in records})


def table(rows, total):
    native = total - len({program for row in rows for program in row["programs"]})
    lines = [f"{native} of {total} programs ran without a fallback"]
    lines += [f"{row['operator']:<44} {len(row['programs']):>3} programs {row['calls']:>6} calls" for row in rows]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("file", type=pathlib.Path)
    options = parser.parse_args()
    rows, total = ranked(options.file.read_text().splitlines())
    print(json.dumps({"programs": total, "operators": rows}, indent=1) if options.json else table(rows, total))


if __name__ == "__main__":
    main()
