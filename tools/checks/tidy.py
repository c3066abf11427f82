"""clang-tidy over all our sources, remembering by content what was clean: a source whose preprocessed text, flags and
checks have not changed is not looked at again. Which checks, and why not others, is in .clang-tidy."""

import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shlex
import subprocess

from runner import ROOT, Log, StageFailed

DATABASE = ROOT / "build/dev/compile_commands.json"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "xpud" / "tidy"
# What preset dev does not compile: faults, of which one is for us to find, and a program that needs an installed xpud.
NOT_COMPILED = ("tests/planted/", "tests/package/")
PLANTED, FAULT = ROOT / "tests/planted/use_after_move.cc", "bugprone-use-after-move"


@dataclasses.dataclass(frozen=True)
class Unit:
    """A source and the flags it is compiled with."""
    source: pathlib.Path
    folder: str
    flags: tuple[str, ...]

    @classmethod
    def of(cls, entry: dict) -> "Unit":
        words = shlex.split(entry["command"])
        compiler = next(i for i, word in enumerate(words) if "clang++" in word)  # after ccache
        out = words.index("-o")
        flags = words[compiler + 1:out] + words[out + 2:]
        return cls(pathlib.Path(entry["file"]), entry["directory"], tuple(f for f in flags if f not in ("-c", entry["file"])))

    def run(self, *command: str | os.PathLike) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)


@functools.cache
def rules() -> str:
    version = subprocess.run(["clang-tidy-22", "--version"], capture_output=True, text=True, check=True).stdout
    return version + (ROOT / ".clang-tidy").read_text()


def fingerprint(unit: Unit, text: str) -> str:
    """A hash of all that a verdict hangs on, free of the clone's path."""
    return hashlib.sha256("\0".join((rules(), *unit.flags, text)).replace(str(ROOT), "").encode()).hexdigest()


def complaint(unit: Unit) -> str:
    """What clang-tidy says against one source; empty when it is clean."""
    # The source as the compiler sees it, with its comments: NOLINT lives there.
    preprocessed = unit.run("clang++-22", *unit.flags, "-E", "-C", "-P", unit.source)
    if preprocessed.returncode != 0:
        return preprocessed.stderr
    mark = CACHE / fingerprint(unit, preprocessed.stdout)
    if mark.exists():
        return ""
    result = unit.run("clang-tidy-22", "--quiet", unit.source, "--", *unit.flags)
    if result.returncode != 0:
        return result.stdout + result.stderr
    CACHE.mkdir(parents=True, exist_ok=True)
    mark.touch()
    return ""


def run(log: Log, paths: list[str], jobs: int) -> None:
    """Looks at every source among `paths`, and at the headers that they include."""
    sources = {ROOT / path for path in paths if path.endswith(".cc") and not path.startswith(NOT_COMPILED)}
    units = [unit for unit in map(Unit.of, json.loads(DATABASE.read_text())) if unit.source in sources]
    if missed := sources - {unit.source for unit in units}:
        raise StageFailed(f"preset dev does not compile {', '.join(str(path.relative_to(ROOT)) for path in sorted(missed))}")
    if FAULT not in complaint(Unit(PLANTED, str(ROOT), ("-std=c++20",))):
        raise StageFailed(f"clang-tidy does not find {FAULT} in {PLANTED.name}")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        complaints = [text for text in pool.map(complaint, units) if text]
    log.write(f"{len(units)} sources\n" + "\n".join(complaints))
    if complaints:
        raise StageFailed(f"clang-tidy complains about {len(complaints)} of {len(units)} sources")
