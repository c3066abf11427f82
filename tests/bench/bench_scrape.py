"""The cost of metrics: a scrape with 50 tenants' sessions open, from connecting to its last byte, and a command's round trip beside a scraper that
asks without pause."""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import rows

BINARIES = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"])
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/lib"))

from daemon import Daemon  # noqa: E402
from metrics import scrape, series  # noqa: E402

TENANTS = 50
FRESH = 0.5  # seconds for which the daemon reuses a snapshot


def connect(daemon: Daemon) -> subprocess.Popen:
    client = subprocess.Popen([BINARIES / "bench_ring", "--idle"], env=os.environ | {"XPUD_ADDRESS": str(daemon.address)},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout.readline() == b"ready\n", "an idle client did not connect"
    return client


def scrapes(daemon: Daemon) -> list[float]:
    """Returns the seconds of each scrape for which the daemon took a new snapshot."""
    assert len(series(scrape(daemon), "xpud_client_memory_bytes")) == TENANTS
    times = []
    for _ in range(3 if rows.SMOKE else 20):
        time.sleep(FRESH * 1.1)
        rows.canary()
        times.append(rows.seconds(lambda: scrape(daemon)))
    return times


def round_trip(daemon: Daemon) -> float:
    """Returns the median microseconds of the 10,000 round trips of a brief bench_ring."""
    env = os.environ | {"XPUD_ADDRESS": str(daemon.address), "XPUD_BENCH_SMOKE": "1"}
    out = subprocess.run([BINARIES / "bench_ring"], env=env, check=True, capture_output=True, text=True).stdout
    line = next(line for line in out.splitlines() if "no-op round trip, awake, p50" in line)
    return float(line.partition('"value":')[2].partition(",")[0])


def round_trips(daemon: Daemon) -> tuple[list[float], list[float]]:
    """Without and with a scraper, in turns."""
    alone, beside = [], []
    for _ in range(1 if rows.SMOKE else 7):
        alone.append(round_trip(daemon))
        stop = threading.Event()
        scraper = threading.Thread(target=lambda stop=stop: [scrape(daemon) for _ in iter(lambda: stop.wait(FRESH), True)])
        scraper.start()
        beside.append(round_trip(daemon))
        stop.set()
        scraper.join()
    return alone, beside


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="xpud-bench-") as folder:
        daemon = Daemon(BINARIES, pathlib.Path(folder, "log"), "--device", "cpu", "--metrics-listen", "0")
        clients = [connect(daemon) for _ in range(TENANTS)]
        try:
            rows.begin_canary()
            times = scrapes(daemon)
            rows.emit(f"scrape of {TENANTS} sessions, p50", statistics.median(times) * 1e3, "ms", target="value <= 10")
            rows.emit(f"scrape of {TENANTS} sessions, longest", max(times) * 1e3, "ms")
            alone, beside = round_trips(daemon)
            rows.emit("no-op round trip beside a scraper", statistics.median(beside), "us", "without one", statistics.median(alone), "ratio <= 1.05")
        finally:
            for client in clients:
                client.communicate()
            daemon.close()


if __name__ == "__main__":
    main()
