"""The processor time of an idle daemon with eight idle clients."""

import json
import os
import pathlib
import subprocess
import time

import rows

BINARIES = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"])
CLIENTS = 8


def cpu_seconds(pid: int) -> float:
    """Returns the time that all threads of a process have run, in nanoseconds."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()) / 1e9


def main() -> None:
    pid = json.loads(subprocess.run([BINARIES / "xpuctl", "status", "-o", "json"], check=True, capture_output=True).stdout)["daemon"]["pid"]
    clients = [subprocess.Popen([BINARIES / "bench_ring", "--idle"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(CLIENTS)]
    for client in clients:
        assert client.stdout.readline() == b"ready\n", "an idle client did not connect"
    time.sleep(1)
    window = 1 if rows.SMOKE else 10
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(window)
    share = (cpu_seconds(pid) - before) / (time.monotonic() - began) * 100
    for client in clients:
        client.stdin.close()
        client.wait()
    rows.emit(f"idle daemon, {CLIENTS} idle clients", share, "% of a core", target="value < 0.1")


if __name__ == "__main__":
    main()
