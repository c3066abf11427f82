"""Tensors for the tests: operands on each device, layouts that samples do not have, and comparison with the CPU."""

import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = "xpud"


def is_tensor(value):
    return isinstance(value, torch.Tensor)


def leaves(tree):
    """Returns the tensors of a tree, in order."""
    return [leaf for leaf in tree_flatten(tree)[0] if is_tensor(leaf)]


# ---- operands


class Placement:
    """Copies operands to a device with their whole storages, which keeps strides, offsets and shared memory."""

    def __init__(self, device):
        self.device = torch.device(device)
        self.storages = {}

    def __call__(self, tree):
        return tree_map(self.leaf, tree)

    def leaf(self, value):
        if isinstance(value, torch.device):
            return self.device if value.type == "cpu" else value
        if isinstance(value, str) and value == "cpu":
            return str(self.device)
        return self.tensor(value) if is_tensor(value) else value

    def tensor(self, value):
        if value.is_meta:
            return value
        if value.layout != torch.strided or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return value.detach().clone().to(self.device).requires_grad_(value.requires_grad)
        with torch.no_grad():
            copy = torch.empty(0, dtype=value.dtype, device=self.device)
            copy.set_(self.storage(value), value.storage_offset(), value.size(), value.stride())
            copy = torch._conj(copy) if value.is_conj() else copy
            copy = torch._neg_view(copy) if value.is_neg() else copy
        return copy.detach().requires_grad_(value.requires_grad)

    def storage(self, value):
        source = value.untyped_storage()
        if source._cdata not in self.storages:
            raw = torch.empty(0, dtype=torch.uint8, device=value.device).set_(source)
            copy = raw.to(self.device, copy=True)
            self.storages[source._cdata] = (copy.untyped_storage(), source)
        return self.storages[source._cdata][0]


def placed(tree, device):
    return Placement(device)(tree)


# ---- layouts


def strided(value):
    """Returns the values as every second element of the last dimension of a larger tensor."""
    if value.dim() == 0:
        return value
    result = torch.zeros((*value.shape[:-1], 2 * value.shape[-1]), dtype=value.dtype)[..., ::2]
    return result.copy_(value)


def permuted(value):
    """Returns the values with dimensions in reverse order in memory."""
    order = tuple(reversed(range(value.dim())))
    return value.permute(order).clone(memory_format=torch.contiguous_format).permute(order)


def shifted(value):
    """Returns the values at an offset of three elements in the storage."""
    result = torch.zeros(value.numel() + 3, dtype=value.dtype)[3:].view(value.shape)
    return result.copy_(value)


def expanded(value):
    """Returns the first slice, repeated with stride 0."""
    if value.dim() == 0 or value.shape[0] < 2:
        return value
    return value.contiguous().clone().as_strided(value.shape, (0, *value.contiguous().stride()[1:]))


def channels_last(value):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return value.clone(memory_format=formats[value.dim()]) if value.dim() in formats else value


def conjugated(value):
    return torch._conj(torch.conj_physical(value)) if value.is_complex() else value


def negated(value):
    """Returns the same values with the negative bit set, as in x.imag of a conjugated tensor."""
    return torch._neg_view(torch.neg(value)) if value.is_floating_point() or value.is_complex() else value


def scalar(value):
    return value.reshape(-1)[0].clone() if value.numel() else value


LAYOUTS = {"strided": strided, "permuted": permuted, "shifted": shifted, "expanded": expanded, "channels_last": channels_last}
BITS = {"conjugated": conjugated, "negated": negated}


def relaid(tree, layout):
    """Returns the tree with each tensor in another layout, or None if no tensor changes."""
    changed = []

    def lay(value):
        if not is_tensor(value) or value.layout != torch.strided:
            return value
        with torch.no_grad():
            result = layout(value.detach())
        if signature(result) != signature(value):
            changed.append(result)
        return result.requires_grad_(value.requires_grad)

    result = tree_map(lay, tree)
    return result if changed else None


def signature(value):
    return value.shape, value.stride(), value.storage_offset(), value.is_conj(), value.is_neg()


# ---- comparison

# In addition to torch.testing's own, by type.
TOLERANCES = {torch.float32: (1e-4, 1e-4), torch.bfloat16: (1.6e-2, 1e-2), torch.float16: (2e-3, 2e-3), torch.complex64: (1e-4, 1e-4)}


class Tolerance:
    """rtol and atol by type: the larger of the op database's for the operator, and this device's or else torch.testing's."""

    def __init__(self, computed, allowed=None, gradient=False, composed=False):
        computed = computed if computed.is_floating_point or computed.is_complex else torch.float32  # the type of integers in float ops
        self.computed, self.allowed, self.gradient, self.composed = computed, allowed or {}, gradient, composed

    def of(self, dtype):
        """Returns the wider tolerance: a result's type may be wider than the type of the computation."""
        if dtype.is_floating_point or dtype.is_complex:
            return tuple(map(max, self.of_type(dtype), self.of_type(self.computed)))
        return self.of_type(dtype)

    def scaled(self, want):
        """Returns rtol and atol for one tensor. If many operators round to 16 bits in turn, small sums of large numbers have the error of the large ones."""
        rtol, atol = self.of(want.dtype)
        if self.composed and want.dtype in (torch.float16, torch.bfloat16) and want.numel():
            largest = want.abs().nan_to_num(0, 0, 0).max().item()
            return 4 * rtol, 4 * atol * max(largest, 1.0)
        return rtol, atol

    def of_type(self, dtype):
        rtol, atol = TOLERANCES.get(dtype) or torch.testing._comparison._DTYPE_PRECISIONS.get(dtype, (0.0, 0.0))
        if self.gradient and dtype in (torch.float32, torch.complex64):
            rtol, atol = max(rtol, 1e-3), max(atol, 1e-3)
        more = self.allowed.get(dtype)
        return (max(rtol, more.rtol), max(atol, more.atol)) if more else (rtol, atol)


