"""Claims with weights on a GPU, each a process that embeds batches with MiniLM: what each gets done of all, and what of the device's time it is charged, in
seconds of the same run. Pairs of 30 and 70, and four of 10, 20, 30 and 35; batches that fill the GPU, and batches whose kernels run beside others'.
"""

import json
import os
import pathlib
import statistics
import subprocess
import time

import rows
import workers

ROUNDS, LENGTH = (1, 0.5) if rows.SMOKE else (5, 3.0)
BATCHES = [1] if rows.SMOKE else [256, 64]
TOKENS = 16 if rows.SMOKE else 128
SETS = [(30, 70), (10, 20, 30, 35)]
SOCKET = pathlib.Path(os.environ["XPUD_ADDRESS"])


def xpuctl(*args: object) -> str:
    program = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"]) / "xpuctl"
    return subprocess.run([program, "--address", SOCKET, *map(str, args)], check=True, stdout=subprocess.PIPE, text=True).stdout


def charged(keys: list[str]) -> list[float]:
    """The nanoseconds of the device that each claim was charged."""
    of = {claim["key"]: claim["busy_ns"] for claim in json.loads(xpuctl("claim", "-o", "json"))["claims"]}
    return [of[key] for key in keys]


def parts(values: list[float]) -> list[float]:
    """In percent of their sum."""
    return [100 * value / sum(values) for value in values]


def measure(shares: tuple[int, ...], batch: int) -> None:
    keys = [f"tenants-{len(shares)}-{batch}-{share}" for share in shares]
    running = []
    for key, share in zip(keys, shares):
        xpuctl("claim", "create", key, "--weight", share)
        running.append(workers.start(key, "xpud", {"XPUD_ADDRESS": str(SOCKET.parent / "claims" / key / "xpud.sock")}))
    for worker in running:
        worker.expect("ready", 60)
        worker.send("open", "bfloat16", batch, TOKENS, 3)
    for worker in running:
        worker.expect("opened", 120)
    work: list[list[float]] = []
    time_of: list[list[float]] = []
    for _ in range(ROUNDS):
        at = time.perf_counter() + 0.2
        before = charged(keys)
        for worker in running:
            worker.send("window", at, LENGTH)
        work.append(parts([len(worker.expect("done", 60)["seconds"]) for worker in running]))
        time_of.append(parts([after - first for after, first in zip(charged(keys), before)]))
    for worker, key in zip(running, keys):
        worker.close()
        xpuctl("claim", "delete", key)
    for i, share in enumerate(parts(list(shares))):
        what = f"{'/'.join(map(str, shares))}, batches of {batch} x {TOKENS}: {shares[i]}'s"
        rows.emit(f"{what} device time", statistics.median(each[i] for each in time_of), "%", "its part", share, "" if rows.SMOKE else "excess <= 2")
        rows.emit(f"{what} work", statistics.median(each[i] for each in work), "%", "its part", share)


def main() -> None:
    for batch in BATCHES:
        for shares in SETS:
            measure(shares, batch)


if __name__ == "__main__":
    main()
