"""A training step (forward, backward, AdamW) in bf16 autocast, beside plain PyTorch with AdamW's defaults; its peak memory and its commands. Each side is
a process of its own: autograd supports one accelerator in a process."""

import json
import os
import statistics
import subprocess

import models
import rows
import sides
import workers

TURNS, STEPS = (2, 1) if rows.SMOKE else (9, 3)
TARGETS = {"bert": "ratio <= 0.7", "gpt2": "ratio <= 0.8", "vit": "ratio <= 0.8", "resnet": "ratio <= 0.9", "lstm": "ratio <= 1.0"}
SIDES = {"plain": ("plain", 0), "AdamW": ("xpud", 0), "AdamW, fused": ("xpud", 1)}  # name: process, model


def completed_commands() -> int:
    """Of all sessions of the daemon."""
    answer = subprocess.run([f"{os.environ['XPUD_BENCH_BINARIES']}/xpuctl", "-o", "json", "ps"], check=True, capture_output=True, text=True).stdout
    return sum(session["commands_completed"] for session in json.loads(answer)["sessions"])


def opened(process: workers.Child, *words: str) -> list[float]:
    process.send("open", *words)
    return process.expect("opened", 120)["losses"]


def check(losses: list[list[float]]) -> None:
    for values in zip(*losses, strict=True):
        assert max(values) - min(values) <= 0.05 * max(values), f"the losses differ: {losses}"


def commands_of_step(process: workers.Child) -> int:
    before = completed_commands()
    workers.asked(process, "step", 1)
    return completed_commands() - before


def measure(name: str, processes: dict[str, workers.Child]) -> None:
    title = models.TRAINED[name].name
    check([opened(processes["plain"], name), opened(processes["xpud"], name), opened(processes["xpud"], name, "fused")])
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    rows.begin_canary()
    for _ in range(TURNS):
        rows.canary()
        for side, (process, index) in SIDES.items():
            processes[process].send("use", index)
            times[side] += workers.asked(processes[process], "step", STEPS)
    plain, *ours = (statistics.median(values) * 1e3 for values in times.values())
    for side, milliseconds in zip(list(SIDES)[1:], ours, strict=True):
        rows.emit(f"step of {title}, {side}", milliseconds, "ms", sides.PLAIN_NAME, plain, sides.target(TARGETS[name]))
    for process in processes.values():
        process.send("close")
        opened(process, name)
    if sides.ON_GPU:
        plain, xpud = (workers.asked(processes[side], "peak") / 2**20 for side in ("plain", "xpud"))
        rows.emit(f"peak memory of {title}", xpud, "MiB", sides.PLAIN_NAME, plain, "ratio <= 1.05")
    commands = commands_of_step(processes["xpud"])
    rows.emit(f"commands in a step of {title}", commands, "commands", target=sides.target("value <= 2500") if name == "bert" else "")
    for process in processes.values():
        process.send("close")


def main() -> None:
    processes = {side: workers.start(side, side, program="trainer.py") for side in ("plain", "xpud")}
    for process in processes.values():
        process.expect("ready")
    for name in models.TRAINED:
        measure(name, processes)
    for process in processes.values():
        process.close()


if __name__ == "__main__":
    main()
