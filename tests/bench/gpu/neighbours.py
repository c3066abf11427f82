"""Requests beside a neighbour: how long they take, over alone, and what the neighbour keeps of its rate. Both are worker processes that come in by doors of
claims, if the daemon has claims. A neighbour takes about 20 s, however slow the requests become.
"""

import dataclasses
import os
import pathlib
import statistics
import subprocess
import time
from collections.abc import Callable

import rows
import workers
from channel import Child

ROUNDS = 1 if rows.SMOKE else 3
# Seconds of a round: of the requests alone, of both, and of the neighbour alone.
ALONE, BESIDE, WITHOUT = (0.3, 0.5, 0.3) if rows.SMOKE else (2.0, 3.0, 1.0)
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
class Served:
    """What became of requests."""
    seconds: list[float] = dataclasses.field(default_factory=list)  # of those that were served, and how long others had waited when they were dropped
    dropped: int = 0

    def add(self, event: dict) -> None:
        self.seconds += event["seconds"] + event.get("dropped", [])
        self.dropped += len(event.get("dropped", []))

    def quantile(self, part: float) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * part)]


@dataclasses.dataclass
class Requests:
    """A worker that is asked again and again. `command`: what it is sent for so many seconds from a time on."""
    name: str
    worker: Child
    command: Callable[[float, float], tuple]
    load: float = 0  # how much of the device they take
    alone: Served = dataclasses.field(default_factory=Served)
    beside: Served = dataclasses.field(default_factory=Served)

    def forget(self) -> None:
        self.alone, self.beside = Served(), Served()


@dataclasses.dataclass
class Neighbour:
    """A worker that fills the device, and how much it did beside the requests and without them."""
    name: str
    worker: Child
    command: Callable[[float, float], tuple]
    beside: list[float] = dataclasses.field(default_factory=list)
    alone: list[float] = dataclasses.field(default_factory=list)


def paced(rate: float) -> Callable[[float, float], tuple]:
    return lambda at, length: ("paced", at, length, rate)


def products(size: int, dtype: str = "bfloat16") -> Callable[[float, float], tuple]:
    return lambda at, length: ("products", at, length, size, dtype)


def training(at: float, length: float) -> tuple:
    return "window", at, length


def window(length: float, requests: Requests | None, neighbour: Neighbour | None) -> None:
    at = time.perf_counter() + 0.2
    for side in filter(None, (neighbour, requests)):
        side.worker.send(*side.command(at, length))
    if requests:
        (requests.beside if neighbour else requests.alone).add(requests.worker.expect("done", 120))
    if neighbour:
        seconds = neighbour.worker.expect("done", 120)["seconds"]
        (neighbour.beside if requests else neighbour.alone).append(len(seconds) / sum(seconds))


def measure(requests: Requests, neighbour: Neighbour) -> None:
    rows.begin_canary()
    window(WITHOUT, requests, neighbour)  # kernels are compiled
    requests.forget()
    neighbour.beside.clear()
    for _ in range(ROUNDS):
        rows.canary()
        window(ALONE, requests, None)
        window(BESIDE, requests, neighbour)
        window(WITHOUT, None, neighbour)


def emit_times(requests: Requests, neighbour: Neighbour, target: str) -> None:
    """`target`: of the p99."""
    for label, part in (("p50", 0.5), ("p99", 0.99)):
        rows.emit(f"{requests.name} beside {neighbour.name}, {label}", requests.beside.quantile(part) * 1e3, "ms", "alone",
                  requests.alone.quantile(part) * 1e3, target if label == "p99" else "")
    if requests.beside.dropped:
        print(f"  saturated: {requests.beside.dropped} of {len(requests.beside.seconds)} requests were not served in time", flush=True)


def emit_kept(requests: Requests, neighbour: Neighbour, target: str) -> None:
    """What the neighbour keeps of its rate, or of what the requests leave of it."""
    baseline = "of the time left" if requests.load else "alone"
    rows.emit(f"{neighbour.name} beside {requests.name}", statistics.median(neighbour.beside), "1/s", baseline,
              statistics.median(neighbour.alone) * (1 - requests.load), target)


def at_load(name: str, worker: Child, load: float) -> Requests:
    """Requests at such a rate that the device, without others, is busy for so much of the time."""
    workers.asked(worker, "forward", 5)
    each = statistics.median(workers.asked(worker, "forward", 5 if rows.SMOKE else 50))
    print(f"  {name}: {each * 1e3:.2f} ms alone, {load / each:.1f} a second", flush=True)
    return Requests(f"{name} at {load:.0%} load", worker, paced(load / each), load)
