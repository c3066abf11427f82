"""Runs clang-tidy on all sources. Most of its time goes to headers, so sources with the same flags are checked together, as one translation unit.
If such a unit is not clean, its sources are checked one by one, because two of them may use the same name for different things. (Compiler warnings
are off in units.) Clean sources are remembered by content: a source is not checked again while its preprocessed text, flags and checks are the same.
`.clang-tidy` explains the choice of checks."""

import collections
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile

from runner import ROOT, Log, StageFailed

DATABASE = ROOT / "build/release/compile_commands.json"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "xpud" / "tidy"
# Sources that preset release does not compile: planted faults, one of which clang-tidy must find, and a program that needs an installed xpud.
NOT_COMPILED = ("tests/planted/", "tests/package/")
AT_ONCE = 12
PLANTED = {ROOT / "tests/planted/use_after_move.cc": "bugprone-use-after-move", ROOT / "tests/planted/lost_memory.c": "bugprone-suspicious-realloc-usage"}
STANDARDS = {".cc": "-std=c++20", ".c": "-std=c23"}  # of planted faults
CLEAN = {".cc": ROOT / "proto/base/text.cc", ".c": ROOT / "kernels/compiler/soft_double.c"}  # checked together with these
COMPILERS = {".cc": "clang++-22", ".c": "clang-22"}


@dataclasses.dataclass(frozen=True)
class Unit:
    """A source and the flags it is compiled with."""
    source: pathlib.Path
    folder: str
    flags: tuple[str, ...]

    @classmethod
    def of(cls, entry: dict) -> "Unit":
        words = shlex.split(entry["command"])
        compiler = next(i for i, word in enumerate(words) if pathlib.Path(word).name.startswith("clang"))  # after ccache
        out = words.index("-o")
        flags = words[compiler + 1:out] + words[out + 2:]
        return cls(pathlib.Path(entry["file"]), entry["directory"],
                   tuple(f for f in without_precompiled_header(flags) if f not in ("-c", entry["file"])))

    def run(self, *command: str | os.PathLike) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)


def without_precompiled_header(flags: list[str]) -> list[str]:
    """Returns the flags without the precompiled header: a source must stand on its own includes."""
    kept = []
    for flag in flags:
        if "/cmake_pch.h" in flag:  # -Xclang -include[-pch] -Xclang FILE
            kept = kept[:-3]
        elif flag not in ("-Winvalid-pch", "-fpch-instantiate-templates", "-fno-pch-timestamp"):
            kept.append(flag)
        elif flag == "-fno-pch-timestamp":
            kept.pop()
    return kept


@functools.cache
def rules() -> str:
    version = subprocess.run(["clang-tidy-22", "--version"], capture_output=True, text=True, check=True).stdout
    return version + (ROOT / ".clang-tidy").read_text()


def fingerprint(unit: Unit, text: str) -> str:
    """Returns a hash of everything that the result depends on, without the clone's path."""
    return hashlib.sha256("\0".join((rules(), *unit.flags, text)).replace(str(ROOT), "").encode()).hexdigest()


def mark_of(unit: Unit) -> pathlib.Path:
    """Returns the file that marks a source as clean."""
    # The preprocessed source with its comments, because NOLINT is in them.
    preprocessed = unit.run(COMPILERS[unit.source.suffix], *unit.flags, "-E", "-C", "-P", unit.source)
    return CACHE / fingerprint(unit, preprocessed.stdout)


def complaint(units: list[Unit]) -> str:
    """Returns clang-tidy's findings in sources with the same flags, checked as one unit; empty if they are clean."""
    first = units[0]
    if len(units) == 1:
        result = first.run("clang-tidy-22", "--quiet", first.source, "--", *first.flags)
    else:
        with tempfile.NamedTemporaryFile("w", suffix=first.source.suffix) as together:
            together.writelines(f'#include "{unit.source}"  // NOLINT(bugprone-suspicious-include)\n' for unit in units)
            together.flush()
            result = first.run("clang-tidy-22", "--quiet", f"--config-file={ROOT}/.clang-tidy", together.name, "--", *first.flags, "-w")
    return result.stdout + result.stderr if result.returncode != 0 else ""


def complaints(marked: list[tuple[Unit, pathlib.Path]]) -> list[str]:
    """Checks sources with the same flags, each with its mark. Returns those that are not clean."""
    text = complaint([unit for unit, _ in marked])
    if not text:
        CACHE.mkdir(parents=True, exist_ok=True)
        for _, mark in marked:
            mark.touch()
        return []
    if len(marked) == 1:
        return [text]
    named = {path for path in re.findall(r"^(\S+?):\d+:\d+: error:", text, re.MULTILINE)}
    apart = [(unit, mark) for unit, mark in marked if str(unit.source) in named]
    if len(apart) in (0, len(marked)):
        apart = marked[:len(marked) // 2]
    return complaints(apart) + complaints([one for one in marked if one not in apart])


def batches(marked: list[tuple[Unit, pathlib.Path]]) -> list[list[tuple[Unit, pathlib.Path]]]:
    alike = collections.defaultdict(list)
    for unit, mark in marked:
        alike[unit.folder, unit.flags, unit.source.suffix].append((unit, mark))
    counts = {key: -(-len(group) // AT_ONCE) for key, group in alike.items()}
    # Sources of one folder are most likely to share names, so they go to different batches.
    return [group[at::counts[key]] for key, group in alike.items() for at in range(counts[key])]


def run(log: Log, paths: list[str], jobs: int) -> None:
    """Checks every source among `paths`, and the headers that they include."""
    sources = {ROOT / path for path in paths if path.endswith(tuple(COMPILERS)) and not path.startswith(NOT_COMPILED)}
    units = [unit for unit in map(Unit.of, json.loads(DATABASE.read_text())) if unit.source in sources]
    if missed := sources - {unit.source for unit in units}:
        raise StageFailed(f"preset release does not compile {', '.join(str(path.relative_to(ROOT)) for path in sorted(missed))}")
    for path, fault in PLANTED.items():
        planted = Unit(path, str(ROOT), (STANDARDS[path.suffix], f"-I{ROOT}"))
        for together in ([planted], [dataclasses.replace(planted, source=CLEAN[path.suffix]), planted]):
            if fault not in complaint(together):
                raise StageFailed(f"clang-tidy does not find {fault} in {path.name}")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        new = [(unit, mark) for unit, mark in zip(units, pool.map(mark_of, units)) if not mark.exists()]
        found = [text for texts in pool.map(complaints, batches(new)) for text in texts]
    log.write(f"{len(units)} sources\n" + "\n".join(found))
    if found:
        raise StageFailed(f"clang-tidy complains about {len(found)} of {len(units)} sources")
