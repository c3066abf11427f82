"""A tiny op and its wait, 100 a second, beside another session that always computes products of 4096 x 4096, over alone; and what that keeps of its rate.
The neighbour is one of the same user, or has a claim of class batch.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import time

import rows
import torch

from channel import Child

RATE = 100  # tiny ops a second
SIZE = 256 if rows.SMOKE else 4096
ROUNDS, LENGTH = (1, 0.5) if rows.SMOKE else (5, 5.0)  # of seconds
SOCKET = pathlib.Path(os.environ["XPUD_ADDRESS"])
XPUCTL = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"]) / "xpuctl"


def batch_door() -> dict[str, str]:
    """The environment of a client of a new claim."""
    subprocess.run([XPUCTL, "--address", SOCKET, "claim", "create", "night", "--class", "batch"], check=True, capture_output=True)
    return {"XPUD_ADDRESS": str(SOCKET.parent / "claims/night/xpud.sock")}


class TinyOp:
    def __init__(self):
        self._a, self._b = (torch.ones(16, device="xpud") for _ in range(2))

    def __call__(self) -> None:
        self._a + self._b
        torch.xpud.synchronize()

    def times(self, length: float) -> list[float]:
        """The seconds of each op."""
        times, began = [], time.perf_counter()
        for i in range(int(length * RATE)):
            time.sleep(max(0.0, began + i / RATE - time.perf_counter()))
            times.append(rows.seconds(self))
        return times


def products(neighbour: Child, length: float) -> None:
    neighbour.send("products", length)
    neighbour.expect("began")


def measure(tiny: TinyOp, name: str, env: dict[str, str]) -> None:
    neighbour = Child(name, [sys.executable, pathlib.Path(__file__).with_name("neighbour_client.py"), SIZE], env)
    neighbour.expect("ready")
    alone, beside, rates = [], [], {True: [], False: []}
    for _ in range(ROUNDS):
        rows.canary()
        alone += tiny.times(LENGTH)
        for shared in (True, False):
            products(neighbour, LENGTH)
            if shared:
                beside += tiny.times(LENGTH)
            rates[shared].append(neighbour.expect("done")["rate"])
    neighbour.close()
    for label, part in (("p50", 0.5), ("p99", 0.99)):
        at = [sorted(times)[int(len(times) * part)] * 1e3 for times in (beside, alone)]
        rows.emit(f"a tiny op beside {name}, {label}", at[0], "ms", "alone", at[1], "value <= 5" if label == "p99" else "")
    rows.emit(f"{name} beside {RATE} tiny ops/s", statistics.median(rates[True]), "1/s", "alone", statistics.median(rates[False]), "ratio >= 0.9")


def main() -> None:
    tiny = TinyOp()
    tiny.times(0.1)
    measure(tiny, f"products of {SIZE}", {})
    measure(tiny, f"products of {SIZE}, class batch", batch_door())


if __name__ == "__main__":
    main()
