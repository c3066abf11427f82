"""What torch.compile gives on xpud, beside our own eager mode and PyTorch's Inductor on the plain device: whole models, chains of operators that become one
kernel each."""

import copy
import math
import os
import statistics
from collections.abc import Callable

import models
import rows
import torch
import torch.nn.functional as F
from models import Workload

PLAIN = os.environ["XPUD_BENCH_PLAIN"]  # plain PyTorch's name of the daemon's device
PAUSE = 0.02 if PLAIN == "cpu" else 0  # OpenMP's threads spin for some milliseconds after plain PyTorch's turn
THEIRS = "Inductor's C++" if PLAIN == "cpu" else "Inductor's Triton"


def synchronize(device: str) -> None:
    getattr(torch, device).synchronize()


def geomean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def inference(workload: Workload, dtype: torch.dtype, turns: int, plain: bool) -> tuple[float, float | None]:
    """Reports a compiled forward over our eager one, and over Inductor's if `plain`. Returns both ratios."""
    torch.manual_seed(0)
    host = workload.build().eval().to(dtype)
    inputs = {name: value.to(dtype) if value.is_floating_point() else value for name, value in workload.inputs().items()}

    def work(device: str, compiles: bool) -> Callable[[], torch.Tensor]:
        model = copy.deepcopy(host).to(device)
        moved = {name: value.to(device) for name, value in inputs.items()}
        called = torch.compile(model) if compiles else model

        def forward() -> torch.Tensor:
            with torch.inference_mode():
                result = called(**moved)[0]
                synchronize(device)
                return result
        return forward

    works = {"eager": work("xpud", False), "compiled": work("xpud", True)}
    if plain:
        works["theirs"] = work(PLAIN, True)
    results = {name: each().float().cpu() for name, each in works.items()}
    scale = results["eager"].abs().max().item()
    difference = (results["compiled"] - results["eager"]).abs().max().item() / scale
    limit = 1e-3 if dtype == torch.float32 else 0.1
    assert difference < limit, f"{workload.name}, {dtype}: the compiled model's results differ by {difference} of the largest"
    for each in works.values():
        each()
    times = rows.interleaved(works, turns, pause=PAUSE)
    torch._dynamo.reset()
    name = f"{workload.name}, inference, {str(dtype).removeprefix('torch.')}"
    rows.emit(name, times["compiled"] * 1e3, "ms", "our eager", times["eager"] * 1e3, target="ratio <= 1.02" if PLAIN == "cpu" else "")
    if not plain:
        return times["compiled"] / times["eager"], None
    rows.emit(name, times["compiled"] * 1e3, "ms", THEIRS, times["theirs"] * 1e3, target="ratio <= 1.2")
    return times["compiled"] / times["eager"], times["compiled"] / times["theirs"]


# ---- chains

Inputs = list[torch.Tensor]


def _matrix(count: int, dtype: torch.dtype, width: int = 1024) -> torch.Tensor:
    return torch.randn(max(count // width, 1), width).to(dtype)


def _rotate(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat((-right, left), -1)


def _rms_norm_and_rotary(x, weight, cos, sin):
    x = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight
    return x * cos + _rotate(x) * sin


def _masked_softmax(x, mask):
    return torch.softmax(x.masked_fill(mask, float("-inf")), -1)


def _layer_norm_and_residual(x, y, weight, bias):
    return F.layer_norm(x + y, (x.shape[-1],), weight, bias)


def chains(count: int, dtype: torch.dtype) -> dict[str, tuple[Callable, Inputs]]:
    """Chains of operators over about `count` elements, with their inputs on the host. Each becomes one kernel."""
    x, y, z, u = (_matrix(count, dtype) for _ in range(4))
    width = x.shape[1]
    weight, bias = torch.randn(width).to(dtype), torch.randn(width).to(dtype)
    labels = torch.randint(0, width, (x.shape[0],))
    rows_of = torch.randint(0, x.shape[0], (x.shape[0],))
    side = 1 << (int(math.log2(count)) // 2)
    square, other = torch.randn(side, count // side).to(dtype), torch.randn(count // side, side).to(dtype)
    return {
        "gelu(a b + c) d": (lambda a, b, c, d: F.gelu(a * b + c) * d, [x, y, z, u]),
        "silu((a + bias)) b": (lambda a, bias, b: F.silu(a + bias) * b, [x, bias, y]),
        "layer norm of a residual": (_layer_norm_and_residual, [x, y, weight, bias]),
        "RMS norm and rotary": (_rms_norm_and_rotary, [x, weight, weight.clone(), bias]),
        "softmax with a mask": (_masked_softmax, [x, torch.rand(x.shape) < 0.3]),
        "cross entropy": (lambda a, t: F.cross_entropy(a.float(), t, reduction="none"), [x, labels]),
        "sums over columns": (lambda a, b: (a * b).sum(0), [x, y]),
        "transposed add": (lambda a, b: a.t() + b, [square, other]),
        "gather and add": (lambda a, i, b: a[i] + b, [x, rows_of, y]),
        "clamp, scale and round": (lambda a, b: torch.round(torch.clamp(a * 3, -4, 4)) * 0.25 + b, [x, y]),
        "sum of squares of rows": (lambda a, b: (a - b).float().square().sum(-1), [x, y]),
        "tanh(a) sigmoid(b) + c": (lambda a, b, c: torch.tanh(a) * torch.sigmoid(b) + c, [x, y, z]),
    }


def chain(name: str, function: Callable, inputs: Inputs, label: str, turns: int, calls: int) -> float:
    """Reports a chain over Inductor's kernel, `calls` times in a row. Returns the ratio."""
    def work(device: str) -> Callable[[], torch.Tensor]:
        compiled, moved = torch.compile(function, dynamic=False), [each.to(device) for each in inputs]

        def run() -> torch.Tensor:
            for _ in range(calls):
                result = compiled(*moved)
            synchronize(device)
            return result
        return run

    works = {"ours": work("xpud"), "theirs": work(PLAIN)}
    ours, theirs = (each().float().cpu() for each in works.values())
    torch.testing.assert_close(ours, theirs, rtol=0.05 if inputs[0].dtype == torch.bfloat16 else 1e-3, atol=0.1 if inputs[0].dtype == torch.bfloat16 else 1e-3)
    for each in works.values():
        each()
    times = rows.interleaved(works, turns, pause=PAUSE)
    torch._dynamo.reset()
    rows.emit(f"{name}, {label}", times["ours"] / calls * 1e3, "ms", THEIRS, times["theirs"] / calls * 1e3, target="ratio <= 1.3")
    return times["ours"] / times["theirs"]


def all_chains(turns: int, target: float) -> None:
    ratios = []
    sizes = {"4 KiB": 4 << 10} if rows.SMOKE else {"256 KiB": 256 << 10, "64 MiB": 64 << 20}
    for size, amount in sizes.items():
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            label = f"{size}, {str(dtype).removeprefix('torch.')}"
            for name, (function, inputs) in chains(amount // dtype.itemsize, dtype).items():
                ratios.append(chain(name, function, inputs, label, turns, 20 if amount < 1 << 20 else 1))
    rows.emit("chains, geometric mean of the ratios", geomean(ratios), "x", THEIRS, 1.0, target=f"ratio <= {target}")
