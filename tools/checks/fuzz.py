"""tools/fuzz: runs libFuzzer's targets (tests/fuzz), several at a time, and reports executions and coverage."""

import argparse
import base64
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

from runner import ROOT

PRESET = "asan-ubsan"  # shares objects with the tests under ASan
BUILD = ROOT / "build" / PRESET
FOLDER = ROOT / "tests/fuzz"
TARGETS = sorted(path.name.removesuffix("_fuzzer.cc") for path in FOLDER.glob("*_fuzzer.cc"))
HOUR = 3600
PLANTED_SECONDS = 120
MAX_SHOWN = 3072  # bytes of a find
LIMITS = ("-max_len=16384", "-rss_limit_mb=4096", "-timeout=25")
# Other threads of the process allocate at any time, so leaks cannot be attributed to an input.
THREADED = ("hello", "control")
# Debian's libraries are not instrumented, so ASan misjudges containers that are passed to them.
ENVIRONMENT = {"ASAN_OPTIONS": "detect_container_overflow=0", "UBSAN_OPTIONS": "print_stacktrace=1"}


@dataclasses.dataclass
class Result:
    target: str
    passed: bool
    what: str
    seconds: float = 0
    executions: int = 0
    edges_before: int = 0  # reached by the corpus
    edges: int = 0
    corpus: int = 0  # inputs that reach all edges

    def row(self) -> str:
        speed = self.executions / self.seconds if self.seconds else 0
        return (f"{self.target:<16} {self.executions:11,} {speed:9,.0f} {self.edges_before:7} {self.edges:7} {self.corpus:7}  "
                f"{self.what}")


HEADING = f"{'target':<16} {'executions':>11} {'a second':>9} {'edges':>7} {'then':>7} {'corpus':>7}  result"


def last(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def fuzz(name: str, seconds: int, grown: pathlib.Path, *flags: str) -> tuple[int, str, Result]:
    """Runs a target's program on the corpus. New inputs go to `grown`."""
    target = name.removesuffix("_planted")
    log = BUILD / f"logs/fuzz-{name}.log"
    seeds = [folder for folder in (FOLDER / "corpus" / target, FOLDER / "found" / target) if folder.exists()]
    words = FOLDER / f"{target}.dict"
    if words.exists():
        flags += (f"-dict={words}",)
    for folder in (log.parent, grown, BUILD / "crashes"):
        folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("w") as file:
        status = subprocess.run(
            [BUILD / f"bin/fuzz_{name}", f"-max_total_time={seconds}", "-print_final_stats=1", *LIMITS, *flags,
             f"-detect_leaks={int(target not in THREADED)}",
             f"-artifact_prefix={BUILD}/crashes/{name}-", grown, *seeds],
            cwd=BUILD, env=os.environ | ENVIRONMENT, stdout=file, stderr=subprocess.STDOUT, timeout=seconds + 600).returncode
    text = log.read_text(errors="replace")
    return status, text, Result(name, status == 0, "", time.monotonic() - began,
                                last(r"stat::number_of_executed_units: (\d+)", text), last(r"INITED cov: (\d+)", text),
                                last(r"cov: (\d+)", text), last(r"corp: (\d+)/", text))


def run_target(target: str, seconds: int, repeatable: bool) -> Result:
    """Continues with the corpus that earlier runs have grown. `repeatable`: begins anew with a fixed seed, so a target without threads tries the same
    inputs each time, more of them on a faster machine."""
    grown = BUILD / ("repeatable" if repeatable else "corpora") / target
    if repeatable:
        shutil.rmtree(grown, ignore_errors=True)
    status, text, result = fuzz(target, seconds, grown, *(("-seed=1",) if repeatable else ()))
    result.what = "nothing found"
    if status != 0:
        crash = re.search(r"Test unit written to (\S+)", text)
        command = [str(BUILD / f"bin/fuzz_{target}"), crash.group(1)] if crash else ["less", str(BUILD / f"logs/fuzz-{target}.log")]
        result.what = f"FAILED ({fault(text)}); again: {shlex.join(command)}{keep(target, pathlib.Path(crash.group(1))) if crash else ''}"
    return result


def keep(target: str, crash: pathlib.Path) -> str:
    """Makes a find an input of later runs. Returns where it is and, because another machine's files may be lost, its bytes."""
    place = FOLDER / "found" / target / crash.name.removeprefix(f"{target}-")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(crash, place)
    text = f"; kept: {place.relative_to(ROOT)}"
    data = crash.read_bytes()
    return text + (f", base64 {base64.b64encode(data).decode()}" if len(data) <= MAX_SHOWN else "")


def fault(text: str) -> str:
    found = re.search(r"CHECK failed: .*|runtime error: .*|ERROR: (?:Address|Leak)Sanitizer: [\w-]+|ERROR: libFuzzer: .*", text)
    return found.group(0) if found else "the program ended"


def run_planted(target: str) -> Result:
    """Runs the target with one check of the product removed. The fault counts as found only if no input of the corpus shows it."""
    grown = BUILD / "planted" / target
    shutil.rmtree(grown, ignore_errors=True)
    status, text, result = fuzz(f"{target}_planted", PLANTED_SECONDS, grown, "-seed=1")
    found = status != 0 and result.edges_before != 0 and "Test unit written to" in text
    result.passed = found
    result.what = f"found as expected ({fault(text)})" if found else f"NOT FOUND, see {BUILD.relative_to(ROOT)}/logs"
    return result


def build() -> None:
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["tools/setup", "--no-build"], cwd=ROOT, check=True, stdout=sys.stderr)
        subprocess.run(["cmake", "--preset", PRESET], cwd=ROOT, check=True)
    jobs = os.environ.get("XPUD_JOBS", str(os.cpu_count()))
    subprocess.run(["cmake", "--build", BUILD, "-j", jobs, "--target", "xpud_fuzzers"], cwd=ROOT, check=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/fuzz", description="Runs fuzz targets and reports executions and coverage.")
    parser.add_argument("target", nargs="*", help=f"only these; available: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, help="seconds for each target (default: an hour for all targets)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="number of targets that run at once")
    parser.add_argument("--repeatable", action="store_true", help="begin anew with a fixed seed: what passes once passes again")
    parser.add_argument("--planted", action="store_true", help="first look for the planted faults")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results to this file")
    arguments = parser.parse_args()
    unknown = set(arguments.target) - set(TARGETS)
    if unknown:
        parser.error(f"unknown target {', '.join(sorted(unknown))}; available: {', '.join(TARGETS)}")
    return arguments


def main() -> int:
    arguments = parse()
    targets = arguments.target or TARGETS
    seconds = arguments.seconds or max(HOUR * min(arguments.jobs, len(targets)) // len(targets), 1)
    build()
    print(HEADING, flush=True)
    results = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        runs = [pool.submit(run_planted, target) for target in targets if arguments.planted]
        runs += [pool.submit(run_target, target, seconds, arguments.repeatable) for target in targets]
        for run in concurrent.futures.as_completed(runs):
            results.append(run.result())
            print(results[-1].row(), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([dataclasses.asdict(result) for result in results]))
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
