"""clang-tidy over our sources, remembering by content what was clean: a source whose preprocessed text, checks and
compiler have not changed is not looked at again."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess

from runner import ROOT, Log, StageFailed

DATABASE = ROOT / "build/dev/compile_commands.json"
# Checks of .clang-tidy's groups that argue with what this project is about.
LEFT_OUT = (
    "bugprone-invalid-enum-default-initialization",  # Level Zero's structs start as zeros
    "bugprone-multi-level-implicit-pointer-conversion", "performance-no-int-to-ptr",  # kernel arguments and handles
    "bugprone-random-generator-seed", "bugprone-throwing-static-initialization",  # tests: fixed seeds, tables of cases
    "bugprone-command-processor",  # tests that run tools
    "bugprone-macro-parentheses",  # RETURN_IF_ERROR declares
    "performance-inefficient-vector-operation", "performance-inefficient-string-concatenation",  # off the hot path
)
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "xpud" / "tidy"


def changed(paths: list[str]) -> set[str]:
    """Of `paths`, those that differ from origin/main; all of them where there is no origin/main."""
    base = subprocess.run(["git", "merge-base", "HEAD", "origin/main"], cwd=ROOT, capture_output=True, text=True)
    if base.returncode != 0:
        return set(paths)
    differing = subprocess.run(["git", "diff", "--name-only", base.stdout.strip()], cwd=ROOT, capture_output=True, text=True,
                               check=True).stdout.split()
    untracked = subprocess.run(["git", "ls-files", "-o", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                               check=True).stdout.split()
    return set(paths) & (set(differing) | set(untracked))


def fingerprint(entry: dict) -> str:
    """A hash of the source as the compiler sees it, comments included (NOLINT lives there), free of the clone's path."""
    words = shlex.split(entry["command"])
    if words[0].endswith("ccache"):
        words = words[1:]
    out = words.index("-o")
    words = words[:out] + words[out + 2:]
    text = subprocess.run([*(w for w in words if w != "-c"), "-E", "-C", "-P"], cwd=entry["directory"], capture_output=True).stdout
    checks = (ROOT / ".clang-tidy").read_bytes() + repr(LEFT_OUT).encode()
    return hashlib.sha256(text.replace(str(ROOT).encode(), b"") + checks).hexdigest()


def check(entry: dict) -> str:
    """What clang-tidy says against one source; empty when it is clean."""
    mark = CACHE / fingerprint(entry)
    if mark.exists():
        return ""
    result = subprocess.run(["clang-tidy-22", "--quiet", f"--checks={','.join('-' + name for name in LEFT_OUT)}", "-p", str(DATABASE.parent), entry["file"]], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL)
    if result.returncode == 0:
        CACHE.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return ""
    return result.stdout + result.stderr


def run(log: Log, paths: list[str], everything: bool) -> None:
    wanted = set(paths) if everything else changed(paths)
    entries = [e for e in json.loads(DATABASE.read_text()) if os.path.relpath(e["file"], ROOT) in wanted]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        complaints = [text for text in pool.map(check, entries) if text]
    log.write(f"{len(entries)} sources\n" + "\n".join(complaints))
    if complaints:
        raise StageFailed(f"clang-tidy complains about {len(complaints)} of {len(entries)} sources")
