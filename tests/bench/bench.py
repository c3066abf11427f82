"""tools/bench: runs the benchmarks of this folder against a daemon of its own, and collects their rows.

A benchmark is a file bench_NAME.py here, or a program bench_NAME in the release build; it prints rows (rows.py).
"""

import argparse
import functools
import json
import os
import pathlib
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARIES = ROOT / "bin" if (ROOT / "bin/xpud").exists() else ROOT / "build/release/bin"  # a bundle of tools/bundle, or a clone
SUITES = {"": "cpu", "gpu": "cuda"}  # folder -> device
sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon  # noqa: E402

import compare  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402


def benchmarks() -> dict[str, list]:
    """Returns name -> command."""
    found = {}
    for suite in SUITES:
        for path in sorted((HERE / suite).glob("bench_*.*")):
            if path.name == "bench_python.py" and BINARIES == ROOT / "bin":
                continue  # a bundle has no Python client
            command = [sys.executable, path] if path.suffix == ".py" else [BINARIES / path.stem]
            found[str(pathlib.PurePath(suite, path.stem.removeprefix("bench_")))] = command
    return found


def suite_of(name: str) -> str:
    return name.rpartition("/")[0]


@functools.cache
def sees_cuda() -> bool:
    """Whether this Python's PyTorch has a GPU as the baseline."""
    return subprocess.run([sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"],
                          env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).returncode == 0


def device_for(name: str, smoke: bool) -> str:
    """The device of a benchmark's daemon and of plain PyTorch. A smoke run may use the CPU."""
    wanted = SUITES[suite_of(name)]
    if wanted == "cpu" or sees_cuda():
        return wanted
    if not smoke:
        raise RuntimeError(f"{name} needs an NVIDIA GPU, and the PyTorch of {sys.executable} sees none (--smoke runs it on the CPU)")
    return "cpu"


def chosen(names: list[str], known: dict[str, list], smoke: bool) -> list[str]:
    """Returns the benchmarks in `names`; without names, all that this machine can run."""
    if not names:
        return [name for name in known if SUITES[suite_of(name)] == "cpu" or smoke or sees_cuda()]
    return [name for name in known if name in names or suite_of(name) in names]


def run(name: str, command: list, env: dict[str, str]) -> list[dict]:
    """Returns the rows of one benchmark. It is an error if it fails or reports none."""
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env, cwd=HERE)
    rows = []
    for line in process.stdout:
        if line.startswith("@"):
            rows.append({"benchmark": name, **json.loads(line[1:])})
            show(rows[-1])
        else:
            print(line, end="")
    if process.wait() != 0 or not rows:
        raise RuntimeError(f"benchmark {name} exited with {process.returncode} after {len(rows)} rows")
    return rows


def run_with_daemon(name: str, command: list, smoke: bool, options: list[str]) -> list[dict]:
    """Starts a fresh daemon with the options, so that no benchmark inherits another's caches."""
    device = device_for(name, smoke)
    daemon = Daemon(BINARIES, ROOT / f"build/bench-{name.replace('/', '-')}.log", "--device", device, *options)
    try:
        if suite_of(name):
            print(f"  on {daemon.devices()[0]['name']}", flush=True)
        env = os.environ | {"XPUD_ADDRESS": str(daemon.address), "XPUD_FALLBACK": "error", "XPUD_BENCH_BINARIES": str(BINARIES), "XPUD_BENCH_PLAIN": device,
                            "XPUD_BENCH_LOGS": str(ROOT / "build"),
                            "PYTHONPATH": os.pathsep.join([*map(str, (HERE, ROOT / "tools/demo_lib", ROOT / "tools/lib")), os.environ.get("PYTHONPATH", "")])}
        return run(name, command, env | ({"XPUD_BENCH_SMOKE": "1"} if smoke else {}))
    finally:
        daemon.close()


