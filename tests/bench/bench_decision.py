"""What a scheduling decision costs: a round of a lane over its sessions, of which a tenth have commands (daemon/scheduler/decision_benchmark.cc)."""

import json
import os
import pathlib
import statistics
import subprocess

import rows

PROGRAM = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"]) / "decision_benchmark"
REPEATS = 1 if rows.SMOKE else 9


def main() -> None:
    options = ["--benchmark_format=json", f"--benchmark_repetitions={REPEATS}", *(["--benchmark_min_time=0.01"] if rows.SMOKE else [])]
    measured = json.loads(subprocess.run([PROGRAM, *options], check=True, stdout=subprocess.PIPE, text=True).stdout)["benchmarks"]
    seconds: dict[tuple[str, str], list[float]] = {}
    for run in measured:
        if run["run_type"] == "iteration":
            _, device, sessions = run["name"].split("/")
            seconds.setdefault((device, sessions), []).append(run["decision"])
    for (device, sessions), each in seconds.items():
        rows.emit(f"a decision among {int(sessions):,}, {device} device", statistics.median(each) * 1e9, "ns",
                  target="value <= 150" if sessions == "1000" else "")


if __name__ == "__main__":
    main()
