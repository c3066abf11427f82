"""A process that trains models on one device on command: `--device plain|xpud`, commands on its input.

open MODEL [fused]   puts a model of models.TRAINED or TRAINED_ON_CPU and AdamW on the device and warms it up; reports `opened`, with the losses of three steps
window AT LENGTH     steps from the time AT for LENGTH seconds (of time.perf_counter); reports `done`, with the seconds of each
step COUNT           of the model opened last or named by `use`; reports `done`, with the seconds of each
use INDEX            chooses the INDEX-th opened model
peak                 reports `done`, with the most bytes allocated during a step
close                drops all models
"""

import argparse
import time

import models
import rows
import torch
from sides import PLAIN, synchronize

import channel


class Training:
    """A model with its optimizer on a device. A call is a step that waits for its end."""

    def __init__(self, workload: models.Workload, device: str, **options):
        torch.manual_seed(0)
        self._model = workload.build().to(device).train()
        self._inputs = {name: value.to(device) for name, value in workload.inputs().items()}
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4, **options)
        self._device = device

    def __call__(self) -> torch.Tensor:
        with torch.autocast(self._device, dtype=torch.bfloat16):
            loss = self._model(**self._inputs).loss
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        synchronize(self._device)
        return loss


class Work:
    def __init__(self, device: str):
        self._device = device
        self._all: list[Training] = []
        self._chosen: Training | None = None

    def open(self, model: str, how: str = "") -> None:
        self._chosen = Training((models.TRAINED | models.TRAINED_ON_CPU)[model], self._device, **({"fused": True} if how == "fused" else {}))
        self._all.append(self._chosen)
        channel.emit("opened", losses=[self._chosen().item() for _ in range(3)])

    def use(self, index: str) -> None:
        self._chosen = self._all[int(index)]

    def window(self, at: str, length: str) -> None:
        times = []
        end = float(at) + float(length)
        time.sleep(max(0.0, float(at) - time.perf_counter()))
        while time.perf_counter() < end:
            times.append(rows.seconds(self._chosen))
        channel.emit("done", seconds=times)

    def step(self, count: str) -> None:
        channel.emit("done", seconds=[rows.seconds(self._chosen) for _ in range(int(count))])

    def peak(self) -> None:
        memory = getattr(torch, self._device)
        memory.reset_peak_memory_stats()
        self._chosen()
        channel.emit("done", seconds=memory.max_memory_allocated())

    def close(self) -> None:
        self._all.clear()
        self._chosen = None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["plain", "xpud"], required=True)
    work = Work({"plain": PLAIN}.get(parser.parse_args().device, "xpud"))
    channel.emit("ready")
    while words := channel.await_command():
        getattr(work, words[0])(*words[1:])


if __name__ == "__main__":
    main()
