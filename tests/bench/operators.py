"""Operators that order, count and scatter, with their operands. `order` here and in gpu/ measures them beside plain PyTorch."""

import dataclasses
from collections.abc import Callable

import rows
import torch
import torch.nn.functional as F

Tensors = tuple[torch.Tensor, ...]
PAUSE = 0.02  # OpenMP's threads spin for some milliseconds after plain PyTorch's turn


@dataclasses.dataclass(frozen=True)
class Operator:
    name: str
    operands: Callable[[], Tensors]  # on the host
    call: Callable[..., torch.Tensor]  # of the operands; its result does not depend on the order of equal elements


def size(full: int) -> int:
    return max(full // 100, 64) if rows.SMOKE else full


def long_lines() -> Tensors:
    return (torch.randn(32, size(50_000)),)


def line(length: int) -> Callable[[], Tensors]:
    return lambda: (torch.randn(size(length)),)


def integers() -> Tensors:
    return (torch.randint(size(100_000), (size(1_000_000),)),)


def scattered(count: int, columns: int) -> Callable[[], Tensors]:
    """Returns what makes a target of 30,000 rows, the row of each source, and the sources."""
    shape = (columns,) if columns > 1 else ()

    def operands() -> Tensors:
        return torch.zeros(size(30_000), *shape), torch.randint(size(30_000), (size(count),)), torch.randn(size(count), *shape)
    return operands


def tokens() -> Tensors:
    """The gradient of 32 x 128 vectors, and the rows of a table of 30,000 that they came from."""
    return torch.randn(size(4096), 768), torch.randint(size(30_000), (size(4096),))


def bags() -> Tensors:
    """A table, and 2,000 bags of 20 of its rows."""
    count = size(40_000) // 20
    return torch.randn(size(30_000), 64), torch.randint(size(30_000), (20 * count,)), torch.arange(count) * 20


def table_gradient(gradient: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.embedding_dense_backward(gradient, index, size(30_000), -1, False)


SORT = Operator("sort, 32 x 50,000", long_lines, lambda x: x.sort(1)[0])
TOPK = Operator("topk(50), 32 x 50,000", long_lines, lambda x: x.topk(50, 1)[0])
CUMSUM = Operator("cumsum, 32 x 50,000", long_lines, lambda x: x.cumsum(1))
SCATTER_ADD = Operator("scatter_add, 10^6", scattered(1_000_000, 1), lambda out, index, source: out.scatter_add(0, index, source))
INDEX_ADD = Operator("index_add, 200,000 x 64", scattered(200_000, 64), lambda out, index, source: out.index_add(0, index, source))
INDEX_PUT = Operator("index_put, accumulated, 200,000 x 64", scattered(200_000, 64),
                     lambda out, index, source: out.index_put((index,), source, accumulate=True))
EMBEDDING_BACKWARD = Operator("embedding backward, 4,096 x 768", tokens, table_gradient)
EMBEDDING_BAG = Operator("embedding_bag, 2,000 x 20 x 64", bags, lambda table, index, offsets: F.embedding_bag(index, table, offsets, mode="sum"))
UNIQUE = Operator("unique, 10^6", integers, lambda x: x.unique())


def measure(operator: Operator, plain: str, baseline: str, calls: int, turns: int, target: str) -> float:
    """Reports xpud's time of one call, and returns its ratio to that of the device `plain`. A turn is `calls` calls and the wait for the last."""
    torch.manual_seed(0)
    operands = operator.operands()

    def work(device: str) -> Callable[[], torch.Tensor]:
        placed = [operand.to(device) for operand in operands]

        def run() -> torch.Tensor:
            for _ in range(calls):
                result = operator.call(*placed)
            getattr(torch, device).synchronize()
            return result
        return run

    works = {device: work(device) for device in (plain, "xpud")}
    expected, actual = (each().cpu() for each in works.values())
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-2, msg=lambda text: f"{operator.name}: {text}")
    for each in works.values():
        each()
    times = rows.interleaved(works, 2 if rows.SMOKE else turns, pause=PAUSE)
    rows.emit(operator.name, times["xpud"] / calls * 1e6, "us", baseline, times[plain] / calls * 1e6, target)
    return times["xpud"] / times[plain]
