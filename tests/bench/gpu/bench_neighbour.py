"""Requests of MiniLM, 100 a second, beside a neighbour that fills the GPU, over alone; and what the neighbour keeps of its rate. The requests have a claim
of class interactive, the neighbour one of class batch, if the daemon has claims.
"""

import dataclasses
import os
import pathlib
import statistics
import subprocess
import time
from collections.abc import Callable

import rows
import sides
import workers
from channel import Child

RATE = 100  # requests a second
ROUNDS, LENGTH = (1, 0.5) if rows.SMOKE else (3, 4.0)
SIZES = (256,) if rows.SMOKE else (8192, 16384)
SOCKET = pathlib.Path(os.environ["XPUD_ADDRESS"])
XPUCTL = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"]) / "xpuctl"


def door(key: str, priority: str) -> dict[str, str]:
    """The environment of who comes in by a new claim's door; empty if the daemon has no claims."""
    made = subprocess.run([XPUCTL, "--address", SOCKET, "claim", "create", key, "--class", priority], capture_output=True, text=True)
    if made.returncode != 0:
        print(f"  no claims: {made.stderr.strip()}", flush=True)
        return {}
    return {"XPUD_ADDRESS": str(SOCKET.parent / "claims" / key / "xpud.sock")}


@dataclasses.dataclass
class Neighbour:
    """A process that fills the GPU, and how much it did beside the requests and without them."""
    name: str
    worker: Child
    begin: Callable[[Child, float], None]
    limit: str  # for the p99 of the requests, over alone
    beside: list[float] = dataclasses.field(default_factory=list)
    alone: list[float] = dataclasses.field(default_factory=list)


def soon() -> float:
    return time.perf_counter() + 0.2


def window(requests: Child | None, neighbour: Neighbour | None) -> list[float]:
    """Both work for LENGTH seconds. Returns the seconds of the requests."""
    at = soon()
    if neighbour:
        neighbour.begin(neighbour.worker, at)
    if requests:
        requests.send("paced", at, LENGTH, RATE)
    times = requests.expect("done", 120)["seconds"] if requests else []
    if neighbour:
        done = len(neighbour.worker.expect("done", 120)["seconds"])
        (neighbour.beside if requests else neighbour.alone).append(done / LENGTH)
    return times


def measure(requests: Child, neighbour: Neighbour) -> None:
    alone, beside = [], []
    window(requests, neighbour)  # kernels are compiled
    neighbour.beside.clear()
    for _ in range(ROUNDS):
        rows.canary()
        alone += window(requests, None)
        beside += window(requests, neighbour)
        window(None, neighbour)
    for label, part in (("p50", 0.5), ("p99", 0.99)):
        at = [sorted(times)[int(len(times) * part)] for times in (beside, alone)]
        rows.emit(f"{RATE}/s beside {neighbour.name}, {label}", at[0] * 1e3, "ms", "alone", at[1] * 1e3,
                  sides.target(f"ratio <= {neighbour.limit}" if label == "p99" else ""))
    rows.emit(f"{neighbour.name} beside {RATE}/s", statistics.median(neighbour.beside), "1/s", "alone", statistics.median(neighbour.alone),
              sides.target("ratio >= 0.9"))


def main() -> None:
    web, night = door("web", "interactive"), door("night", "batch")
    requests = workers.start("requests", "xpud", web)
    children = [requests]
    try:
        requests.expect("ready", 60)
        workers.opened(requests)
        for size in SIZES:
            worker = workers.start(f"products {size}", "xpud", night)
            children.append(worker)
            worker.expect("ready", 60)
            limit = "1.3" if size == SIZES[0] else "1.5"
            measure(requests, Neighbour(f"products of {size}", worker, lambda w, at, size=size: w.send("products", at, LENGTH, size), limit))
            worker.close()
        if sides.ON_GPU:
            trainer = workers.start("trainer", "xpud", night, "trainer.py")
            children.append(trainer)
            trainer.expect("ready", 60)
            trainer.send("open", "gpt2")
            trainer.expect("opened", 120)
            measure(requests, Neighbour("GPT-2 training", trainer, lambda w, at: w.send("window", at, LENGTH), "1.25"))
    finally:
        for child in children:
            child.close()


if __name__ == "__main__":
    main()