def on_host(value):
    return value.detach().to("cpu")


def differences(got, want, tolerance, values=True):
    """Returns the differences of one tensor from the CPU's, as (kind, message) pairs. values: True; False if undefined; None if random."""
    if got.dtype != want.dtype:
        yield "dtype", f"{got.dtype}, not {want.dtype}"
        return
    if got.shape != want.shape:
        yield "shape", f"{tuple(got.shape)}, not {tuple(want.shape)}"
        return
    if got.layout != want.layout:
        yield "layout", f"{got.layout}, not {want.layout}"
        return
    if want.layout == torch.strided:
        if want.numel() > 1 and got.stride() != want.stride():
            yield "strides", f"{got.stride()}, not {want.stride()} for shape {tuple(want.shape)}"
        if (got.is_conj(), got.is_neg()) != (want.is_conj(), want.is_neg()):
            yield "bits", f"conj, neg are {got.is_conj()}, {got.is_neg()}, not {want.is_conj()}, {want.is_neg()}"
    if got.requires_grad != want.requires_grad:
        yield "requires_grad", f"{got.requires_grad}, not {want.requires_grad}"
    if values:
        message = value_difference(on_host(got), want.detach(), tolerance)
        if message:
            yield "values", message
    elif values is None and want.is_floating_point() and bool(want.isfinite().all()) and not bool(on_host(got).isfinite().all()):
        yield "values", "not finite"


def value_difference(got, want, tolerance):
    if want.dtype == torch.complex32:  # cannot be compared directly
        got, want = got.to(torch.complex64), want.to(torch.complex64)
    if want.layout == torch.strided and not want.is_quantized and torch.equal(got, want):
        return None
    rtol, atol = tolerance.scaled(want)
    try:
        assert_close(got.resolve_conj().resolve_neg(), want.resolve_conj().resolve_neg(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return " ".join(str(error).split())[:300] + sketch(got, want)
    return None


# ---- 16 bits: our result is accepted if it is as near to the float32 result as the CPU's

SIXTEEN_BITS = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def widened(tree, dtype):
    """Returns the tree with 16-bit tensors converted to float32."""

    def widen(value):
        if is_tensor(value) and value.dtype == dtype:
            return value.detach().float().requires_grad_(value.requires_grad)
        return torch.float32 if value is dtype else value

    return tree_map(widen, tree)


def is_as_near(got, want, reference, dtype):
    """Returns whether each tensor of `got` is as near to `reference` (the float32 result) as `want` is, or as `reference` rounded once."""
    pairs = list(zip(leaves(got), leaves(want), leaves(reference)))
    if not len(pairs) == len(leaves(got)) == len(leaves(reference)):
        return False
    return all(mine.shape == exact.shape and distance(mine, exact) <= allowance(theirs, exact, dtype) for mine, theirs, exact in pairs)


def distance(value, exact):
    value, exact = on_host(value).double(), on_host(exact).double()
    same = (value == exact) | (value.isnan() & exact.isnan())
    return torch.where(same, 0.0, value - exact).abs().nan_to_num(float("inf")).max().item() if value.numel() else 0.0


def allowance(theirs, exact, dtype):
    size = on_host(exact).double().abs().nan_to_num(0, 0, 0).max().item() if exact.numel() else 0.0
    return max(2 * distance(theirs, exact), SIXTEEN_BITS[dtype] * size)


def sketch(got, want):
    if want.layout != torch.strided or want.numel() > 8:
        return ""
    return f": {got.tolist()}, not {want.tolist()}"


def tree_differences(got, want, tolerance, values=True):
    """Returns the differences of a result from the CPU's, tensor by tensor."""
    got_leaves, want_leaves = tree_flatten(got)[0], tree_flatten(want)[0]
    if len(got_leaves) != len(want_leaves):
        yield "results", f"{len(got_leaves)}, not {len(want_leaves)}"
        return
    for index, (mine, theirs) in enumerate(zip(got_leaves, want_leaves)):
        where = f"result {index}: " if len(want_leaves) > 1 else ""
        if is_tensor(theirs) != is_tensor(mine):
            yield "results", f"{where}{type(mine).__name__}, not {type(theirs).__name__}"
        elif is_tensor(theirs):
            for kind, message in differences(mine, theirs, tolerance, values):
                yield kind, where + message
        elif values and mine != theirs and not is_device(theirs) and not (mine != mine and theirs != theirs):
            yield "values", f"{where}{mine!r}, not {theirs!r}"


def is_device(value):
    return isinstance(value, torch.device)


def sharing(results, operands):
    """Returns which results share memory with which operands. View ops must share; other ops must not."""
    outs, ins = leaves(results), leaves(operands)
    strided_only = all(t.layout == torch.strided for t in outs + ins)
    if not strided_only:
        return set()
    return {
        (i, j) for i, out in enumerate(outs) for j, operand in enumerate(ins)
        if out.numel() and operand.numel() and out.untyped_storage()._cdata == operand.untyped_storage()._cdata
    }  # fmt: skip