def show(row: dict) -> None:
    verdict = {True: "met", False: "MISSED", None: ""}[row["met"]]
    beside = f"{row['ratio']:.2f}x {row['baseline']} ({row['baseline_value']:.4g})" if row["ratio"] else ""
    canary = "canary {:.2f} ms ({:.2f} to {:.2f})".format(*(row["canary_ms"][i] for i in (1, 0, 2))) if row.get("canary_ms") else ""
    print(f"  {row['name']:<48} {row['value']:>9.4g} {row['unit']:<14} {beside:<44} {row['target']:<14} {verdict:<6} {canary}".rstrip(),
          flush=True)


def measure(names: list[str], known: dict[str, list], smoke: bool, options: list[str]) -> tuple[list[dict], list[str]]:
    """Returns the rows of all benchmarks that ran, and the names of those that failed."""
    rows, failed = [], []
    for name in names:
        print(f"{name}:", flush=True)
        try:
            rows += run_with_daemon(name, known[name], smoke, options)
        except RuntimeError as failure:
            print(f"bench: {failure}", file=sys.stderr)
            failed.append(name)
    return rows, failed


def write(path: pathlib.Path, text: str) -> None:
    """`path` may be '-' for standard output."""
    if str(path) == "-":
        print(text, end="")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def compare_files(old: str, new: str, json_path: pathlib.Path | None) -> None:
    """Each side: comma-separated paths."""
    sides = [[results.read(pathlib.Path(path)) for path in side.split(",")] for side in (old, new)]
    found = compare.changes(*sides)
    if json_path is None:
        print(compare.as_text(found), end="")
    else:
        write(json_path, compare.as_json(found))


def parsed(known: dict[str, list]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(known)}; gpu runs all whose names begin with it; default: all that run here")
    parser.add_argument("--json", type=pathlib.Path, nargs="?", const="-", metavar="FILE",
                        help="write the result to FILE; with --compare write the comparison, to FILE or standard output")
    parser.add_argument("--save", action="store_true", help="write the result to tests/bench/results/DATE-MACHINE.json")
    parser.add_argument("--smoke", action="store_true", help="run briefly: shows that the benchmarks work, not how fast xpud is")
    parser.add_argument("--daemon", type=shlex.split, default=[], metavar="OPTIONS", help="start the daemons with these too, as in --daemon='--lanes 1'")
    parser.add_argument("--report", action="store_true", help="write the table of tests/bench/results/README.md from the files beside it; runs nothing")
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"),
                        help="show what changed between result files; a side of several runs is FILE,FILE,...; runs nothing")
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(known) - set(SUITES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if not arguments.compare and str(arguments.json) in {"-", *known}:
        parser.error("--json needs a FILE; only --compare writes JSON to standard output")
    if arguments.save and (arguments.smoke or arguments.daemon):
        parser.error("--save keeps real figures of daemons as they are, and --smoke measures none")
    return arguments


def main() -> int:
    known = benchmarks()
    arguments = parsed(known)
    try:
        if arguments.compare:
            compare_files(*arguments.compare, arguments.json)
            return 0
        if arguments.report:
            report.write(set(known))
            return 0
    except (OSError, ValueError) as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    load, machine = os.getloadavg()[0], results.machine()
    gpu = f" and {machine['gpu']}" if machine["gpu"] else ""
    print(f"{machine['cores']} cores of {machine['model']}{gpu}, Linux {machine['linux']}, load {load:.1f} at the start")
    rows, failed = measure(chosen(arguments.name, known, arguments.smoke), known, arguments.smoke, arguments.daemon)
    result = results.document(ROOT, rows, load, arguments.smoke)
    if arguments.save:
        path = results.free_path(result)
        write(path, results.text_of(result))
        print(f"saved as {path.relative_to(ROOT)}")
    if arguments.json:
        write(arguments.json, results.text_of(result))
    met = sum(row["met"] is True for row in rows)
    print(f"{len(rows)} rows, {met} of {sum(row['met'] is not None for row in rows)} targets met"
          + (f", failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
