"""Runs stages one after another, with times, logs, and counts of passed and failed tests."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "test-logs"
FAILURE = re.compile(  # how unittest, GoogleTest, ctest, compilers, sanitizers and CHECK say it
    r"^(FAIL|ERROR): |^F\d{4} |: (error|fatal error|runtime error): |: Failure$|\*\*\*(Failed|Timeout|Exception)"
    r"|^\[  FAILED  \]|The following tests FAILED|Sanitizer: |^killed after ")


@dataclasses.dataclass
class Tally:
    """The counts of a stage. A stage without counts counts as one."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


class StageFailed(Exception):
    """Ends a stage; the text is the reason."""


class Log:
    """The output file of a stage. What failed in it is shown if the stage fails."""

    def __init__(self, name: str):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.path = LOGS / f"{name}.log"
        self.path.write_text("")

    def write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def run(self, *command: str | os.PathLike, env: dict[str, str] | None = None, timeout: float = 1800,
            cwd: pathlib.Path = ROOT) -> tuple[int, str]:
        """Runs a command until it ends or `timeout`, when its process group is killed. Returns exit status and output."""
        self.write(f"$ {' '.join(map(str, command))}\n")
        start = self.path.stat().st_size
        with self.path.open("a") as file:
            process = subprocess.Popen([str(part) for part in command], stdout=file, stderr=subprocess.STDOUT, cwd=cwd,
                                       stdin=subprocess.DEVNULL, env=os.environ | (env or {}), start_new_session=True)
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                file.write(f"\nkilled after {timeout:.0f} s\n")
                status = 124
            finally:  # kills the process group on every way out
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        with self.path.open(errors="replace") as file:
            file.seek(start)
            return status, file.read()

    def must(self, *command: str | os.PathLike, **options) -> str:
        """Like run; ends the stage if the command fails."""
        status, output = self.run(*command, **options)
        if status != 0:
            raise StageFailed(f"`{' '.join(map(str, command))[:150]}` exited with {status}")
        return output

    def failures(self, around: int = 25, most: int = 200, last: int = 15) -> str:
        """Returns the lines that say what failed, those around them (`around` after each; `most` in all), and the `last` lines."""
        lines = self.path.read_text(errors="replace").splitlines()
        marks = [index for index, line in enumerate(lines) if FAILURE.search(line)]
        near = sorted({index for mark in marks for index in range(mark - 5, mark + around) if 0 <= index < len(lines) - last})
        shown = near[:most] + list(range(max(len(lines) - last, 0), len(lines)))
        text = []
        for before, index in zip([-1, *shown], shown):
            text += ["..."] * (index != before + 1) + [lines[index]]
        return "\n".join(text)


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    what: str  # one line for --list
    body: Callable[[Log], Tally | None]
    needs: tuple[str, ...] = ()  # stages that must have passed
    full: bool = False  # only with --full, or by name


def run_stages(stages: list[Stage]) -> Tally:
    """Runs the stages in order, prints their results and the closing line, and returns the sum."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    total, broken, rows = Tally(), set(), []
    for index, stage in enumerate(stages, 1):
        print(f"[{index}/{len(stages)}] {stage.name}: {stage.what}", flush=True)
        began = time.monotonic()
        tally, reason = _run_one(stage, broken)
        if tally.failed:
            broken.add(stage.name)
        minutes = (time.monotonic() - began) / 60
        rows.append((stage.name, minutes, tally, reason))
        print(f"    {'failed: ' + reason if tally.failed else 'passed'} ({tally.passed} passed, {tally.failed} failed"
              f"{f', {tally.skipped} skipped' if tally.skipped else ''}, {minutes:.1f} min)", flush=True)
        total += tally
    print("\nstage          minutes  passed  failed")
    for name, minutes, tally, reason in rows:
        print(f"{name:<14} {minutes:7.1f} {tally.passed:7} {tally.failed:7}  {reason}")
    print(f"{'all':<14} {sum(row[1] for row in rows):7.1f}")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return total


def _run_one(stage: Stage, broken: set[str]) -> tuple[Tally, str]:
    missing = [name for name in stage.needs if name in broken]
    if missing:
        return Tally(failed=1), f"not run, as {', '.join(missing)} failed"
    log = Log(stage.name)
    try:
        tally = stage.body(log)
        if tally is None:  # a stage without counts
            tally = Tally(passed=1)
        reason = f"see {log.path.relative_to(ROOT)}" if tally.failed else ""
    except StageFailed as failure:
        tally, reason = Tally(failed=1), str(failure)
    except Exception as failure:  # a bug in a stage fails that stage only
        tally, reason = Tally(failed=1), f"{type(failure).__name__}: {failure}"
    if tally.failed:
        print("    | " + log.failures().replace("\n", "\n    | "), flush=True)
    return tally, reason
