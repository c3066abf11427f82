"""What is changed in PyTorch. Each change is for xpud alone.

- `lowering._make_reduction_inner` gives argmax and argmin their positions in the program's order. Inductor does so for its own back ends; for others
  the position is that of the loops, which it reorders.
- `lowering.is_gpu` also knows xpud. `make_pointwise` asks it for the device of a loop over a 0-dim CPU tensor and a tensor on the device. Nothing
  else in that module does. Inductor's `GPU_TYPES` stays as it is.
- torch_xpud.compile patches the wrapper of torch.compile and the backend "inductor", which send graphs with xpud tensors here.
"""

import functools

import sympy
import torch
from torch._inductor import lowering
from torch._inductor.virtualized import ops


def _with_position(loader, extents):
    def load(index, reduction_index):
        value = loader(index, reduction_index)
        if isinstance(value, tuple):
            return value
        position = sympy.S.Zero
        for at, extent in zip(reduction_index, extents):
            position = position * extent + sympy.expand(at)
        return value, ops.index_expr(position, torch.int64)

    return load


def _keep_positions(make_reduction_inner):
    @functools.wraps(make_reduction_inner)
    def make(x, **kwargs):
        made = make_reduction_inner(x, **kwargs)
        if (kwargs.get("reduction_type") or "").startswith("arg") and made["device"].type == "xpud" and len(made["reduction_ranges"]) > 1:
            made["inner_fn"] = _with_position(made["inner_fn"], made["reduction_ranges"])
        return made

    return make


@functools.cache
def install():
    lowering._make_reduction_inner = _keep_positions(lowering._make_reduction_inner)
    original = lowering.is_gpu
    lowering.is_gpu = lambda device: device == "xpud" or original(device)
