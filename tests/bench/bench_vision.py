"""Convolutions of ResNet-50 and MobileNetV2 (forward, and both gradients), attention in training, and whole models, beside plain PyTorch on the same cores.
In float32, and in bfloat16 where the processor multiplies it."""

import itertools
import math
import os
import statistics
import sys
from collections.abc import Callable

import rows
import torch
import torch.nn.functional as F

os.environ["XPUD_BENCH_PLAIN"] = "cpu"
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu"))
import models  # noqa: E402

BATCH = 4
CALLS = 4  # of a convolution before a wait
# input channels, output channels, side, kernel, stride, groups
RESNET = [(3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1), (256, 64, 56, 1, 1, 1), (256, 128, 56, 1, 1, 1),
          (128, 128, 56, 3, 2, 1), (256, 512, 56, 1, 2, 1), (128, 512, 28, 1, 1, 1), (512, 128, 28, 1, 1, 1), (128, 128, 28, 3, 1, 1), (256, 256, 28, 3, 2, 1),
          (512, 1024, 28, 1, 2, 1), (256, 1024, 14, 1, 1, 1), (256, 256, 14, 3, 1, 1), (512, 512, 14, 3, 2, 1), (512, 2048, 7, 1, 1, 1), (512, 512, 7, 3, 1, 1)]
MOBILENET = [(3, 32, 224, 3, 2, 1), (32, 32, 112, 3, 1, 32), (32, 16, 112, 1, 1, 1), (96, 96, 112, 3, 2, 96), (96, 24, 56, 1, 1, 1), (144, 144, 56, 3, 1, 144),
             (144, 144, 56, 3, 2, 144), (192, 192, 28, 3, 1, 192), (192, 64, 14, 1, 1, 1), (384, 384, 14, 3, 1, 384), (576, 576, 14, 3, 2, 576),
             (960, 960, 7, 3, 1, 960), (960, 160, 7, 1, 1, 1), (320, 1280, 7, 1, 1, 1)]
TYPES = [torch.float32] + ([torch.bfloat16] if torch.cpu._is_avx512_bf16_supported() else [])
FORMATS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


def ratio(work: dict[str, Callable[[], object]]) -> float:
    """Of the medians: xpud's time over plain PyTorch's."""
    for each in work.values():
        each()
        each()
    times = rows.interleaved(work, 2 if rows.SMOKE else 9, pause=0.01)  # OpenMP's threads spin for 5 ms after plain PyTorch's turn
    return times["xpud"] / times["cpu"]


def convolution(shape, dtype: torch.dtype, layout: torch.memory_format, backward: bool) -> float:
    channels, outputs, side, kernel, stride, groups = shape
    value = torch.randn(BATCH, channels, side, side, dtype=dtype).contiguous(memory_format=layout)
    weight = torch.randn(outputs, channels // groups, kernel, kernel, dtype=dtype).contiguous(memory_format=layout)
    geometry = ([stride] * 2, [kernel // 2] * 2, [1] * 2)

    def work(device: str):
        x, w = value.to(device), weight.to(device)
        gradient = torch.ones_like(F.conv2d(x, w, None, *geometry, groups))

        def run():
            for _ in range(CALLS):
                if backward:
                    torch.ops.aten.convolution_backward(gradient, x, w, None, *geometry, False, [0, 0], groups, [True, True, False])
                else:
                    F.conv2d(x, w, None, *geometry, groups)
            synchronize(device)
        return run

    return ratio({device: work(device) for device in ("cpu", "xpud")})


def attention(shape, dtype: torch.dtype) -> float:
    operands = [torch.randn(shape, dtype=dtype) for _ in range(4)]

    def work(device: str):
        *inputs, gradient = [operand.to(device) for operand in operands]
        for each in inputs:
            each.requires_grad_()

        def run():
            F.scaled_dot_product_attention(*inputs, is_causal=True).backward(gradient)
            synchronize(device)
        return run

    return ratio({device: work(device) for device in ("cpu", "xpud")})


def model(workload: models.Workload, dtype: torch.dtype, trains: bool) -> float:
    torch.manual_seed(0)
    host, inputs = workload.build(), workload.inputs()
    state = host.state_dict()

    def work(device: str):
        mine = workload.build()
        mine.load_state_dict(state)
        mine = mine.to(device).train() if trains else mine.to(device, dtype).eval()
        placed = {name: value.to(device, dtype if value.is_floating_point() and not trains else value.dtype) for name, value in inputs.items()}
        optimizer = torch.optim.AdamW(mine.parameters(), lr=1e-4) if trains else None

        def infer():
            with torch.inference_mode():
                mine(**placed)
            synchronize(device)

        def step():
            with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
                loss = mine(**placed).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            synchronize(device)
        return step if trains else infer

    return ratio({device: work(device) for device in ("cpu", "xpud")})


def synchronize(device: str) -> None:
    getattr(torch, device).synchronize()


def emit(name: str, ratios: list[float], geomean: str, worst: str = "") -> None:
    rows.emit(f"{name}: geometric mean", math.exp(statistics.mean(map(math.log, ratios))), "of plain's time", target=geomean)
    if worst:
        rows.emit(f"{name}: worst", max(ratios), "of plain's time", target=worst)


def main() -> None:
    shapes = {"ResNet-50": RESNET, "MobileNetV2": MOBILENET}
    for dtype in TYPES:
        kind = str(dtype).removeprefix("torch.")
        for (network, convolutions), (layout, memory_format) in itertools.product(shapes.items(), FORMATS.items()):
            for way, backward in (("forward", False), ("backward", True)):
                ratios = [convolution(shape, dtype, memory_format, backward) for shape in (convolutions[:1] if rows.SMOKE else convolutions)]
                emit(f"convolutions of {network}, {way}, {layout}, {kind}", ratios, "value <= 1.0", "value <= 1.3")
        cases = [(4, 12, 128, 64), (1, 16, 1024, 64), (2, 8, 512, 128)]
        emit(f"attention, forward and backward, {kind}", [attention(shape, dtype) for shape in cases[:1 if rows.SMOKE else None]], "value <= 1.0", "value <= 1.3")
        inferred = [models.resnet(BATCH, False), models.vit(BATCH, False), models.bert(2, 64)]
        emit(f"inference of ResNet-50, ViT-B/16 and BERT-base, {kind}", [model(each, dtype, trains=False) for each in inferred],
             "value <= 0.9" if dtype == torch.float32 else "value <= 0.8")
        trained = [models.resnet(BATCH, True), models.vit(2, True), models.bert(2, 64)]
        emit(f"a training step of ResNet-50, ViT-B/16 and BERT-base, {kind}", [model(each, dtype, trains=True) for each in trained], "value <= 1.0")


if __name__ == "__main__":
    main()
