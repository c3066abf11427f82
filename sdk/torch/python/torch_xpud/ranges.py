"""Ranges that a program names, as torch.cuda.nvtx has them: torch.profiler and xpuctl's traces show them."""

import contextlib
import threading

import torch

from . import _C

_open = threading.local()  # the ranges of this thread, the innermost last


def range_push(name):
    """Begins a range. Returns how many ranges of this thread it is in."""
    ranges = vars(_open).setdefault("ranges", [])
    recorded = torch.autograd.profiler.record_function(str(name))
    ranges.append((recorded, _C.push_range(str(name))))
    recorded.__enter__()
    return len(ranges) - 1


def range_pop():
    """Ends the innermost range of this thread. Returns how many it was in. Raises RuntimeError if there is none."""
    ranges = vars(_open).setdefault("ranges", [])
    if not ranges:
        raise RuntimeError("range_pop() without a range_push() in this thread")
    recorded, place = ranges.pop()
    recorded.__exit__(None, None, None)
    if place is not None:
        _C.pop_range(*place)
    return len(ranges)


@contextlib.contextmanager
def range(name, *arguments, **values):  # noqa: A001  as in torch.cuda.nvtx
    """Makes a `with` block a range. `arguments` and `values` are put into the name, as str.format does."""
    range_push(name.format(*arguments, **values) if arguments or values else name)
    try:
        yield
    finally:
        range_pop()


def mark(name):
    """Marks a moment."""
    range_push(name)
    range_pop()
