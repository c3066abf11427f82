"""Claims that are made and deleted, with a client each hundredth, at a daemon that keeps them: how many a second, and what is left of them."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import rows

BINARIES = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"])
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/lib"))

from daemon import Daemon  # noqa: E402

FEW, MANY = (100, 300) if rows.SMOKE else (1_000, 10_000)
SETTLE = 1  # seconds until what ended is gone


def churn(daemon: Daemon, first: int, count: int) -> float:
    """Returns the seconds that it took."""
    env = os.environ | {"XPUD_ADDRESS": str(daemon.address)}
    return float(subprocess.run([BINARIES / "claim_churn", str(first), str(count)], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout)


def holds(daemon: Daemon) -> tuple[float, int]:
    """Returns the daemon's resident MiB and its descriptors."""
    time.sleep(SETTLE)
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return resident / 1024, len(os.listdir(f"/proc/{daemon.pid}/fd"))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="xpud-bench-") as folder:
        daemon = Daemon(BINARIES, pathlib.Path(folder, "log"), "--device", "cpu", "--state-dir", str(pathlib.Path(folder, "state")))
        try:
            churn(daemon, 0, FEW)
            before = holds(daemon)
            took = churn(daemon, FEW, MANY - FEW)
            after = holds(daemon)
        finally:
            daemon.close()
    baseline = f"after {FEW:,}"
    rows.emit(f"daemon's resident memory after {MANY:,} claims", after[0], "MiB", baseline, before[0], "excess <= 2")
    rows.emit(f"daemon's descriptors after {MANY:,} claims", after[1], "", baseline, before[1], "excess <= 0")
    rows.emit("claims made, kept and deleted", (MANY - FEW) / took, "1/s")


if __name__ == "__main__":
    main()
