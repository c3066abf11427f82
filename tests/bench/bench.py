"""tools/bench: runs the benchmarks of this folder against a daemon of its own, and gathers their rows.

A benchmark is a file bench_NAME.py here, or a program bench_NAME in the release build; it prints rows (rows.py).
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARIES = ROOT / "build/release/bin"
sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon  # noqa: E402


def benchmarks() -> dict[str, list]:
    """Name -> command."""
    found = {path.stem.removeprefix("bench_"): [sys.executable, path] for path in HERE.glob("bench_*.py")}
    found |= {path.stem.removeprefix("bench_"): [BINARIES / path.stem] for path in HERE.glob("bench_*.cc")}
    return dict(sorted(found.items()))


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


def show(row: dict) -> None:
    verdict = {True: "met", False: "MISSED", None: ""}[row["met"]]
    beside = f"{row['ratio']:.2f}x {row['baseline']} ({row['baseline_value']:.4g})" if row["ratio"] else ""
    print(f"  {row['name']:<38} {row['value']:>9.4g} {row['unit']:<14} {beside:<58} {row['target']:<16} {verdict}", flush=True)


def machine() -> str:
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Linux {platform.release()}, load {os.getloadavg()[0]:.1f} at the start"


def main() -> int:
    known = benchmarks()
    parser = argparse.ArgumentParser(prog="tools/bench")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(known)}; all without one")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    parser.add_argument("--smoke", action="store_true", help="briefly: does it work, not how fast is it")
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(known):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    print(machine())
    rows, failed = [], []
    for name in arguments.name or known:
        daemon = Daemon(BINARIES, ROOT / f"build/bench-{name}.log")  # a fresh one: no benchmark inherits another's caches
        env = os.environ | {"XPUD_ADDRESS": str(daemon.address), "XPUD_FALLBACK": "error", "XPUD_BENCH_BINARIES": str(BINARIES)}
        env |= {"XPUD_BENCH_SMOKE": "1"} if arguments.smoke else {}
        print(f"{name}:", flush=True)
        try:
            rows += run(name, known[name], env)
        except RuntimeError as failure:
            print(f"bench: {failure}", file=sys.stderr)
            failed.append(name)
        finally:
            daemon.close()
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    met = sum(row["met"] is True for row in rows)
    print(f"{len(rows)} rows, {met} of {sum(row['met'] is not None for row in rows)} targets met"
          + (f", failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
