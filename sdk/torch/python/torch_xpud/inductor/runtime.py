"""What compiled code calls. It does not import Inductor, so that a cached graph is loaded quickly."""

import contextlib

import torch

from .. import _C


def loop_kernel(kernel, name, scalar_types, device=None, sizes=(), elements=()):
    """Returns the function of a loop kernel: (outputs, inputs, sizes) -> None. `device`: where it is called first, with these sizes and, of each
    operand, so many elements from its first to its last one. The daemon compiles it at once then, if this process uses the device."""
    made = _C.LoopKernel(kernel, name, scalar_types)
    if device is not None:
        with contextlib.suppress(RuntimeError):  # the call raises it
            made.prepare(device, sizes, elements)
    return made


def with_layout(value, size, stride, operator=""):
    """Returns `value`, or a copy of it with the given strides if it has others. Raises AssertionError if it has another size."""
    if not isinstance(value, torch.Tensor):
        return value
    if tuple(value.shape) != tuple(size):
        raise AssertionError(f"{operator}: the result has sizes {tuple(value.shape)}, {tuple(size)} were expected")
    if all(found == expected or length == 1 for found, expected, length in zip(value.stride(), stride, size)):
        return value
    copy = torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)
    copy.copy_(value)
    return copy
