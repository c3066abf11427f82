"""A process that computes on one device on command: `--device plain|xpud`, commands on its input.

open [DTYPE BATCH TOKENS [FORWARDS]]   puts the encoder on the device and warms it up; reports `opened`, with the bytes of its tensors
forward COUNT   reports `done`, with the seconds of each
add COUNT       a + b of 16x16, COUNT times without a wait; reports `done`, with the seconds of all
window AT LENGTH   forwards from the time AT for LENGTH seconds (of time.perf_counter, which all processes share); reports `done`
paced AT LENGTH RATE   the same with RATE requests a second; their times count from when they were due. Those that have not begun after LENGTH seconds are
                       dropped; reports how long they had waited, too
tiny AT LENGTH         a + b of 16x16 and its wait, with pauses of 1 ms; reports `done`, with the seconds of each
products AT LENGTH SIZE DTYPE   products of SIZE x SIZE without a pause, two of them issued ahead; reports `done`, with the seconds of each
serve MODEL            puts a model of models.SERVED on the device in bf16, in place of the encoder; reports `opened`
"""

import argparse
import time

import models
import rows
import torch
from encoder import TOKENS, Encoder
from sides import PLAIN, synchronize
from tiny_op import TinyOp

import channel


class Served:
    """A model for inference and a batch on a device. A call is a forward that waits for its end."""

    def __init__(self, workload: models.Workload, device: str):
        torch.manual_seed(0)
        self._model = workload.build().to(device, torch.bfloat16).eval()
        self._inputs = {name: value.to(device) for name, value in workload.inputs().items()}
        self._device = device

    def __call__(self) -> None:
        with torch.inference_mode():
            self._model(**self._inputs)
        synchronize(self._device)


class Work:
    def __init__(self, device: str):
        self._device = device
        self._encoder: Encoder | Served | None = None
        self._tiny_op: TinyOp | None = None

    def open(self, dtype: str = "bfloat16", batch: str = "1", tokens: str = str(TOKENS), warm: str = "20") -> None:
        self._encoder = Encoder(self._device, getattr(torch, dtype), int(batch), int(tokens))
        for _ in range(int(warm)):
            self._encoder()
        channel.emit("opened", tensor_bytes=self._encoder.tensor_bytes())

    def forward(self, count: str) -> None:
        channel.emit("done", seconds=[rows.seconds(self._encoder) for _ in range(int(count))])

    def add(self, count: str) -> None:
        self._tiny_op = self._tiny_op or TinyOp(self._device)
        self._tiny_op.issue(100)
        synchronize(self._device)
        channel.emit("done", seconds=rows.seconds(lambda: self._tiny_op.issue(int(count))))
        synchronize(self._device)

    def window(self, at: str, length: str) -> None:
        end, times = float(at) + float(length), []
        time.sleep(max(0.0, float(at) - time.perf_counter()))
        while (began := time.perf_counter()) < end:
            self._encoder()
            times.append(time.perf_counter() - began)
        channel.emit("done", seconds=times)

    def paced(self, at: str, length: str, rate: str) -> None:
        times, dropped = [], []
        end = float(at) + float(length)
        for request in range(int(float(length) * float(rate))):
            due = float(at) + request / float(rate)
            time.sleep(max(0.0, due - time.perf_counter()))
            if time.perf_counter() >= end:
                dropped.append(end - due)
                continue
            self._encoder()
            times.append(time.perf_counter() - due)
        channel.emit("done", seconds=times, dropped=dropped)

    def tiny(self, at: str, length: str) -> None:
        self._tiny_op = self._tiny_op or TinyOp(self._device)
        end, times = float(at) + float(length), []
        time.sleep(max(0.0, float(at) - time.perf_counter()))
        while (began := time.perf_counter()) < end:
            self._tiny_op.issue(1)
            synchronize(self._device)
            times.append(time.perf_counter() - began)
            time.sleep(1e-3)
        channel.emit("done", seconds=times)

    def serve(self, model: str) -> None:
        self._encoder = Served(models.SERVED[model], self._device)
        for _ in range(3):
            self._encoder()
        channel.emit("opened")

    def products(self, at: str, length: str, size: str, dtype: str) -> None:
        a = torch.ones(int(size), int(size), dtype=getattr(torch, dtype), device=self._device)
        issued, times = [], []
        end = float(at) + float(length)
        time.sleep(max(0.0, float(at) - time.perf_counter()))
        began = time.perf_counter()
        while began < end:
            issued.append(a @ a)
            if len(issued) > 2:
                issued.pop(0)[0, 0].item()
                times.append(time.perf_counter() - began)
                began = time.perf_counter()
        synchronize(self._device)
        channel.emit("done", seconds=times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["plain", "xpud"], required=True)
    work = Work({"plain": PLAIN}.get(parser.parse_args().device, "xpud"))
    channel.emit("ready")
    while words := channel.await_command():
        getattr(work, words[0])(*words[1:])


if __name__ == "__main__":
    main()
