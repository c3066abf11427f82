"""tools/bench: runs the benchmarks of this folder against a daemon of its own, and gathers their rows.

A benchmark is a file bench_NAME.py here, or a program bench_NAME in the release build; it prints rows (rows.py).
"""

import argparse
import functools
import json
import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARIES = ROOT / "bin" if (ROOT / "bin/xpud").exists() else ROOT / "build/release/bin"  # a bundle of tools/bundle, or a clone
SUITES = {"": "cpu", "gpu": "cuda"}  # folder -> device
sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon  # noqa: E402


def benchmarks() -> dict[str, list]:
    """Name -> command."""
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
    """Whether this Python's PyTorch has a GPU to be the baseline on."""
    return subprocess.run([sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"],
                          env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).returncode == 0


def device_for(name: str, smoke: bool) -> str:
    """What a benchmark's daemon drives, and plain PyTorch computes on: a smoke run is content with the CPU."""
    wanted = SUITES[suite_of(name)]
    if wanted == "cpu" or sees_cuda():
        return wanted
    if not smoke:
        raise RuntimeError(f"{name} needs an NVIDIA GPU, and the PyTorch of {sys.executable} sees none (--smoke runs it on the CPU)")
    return "cpu"


def chosen(names: list[str], known: dict[str, list], smoke: bool) -> list[str]:
    """The benchmarks that `names` asks for; without names, all that this machine can run."""
    if not names:
        return [name for name in known if SUITES[suite_of(name)] == "cpu" or smoke or sees_cuda()]
    return [name for name in known if name in names or suite_of(name) in names]


def run(name: str, command: list, env: dict[str, str]) -> list[dict]:
    """The rows of one benchmark; it is an error if it fails or reports none."""
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


def run_with_daemon(name: str, command: list, smoke: bool) -> list[dict]:
    """Each has a fresh one: no benchmark inherits another's caches."""
    device = device_for(name, smoke)
    daemon = Daemon(BINARIES, ROOT / f"build/bench-{name.replace('/', '-')}.log", "--device", device)
    try:
        if suite_of(name):
            print(f"  on {daemon.devices()[0]['name']}", flush=True)
        env = os.environ | {"XPUD_ADDRESS": str(daemon.address), "XPUD_FALLBACK": "error", "XPUD_BENCH_BINARIES": str(BINARIES),
                            "XPUD_BENCH_PLAIN": device,
                            "PYTHONPATH": os.pathsep.join([*map(str, (HERE, ROOT / "tools/demo_lib")), os.environ.get("PYTHONPATH", "")])}
        return run(name, command, env | ({"XPUD_BENCH_SMOKE": "1"} if smoke else {}))
    finally:
        daemon.close()


def show(row: dict) -> None:
    verdict = {True: "met", False: "MISSED", None: ""}[row["met"]]
    beside = f"{row['ratio']:.2f}x {row['baseline']} ({row['baseline_value']:.4g})" if row["ratio"] else ""
    canary = "canary {:.2f} ms ({:.2f} to {:.2f})".format(*(row["canary_ms"][i] for i in (1, 0, 2))) if row.get("canary_ms") else ""
    print(f"  {row['name']:<48} {row['value']:>9.4g} {row['unit']:<14} {beside:<44} {row['target']:<14} {verdict:<6} {canary}".rstrip(),
          flush=True)


def machine() -> str:
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Linux {platform.release()}, load {os.getloadavg()[0]:.1f} at the start"


def main() -> int:
    known = benchmarks()
    parser = argparse.ArgumentParser(prog="tools/bench")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(known)}; gpu is all that begin so; without a name, all that can run here")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    parser.add_argument("--smoke", action="store_true", help="briefly: does it work, not how fast is it")
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(known) - set(SUITES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    print(machine())
    rows, failed = [], []
    for name in chosen(arguments.name, known, arguments.smoke):
        print(f"{name}:", flush=True)
        try:
            rows += run_with_daemon(name, known[name], arguments.smoke)
        except RuntimeError as failure:
            print(f"bench: {failure}", file=sys.stderr)
            failed.append(name)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    met = sum(row["met"] is True for row in rows)
    print(f"{len(rows)} rows, {met} of {sum(row['met'] is not None for row in rows)} targets met"
          + (f", failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
