#!/usr/bin/env python3
"""Checks for habits that have cost us, in code and English: one row of HABITS each.

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
    where: re.Pattern  # paths that it applies to
    instead: str
    unless: tuple[str, ...] = ()  # exempt paths


CODE = re.compile(r"^(?!tools/lint/).*\.(cc|h|cu|py)$")
TEXT = re.compile(r"^(?!tools/lint/|tests/fuzz/corpus/).*\.(cc|h|cu|py|proto|md)$")

HABITS = (
    Habit(re.compile(r"(?<![\w.:>`])kill\((?!.*, 0\))"), re.compile(r"^tests/.*\.(cc|h)$"),
          "SignalProcess(): kill(-1) ends every process of the machine (tests/e2e/signal_process.h)", ("tests/e2e/signal_process.h",)),
    Habit(re.compile(r"\bk(Most|Least|Longest|Shortest|Fewest)[A-Z]\w*"), CODE, "kMax... or kMin..."),
    Habit(re.compile(r"\b(TellsFrom|Afterthought|SeeOff|TakeQuestion|Condemn)\w*"), CODE, "the field's words: drain, in flight, evict, blame"),
    Habit(re.compile(r"\b[Ss]e(es|en) to (it|so)\b|\b[Ss]ees to\b"), TEXT, "ensures"),
    Habit(re.compile(r"\bis none that\b"), TEXT, "is not a ... that"),
    Habit(re.compile(r"\bso much credit\b"), TEXT, "`bytes` of credit", ("proto/wire/commands.h",)),
    Habit(re.compile(r"\b[Nn]obody vouches for\b"), TEXT, "untrusted"),
    Habit(re.compile(r"\b[Ww]ho (asks|spins|sleeps|waits) (for|is|may|does|has)\b"), TEXT, "name it: the client, the caller, the thread"),
    Habit(re.compile(r"\bstd::(j?thread\((?!\))|async\()"), re.compile(r"^(daemon|kernels|proto|sdk|tools)/(?!.*(_test\.cc|/testing/)).*\.(cc|h)$"),
          "StartThread(): it returns an error when no thread is left (proto/base/start_thread.h)", ("proto/base/start_thread.cc",)),
    Habit(re.compile(r"^(?!\||    |```).{161,}"), re.compile(r"\.md$"), "at most 160 characters a line, except in tables and code"),
)


def idle_exemptions(root: pathlib.Path) -> list[str]:
    """Returns the exemptions of files that do not exist or have no such habit."""
    return [f"{path} needs no exemption from '{habit.pattern.pattern}'" for habit in HABITS for path in habit.unless
            if not (root / path).exists() or not any(habit.pattern.search(line) for line in (root / path).read_text().splitlines())]


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
