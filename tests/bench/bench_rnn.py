"""Recurrent networks beside plain PyTorch on the same cores: two layers of 512, 32 sequences of 64 steps, inference and training, in float32 and, where the
processor multiplies it, in bfloat16."""

import copy
import os

import rows
import torch
from torch import nn

STEPS, BATCH, SIZE, LAYERS = (4, 2, 32, 2) if rows.SMOKE else (64, 32, 512, 2)
TYPES = [torch.float32] + ([torch.bfloat16] if torch.cpu._is_avx512_bf16_supported() else [])
PAUSE = 0.02  # OpenMP's threads spin for some milliseconds after plain PyTorch's turn


def measure(kind: type[nn.RNNBase], dtype: torch.dtype, trains: bool) -> None:
    torch.manual_seed(0)
    host = kind(SIZE, SIZE, LAYERS).to(dtype)
    data = torch.randn(STEPS, BATCH, SIZE, dtype=dtype)

    def work(device: str):
        module, x = copy.deepcopy(host).to(device), data.to(device)

        def infer():
            with torch.inference_mode():
                module(x)
            getattr(torch, device).synchronize()

        def step():
            module.zero_grad()
            module(x)[0].square().mean().backward()
            getattr(torch, device).synchronize()
        return step if trains else infer

    works = {device: work(device) for device in ("cpu", "xpud")}
    for each in works.values():
        each()
        each()
    times = rows.interleaved(works, 2 if rows.SMOKE else 11, pause=PAUSE)
    way = "forward and backward" if trains else "inference"
    rows.emit(f"{kind.__name__} {LAYERS} x {SIZE}, b{BATCH} x {STEPS}, {way}, {str(dtype).removeprefix('torch.')}", times["xpud"] * 1e3, "ms",
              "plain PyTorch, CPU", times["cpu"] * 1e3, target="ratio <= 1.0")


def main() -> None:
    os.environ["XPUD_FALLBACK"] = "error"
    for dtype in TYPES:
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            for trains in (False, True):
                measure(kind, dtype, trains)


if __name__ == "__main__":
    main()
