"""The cost of profiling on a GPU, and what a profile says: MiniLM, bf16, while an operator profiles its session, in turns with nobody looking."""

import json
import os
import pathlib
import statistics
import subprocess

import rows
import sides
from encoder import TOKENS, Encoder

XPUCTL = (str(pathlib.Path(os.environ["XPUD_BENCH_BINARIES"], "xpuctl")), "--address", os.environ["XPUD_ADDRESS"])
TURNS = 1 if rows.SMOKE else 9


def xpuctl(*arguments: str) -> str:
    return subprocess.run([*XPUCTL, *arguments], check=True, capture_output=True, text=True).stdout


def asked(*arguments: str) -> dict:
    return json.loads(xpuctl(*arguments, "-o", "json"))


def busy_seconds() -> float:
    return asked("status")["devices"][0]["busy_ns"] / 1e9


def measure(batch: int, tokens: int, target: str, loop: int) -> None:
    """A turn is `loop` forwards."""
    encoder = Encoder("xpud", batch=batch, tokens=tokens)

    def forwards() -> None:
        for _ in range(loop):
            encoder()

    def profiled() -> float:
        xpuctl("profile", "start", "--all")
        before = busy_seconds()
        took = rows.seconds(forwards)
        busy = busy_seconds() - before
        xpuctl("profile", "stop", "--all")
        stats = asked("profile", "stats", "--all")
        calls = sum(row["calls"] for row in stats["rows"])
        parts.append(stats["device_ns"] / 1e9 / busy)
        exact.append(1 - stats["estimated"] / calls)
        return took

    forwards()
    parts, exact, times = [], [], {"nobody": [], "operator": []}
    rows.begin_canary()
    for _ in range(TURNS):
        rows.canary()
        times["nobody"].append(rows.seconds(forwards))
        times["operator"].append(profiled())
    nobody, operator = (statistics.median(each) / loop * 1e3 for each in times.values())
    name = f"MiniLM bf16, {batch} x {tokens}"
    rows.emit(f"{name}, profiled by xpuctl", operator, "ms", "not profiled", nobody, sides.target(target))
    rows.emit(f"{name}, kernels' time in a profile / device's busy time", statistics.median(parts), "")
    rows.emit(f"{name}, commands whose times were measured", statistics.median(exact) * 100, "%", target=sides.target("value >= 99"))


def main() -> None:
    if rows.SMOKE:
        return measure(2, 32, "", loop=2)
    measure(1, TOKENS, "ratio <= 1.15", loop=100)
    measure(32, 128, "ratio <= 1.05", loop=100)
    measure(256, 256, "ratio <= 1.05", loop=20)  # the GPU is the limit


if __name__ == "__main__":
    main()
