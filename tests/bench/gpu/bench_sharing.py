"""Unchanged programs that share the GPU, each a process with MiniLM and one request at a time: through xpud, with the device opened by each (time-slicing),
and through MPS. The processes of all three ways exist at once; the ways work in turns.
"""

import dataclasses
import statistics
import time

import rows
import sides
import workers
from channel import Child
from encoder import TOKENS, WEIGHTS
from gpu_memory import GpuMemory
from mps import Mps

CLIENTS = 2 if rows.SMOKE else 8
ROUNDS, LENGTH = (1, 0.5) if rows.SMOKE else (3, 4.0)
MIB = 2**20


@dataclasses.dataclass
class Way:
    """One way of sharing: its processes and what they measured."""
    name: str
    workers: list[Child]
    further_mib: float | None = None  # GPU memory of each client after the first
    tensor_mib: float = 0
    rates: list[float] = dataclasses.field(default_factory=list)  # requests/s of all clients
    p50: list[float] = dataclasses.field(default_factory=list)    # seconds
    p99: list[float] = dataclasses.field(default_factory=list)
    evenness: list[float] = dataclasses.field(default_factory=list)  # fewest requests of a client / most

    def open(self, memory: GpuMemory | None) -> None:
        taken = []
        for worker in self.workers:
            before = memory.used_mib() if memory else 0
            self.tensor_mib = workers.opened(worker) / MIB
            taken.append(memory.used_mib() - before if memory else 0)
        if memory:
            self.further_mib = statistics.median(taken[1:])

    def run(self) -> None:
        at = time.perf_counter() + 0.2
        for worker in self.workers:
            worker.send("window", at, LENGTH)
        times = [worker.expect("done")["seconds"] for worker in self.workers]
        together = sorted(taken for of_one in times for taken in of_one)
        self.rates.append(len(together) / LENGTH)
        self.p50.append(together[len(together) // 2])
        self.p99.append(together[int(len(together) * 0.99)])
        self.evenness.append(min(map(len, times)) / max(map(len, times)))

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


def start(name: str, device: str, env: dict[str, str] | None = None) -> Way:
    return Way(name, [workers.start(f"{name} {i + 1}", device, env) for i in range(CLIENTS)])


def start_mps() -> Mps | None:
    if not sides.ON_GPU:
        return None
    try:
        return Mps()
    except (RuntimeError, OSError) as reason:
        print(f"  MPS: {reason}", flush=True)
        return None


def emit_speed(ours: Way, other: Way, rate_target: str, p99_target: str) -> None:
    what = f"{CLIENTS} processes, 1 x {TOKENS} bf16"
    rows.emit(f"{what}, all", statistics.median(ours.rates), "requests/s", other.name, statistics.median(other.rates),
              sides.target(rate_target))
    for label, mine, its, target in (("p50", ours.p50, other.p50, ""), ("p99", ours.p99, other.p99, p99_target)):
        rows.emit(f"{what}, {label}", statistics.median(mine) * 1e3, "ms", other.name, statistics.median(its) * 1e3, sides.target(target))
    rows.emit(f"{what}, fewest/most of a client", statistics.median(ours.evenness), "", other.name, statistics.median(other.evenness))


def emit_memory(ours: Way, other: Way) -> None:
    rows.emit(f"GPU memory of a further client but {ours.tensor_mib:.0f} MiB tensors", ours.further_mib - ours.tensor_mib, "MiB", other.name,
              other.further_mib - other.tensor_mib, "value <= 32")


def open_mps(mps: Mps, way: Way, memory: GpuMemory) -> bool:
    """Whether its clients were served; a failure of MPS is not ours."""
    try:
        way.open(memory)
        if mps.servers():
            return True
        print("  MPS: it serves nobody", mps.log(), flush=True)
    except (RuntimeError, OSError) as reason:
        print(f"  MPS: {reason}\n{mps.log()}", flush=True)
    return False


def measure(mps: Mps | None, ways: list[Way]) -> None:
    memory = GpuMemory() if sides.ON_GPU else None
    ways += [start("time-slicing", "plain"), start("xpud", "xpud")]
    ways += [start("MPS", "plain", mps.env)] if mps else []
    for way in ways:
        for worker in way.workers:
            worker.expect("ready")
    slicing, ours, *others = ways
    slicing.open(memory), ours.open(memory)
    others = [way for way in others if open_mps(mps, way, memory)]
    working = [slicing, ours, *others]
    for turn in range(ROUNDS):
        rows.canary()
        for way in working if turn % 2 == 0 else reversed(working):
            way.run()
    emit_speed(ours, slicing, "ratio >= 2.0", "")
    for other in others:
        emit_speed(ours, other, "ratio >= 1.2", "ratio <= 1.0")
    for other in (slicing, *others) if memory else ():
        emit_memory(ours, other)


def main() -> None:
    print(f"  MiniLM with {WEIGHTS}", flush=True)
    ways: list[Way] = []
    mps = start_mps()
    try:
        measure(mps, ways)
    finally:
        for way in ways:
            way.close()
        if mps:
            mps.close()


if __name__ == "__main__":
    main()
