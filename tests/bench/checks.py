"""What checking clients costs: the same commands at the daemon and at one that was built without checks (the CMake preset `without-checks`),
in turns. A third daemon is the first one's twin: how far those two are apart is what this machine cannot tell.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys

import rows

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE / "gpu"), str(HERE.parents[1] / "tools/lib")]  # the encoder's processes run on the CPU device as well

import workers  # noqa: E402
from daemon import Daemon  # noqa: E402

from channel import Child  # noqa: E402

BINARIES = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"])
WITHOUT_CHECKS = pathlib.Path(os.environ["XPUD_BENCH_WITHOUT_CHECKS"])
DEVICE = os.environ["XPUD_BENCH_PLAIN"]
ON_GPU = DEVICE != "cpu"
BESIDE = "without checks"
DTYPE = "bfloat16" if ON_GPU else "float32"

# Batch, tokens, forwards in a row, turns of each process.
MODELS = [(2, 32, 1, 2)] if rows.SMOKE else [(1, 16, 100 if ON_GPU else 10, 11), (32, 128, 20 if ON_GPU else 1, 7)]
# A process keeps the pace that it has by where its memory happens to lie, up to a fifth apart from the next one's.
PROCESSES = 1 if rows.SMOKE else 9


@dataclasses.dataclass
class Daemons:
    """Addresses; the first is the daemon that tools/bench has started."""
    checked: str
    unchecked: str
    twin: str

    def all(self) -> list[str]:
        return [self.checked, self.unchecked, self.twin]


@contextlib.contextmanager
def daemons():
    logs = pathlib.Path(BINARIES).parent
    unchecked = Daemon(BINARIES, logs / "bench-without-checks.log", "--device", DEVICE, "--without-checks", program=WITHOUT_CHECKS)
    twin = Daemon(BINARIES, logs / "bench-twin.log", "--device", DEVICE)
    try:
        yield Daemons(os.environ["XPUD_ADDRESS"], str(unchecked.address), str(twin.address))
    finally:
        unchecked.close()
        twin.close()


def commands(among: Daemons) -> None:
    """Streams from a C++ client that only writes them."""
    process = subprocess.run([BINARIES / "command_costs", *among.all()], check=True, stdout=subprocess.PIPE, text=True)
    for line in process.stdout.splitlines():
        stream = json.loads(line)
        checked, unchecked, twin = stream["ns"]
        rows.emit(f"{stream['stream']}, a command", checked, "ns", BESIDE, unchecked, "excess <= 60")
        rows.emit(f"{stream['stream']}, a command, twins", checked, "ns", "the same daemon again", twin)


def in_turns(processes: list[Child], in_a_row: int, turns: int) -> list[float]:
    """The seconds of a forward in each process."""
    taken = [[] for _ in processes]
    for turn in range(turns):
        rows.canary()
        for i in range(len(processes)):
            which = (turn + i) % len(processes)
            taken[which] += workers.asked(processes[which], "forward", in_a_row)
    return [statistics.median(times) for times in taken]


def in_new_processes(among: Daemons, batch: int, tokens: int, in_a_row: int, turns: int) -> list[float]:
    processes = [workers.start(f"encoder {i + 1}", "xpud", {"XPUD_ADDRESS": address}) for i, address in enumerate(among.all())]
    for process in processes:
        process.expect("ready")
        process.send("open", DTYPE, batch, tokens, 3)
        process.expect("opened")
    taken = in_turns(processes, in_a_row, turns)
    for process in processes:
        process.close()
    return taken


def model(among: Daemons, batch: int, tokens: int, in_a_row: int, turns: int) -> None:
    """MiniLM, unchanged and eager, in processes of their own."""
    rows.begin_canary()
    taken = [in_new_processes(among, batch, tokens, in_a_row, turns) for _ in range(PROCESSES)]
    checked, unchecked, twin = (statistics.median(times) * 1e3 for times in zip(*taken))
    name = f"MiniLM {'bf16' if ON_GPU else 'f32'}, {batch} x {tokens}"
    rows.emit(name, checked, "ms", BESIDE, unchecked, "ratio <= 1.01")
    rows.emit(f"{name}, twins", checked, "ms", "the same daemon again", twin)


def main() -> None:
    with daemons() as among:
        commands(among)
        for shape in MODELS:
            model(among, *shape)
