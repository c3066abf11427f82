"""A training step (forward, backward, AdamW) in bf16 autocast, beside plain PyTorch with AdamW's defaults; its peak memory and its commands."""

import copy
import functools
import json
import os
import subprocess

import models
import rows
import sides
import torch

TURNS = 3 if rows.SMOKE else 15
TARGETS = {"BERT": "ratio <= 0.7", "GPT": "ratio <= 0.8", "ViT": "ratio <= 0.8", "ResNet": "ratio <= 0.9"}


class Training:
    """A model with its optimizer on a device. A call is a step that waits for its end."""

    def __init__(self, workload: models.Workload, host_model: torch.nn.Module, inputs: models.Inputs, device: str, **options):
        self._model = copy.deepcopy(host_model).to(device).train()
        self._inputs = {name: value.to(device) for name, value in inputs.items()}
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4, **options)
        self._device = device

    def __call__(self) -> float:
        with torch.autocast(self._device, dtype=torch.bfloat16):
            loss = self._model(**self._inputs).loss
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        sides.synchronize(self._device)
        return loss

    def peak(self) -> int:
        memory = getattr(torch, self._device)
        self()
        memory.reset_peak_memory_stats()
        self()
        return memory.max_memory_allocated()


def completed_commands() -> int:
    """Of all sessions of the daemon."""
    answer = subprocess.run([f"{os.environ['XPUD_BENCH_BINARIES']}/xpuctl", "-o", "json", "ps"],
                            check=True, capture_output=True, text=True).stdout
    return sum(session["commands_completed"] for session in json.loads(answer)["sessions"])


def commands_of(step: Training) -> int:
    step()
    before = completed_commands()
    step()
    return completed_commands() - before


def measure(workload: models.Workload) -> None:
    torch.manual_seed(0)
    model, inputs = workload.build(), workload.inputs()
    make = functools.partial(Training, workload, model, inputs)
    steps = {"plain": make(sides.PLAIN), "default": make("xpud"), "fused": make("xpud", fused=True)}
    losses = {name: [step().item() for _ in range(3)] for name, step in steps.items()}
    first, third = ([values[i] for values in losses.values()] for i in (0, 2))
    assert max(first) - min(first) <= 0.02 * max(first) and max(third) - min(third) <= 0.05 * max(third), losses
    times = rows.interleaved(steps, TURNS)
    target = next(limit for name, limit in TARGETS.items() if workload.name.startswith(name))
    for name, how in (("default", "AdamW"), ("fused", "AdamW, fused")):
        rows.emit(f"step of {workload.name}, {how}", times[name] * 1e3, "ms", sides.PLAIN_NAME, times["plain"] * 1e3, sides.target(target))
    if sides.ON_GPU:
        del steps["fused"]
        peaks = {name: step.peak() / 2**20 for name, step in steps.items()}
        rows.emit(f"peak memory of {workload.name}", peaks["default"], "MiB", sides.PLAIN_NAME, peaks["plain"], "ratio <= 1.05")
    commands = commands_of(steps["default"])
    rows.emit(f"commands in a step of {workload.name}", commands, "commands", target=sides.target("value <= 2500") if "BERT" in workload.name else "")


def main() -> None:
    for workload in (models.bert(16, 128), models.gpt2(4, 512), models.vit(32, labelled=True), models.resnet(32, labelled=True)):
        measure(workload)


if __name__ == "__main__":
    main()
