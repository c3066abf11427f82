"""Tensors of 1 GiB through a queue of torch.multiprocessing, beside plain PyTorch; and what is left when their sender is killed."""

import json
import os
import pathlib
import statistics
import subprocess

import rows
import sides
import workers
from channel import Child

MIB, COUNT = (16, 3) if rows.SMOKE else (1024, 11)


def held_bytes() -> int:
    """What the daemon's tenants hold, shared memory included."""
    done = subprocess.run([pathlib.Path(os.environ["XPUD_BENCH_BINARIES"]) / "xpuctl", "memory", "-o", "json"], check=True, stdout=subprocess.PIPE, text=True)
    return sum(int(tenant.get("holds_bytes", 0)) for tenant in json.loads(done.stdout).get("tenants", []))


def receiver(side: str) -> Child:
    program = workers.start(f"receiver, {side}", side, program="passing.py")
    program.expect("ready", 60)
    return program


def passed(program: Child) -> float:
    program.send("pass", MIB, COUNT)
    return statistics.median(program.expect("done", 120)["seconds"])


def main() -> None:
    before = held_bytes()
    programs = {side: receiver(side) for side in ("plain", "xpud")}
    rows.canary()
    seconds = {side: passed(program) for side, program in programs.items()}
    size = f"{MIB} MiB"
    rows.emit(f"{size} through a queue, to its first use", seconds["xpud"] * 1e3, "ms", sides.PLAIN_NAME, seconds["plain"] * 1e3, sides.target("value <= 2"))
    programs["xpud"].send("orphan")
    if wrong := programs["xpud"].expect("done", 60)["wrong"]:
        raise RuntimeError(f"{wrong} elements were lost with their sender")
    if (held := held_bytes() - before) < MIB << 20:
        raise RuntimeError(f"the daemon says that the receiver holds {held} bytes")
    programs["xpud"].send("drop")
    programs["xpud"].expect("done", 60)
    left = held_bytes() - before
    rows.emit(f"{size} whose sender was killed, and which the receiver has dropped: left", left / 2**20, "MiB", target=sides.target("value <= 1"))
    for program in programs.values():
        program.close()


if __name__ == "__main__":
    main()
