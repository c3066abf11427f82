#!/usr/bin/env python3
"""Checks for habits that have cost us: a row of HABITS for each.

Usage: habit_lint.py [ROOT]. Prints one line per violation, `file:line: reason`, and exits with 1 if there are any.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys


@dataclasses.dataclass(frozen=True)
class Habit:
    pattern: re.Pattern
    where: re.Pattern  # paths that it holds for
    instead: str
    unless: tuple[str, ...] = ()  # paths that may


HABITS = (
    Habit(re.compile(r"(?<![\w.:>`])kill\((?!.*, 0\))"), re.compile(r"^tests/.*\.(cc|h)$"),
          "SignalProcess(): kill(-1) ends every process of the machine (tests/e2e/signal_process.h)", ("tests/e2e/signal_process.h",)),
)


def complaints(path: str, text: str) -> list[str]:
    habits = [habit for habit in HABITS if habit.where.search(path) and path not in habit.unless]
    return [f"{path}:{number}: '{match.group().strip()}' -> {habit.instead}"
            for number, line in enumerate(text.splitlines(), 1) for habit in habits if (match := habit.pattern.search(line))]


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, check=True, capture_output=True, text=True).stdout.split()
    found = []
    for path in files:
        try:
            found += complaints(path, (root / path).read_text())
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # not text, or removed
    print("\n".join(found) if found else f"habits: none of the {len(HABITS)} in {len(files)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
