"""What is changed in PyTorch. Each change is for xpud alone.

- `lowering._make_reduction_inner` gives argmax and argmin their positions in the program's order. Inductor does so for its own back ends; for others
  the position is that of the loops, which it reorders.
- `lowering.is_gpu` also knows xpud. `make_pointwise` asks it for the device of a loop over a 0-dim CPU tensor and a tensor on the device. Nothing
  else in that module does. Inductor's `GPU_TYPES` stays as it is.
- `ir.StorageBox.should_realize_on_reuse` keeps the results of costly functions that several loops use, such as the sines of rotary embeddings, which
  Inductor computes again in each loop.
- `linspace` of integers is not decomposed: rounding of its decomposition differs from that of all operators (-3.5 to 97 in 33 steps).
- torch_xpud.compile patches the wrapper of torch.compile and the backend "inductor", which send graphs with xpud tensors here.
"""

import functools

import sympy
import torch
from torch._inductor import decomposition, ir, lowering
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


# Each costs more than to write a result and read it again.
_COSTLY = frozenset(("cos", "sin", "tan", "cosh", "sinh", "acos", "asin", "atan", "atan2", "acosh", "asinh", "pow", "lgamma", "digamma", "erfinv"))


def _keep_costly(should_realize):
    @functools.wraps(should_realize)
    def should(box, users, **kwargs):
        loops = box.data
        is_costly = (users > 1 and isinstance(loops, (ir.Pointwise, ir.Reduction)) and loops.get_device().type == "xpud"
                     and not _COSTLY.isdisjoint(loops.inner_fn_opcount().used_ops))
        return is_costly or should_realize(box, users, **kwargs)

    return should


def _keep_integers(linspace):
    @functools.wraps(linspace)
    def decompose(start, end, steps, *, dtype=None, device=None, **options):
        if dtype is not None and not dtype.is_floating_point and not dtype.is_complex and device is not None and device.type == "xpud":
            return NotImplemented
        return linspace(start, end, steps, dtype=dtype, device=device, **options)

    return decompose


@functools.cache
def install():
    for table in (decomposition.decompositions, decomposition.fast_random_decomps()):
        table[torch.ops.aten.linspace.default] = _keep_integers(table[torch.ops.aten.linspace.default])
    lowering.make_fallback(torch.ops.aten.linspace.default, warn=False, override_decomp=True)
    lowering._make_reduction_inner = _keep_positions(lowering._make_reduction_inner)
    ir.StorageBox.should_realize_on_reuse = _keep_costly(ir.StorageBox.should_realize_on_reuse)
    original = lowering.is_gpu
    lowering.is_gpu = lambda device: device == "xpud" or original(device)
