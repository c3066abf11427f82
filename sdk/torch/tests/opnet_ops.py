"""Checks of one operator of PyTorch's op database, on xpud and on the CPU."""

import functools
import itertools

import torch
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, DecorateInfo
from torch.utils._pytree import tree_flatten, tree_unflatten

from opnet_exceptions import CPU_CRASHES, RANDOM, UNINITIALISED, is_random
from opnet_tensors import (
    BITS, DEVICE, LAYOUTS, SIXTEEN_BITS, Tolerance, is_as_near, is_tensor, leaves, on_host,
    placed, relaid, scalar, sharing, strided, tree_differences, value_difference, widened,
)  # fmt: skip

OPS = {op.full_name: op for op in op_db}
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool, torch.complex64)
SMALL_TYPES = (torch.int32, torch.int16, torch.int8, torch.uint8)  # of operators with device kernels
SEED = 0


# ---- operators with device kernels


@functools.cache
def registered():
    """Returns the base names of the ATen operators that the shim registers ("add", "sum")."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    return {name.removeprefix("aten::").split(".")[0] for name in names if name.startswith("aten::")}


def names_of(op):
    return {op.name, op.aten_name, op.name.removeprefix("nn.functional."), op.aten_name.removeprefix("_")}


def is_served(op):
    return op.name not in RANDOM.keys() | UNINITIALISED and bool(names_of(op) & registered())


def types_of(op):
    """Returns the types in which an operator is tested."""
    wanted = TYPES + (SMALL_TYPES if is_served(op) else ())
    supported = op.supported_dtypes("cpu")
    return [dtype for dtype in wanted if dtype in supported]


@functools.cache
def allowed(name):
    """Returns the largest tolerances of PyTorch's own tests for an operator, by type."""
    result = {}
    decorators = [d for entry in OPS[name].decorators if isinstance(entry, DecorateInfo) for d in entry.decorators]
    for override in (d for d in decorators if isinstance(d, toleranceOverride)):
        for dtype, tolerance in override.d.items():
            known = result.get(dtype)
            result[dtype] = type(tolerance)(max(tolerance.atol, known.atol), max(tolerance.rtol, known.rtol)) if known else tolerance
    return result


# Operators whose arguments, except the first, PyTorch requires on the CPU.
HOST_ARGUMENTS = {"tensor_split"}


def callable_of(op, function):
    if op.name not in HOST_ARGUMENTS:
        return function
    return lambda input, *args, **kwargs: function(input, *placed(args, "cpu"), **kwargs)


# ---- one call on both devices


class Outcome:
    """The outcome of a call with copies of a sample's operands: a result, or an exception raised at once or at the next synchronisation."""

    def __init__(self, call, tree, place, **more):
        self.tree, self.result, self.error = tree, None, None
        torch.manual_seed(SEED)
        try:
            self.tree = input, args, kwargs = placed(tree, place)
            self.result = call(input, *args, **{**kwargs, **more})
            torch.xpud.synchronize()
        except Exception as error:
            self.error = error.with_traceback(None)
            clear_errors()


def clear_errors():
    """Clears pending errors, so that a failed call does not affect the next one."""
    try:
        torch.xpud.synchronize()
    except (RuntimeError, IndexError):
        pass


def brief(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def lacks_kernel(error):
    """Raised if the CPU has no kernel, so that there is nothing to compare with."""
    return isinstance(error, NotImplementedError) or "not implemented for" in str(error) or "Unsupported dtype" in str(error)


def is_overlap(error):
    return "refer to a single memory location" in str(error) or "refers to a single memory location" in str(error)


def is_as_expected(error, expected):
    """Whether programs that catch the CPU's error catch this one. An index out of range is an error of two types; others have that of the CPU."""
    return isinstance(error, expected) if isinstance(error, torch.xpud.InvalidIndexError) else type(error) is expected


def outcome_differences(mine, theirs, tolerance, values=True):
    """Returns the differences of a call's outcome on xpud from the CPU's, as (kind, message) pairs."""
    if theirs.error is not None:
        if lacks_kernel(theirs.error):
            return
        if mine.error is None:
            yield "accepted", f"the CPU raises {brief(theirs.error)}"
        elif not is_as_expected(mine.error, type(theirs.error)):
            yield "exception", f"{brief(mine.error)}, where the CPU raises {brief(theirs.error)}"
        return
    if mine.error is not None:
        if not is_overlap(mine.error):  # the CPU's result of such a write is undefined
            yield "refused", brief(mine.error)
        return
    yield from tree_differences(mine.result, theirs.result, tolerance, values)
    yield from memory_differences(mine, theirs, tolerance, values)


def memory_differences(mine, theirs, tolerance, values):
    """Compares the operands after the call, and which results are views of them."""
    for kind, message in tree_differences(leaves(mine.tree), leaves(theirs.tree), tolerance, values):
        if kind != "requires_grad":
            yield f"operand {kind}", message
    got, want = sharing(mine.result, mine.tree), sharing(theirs.result, theirs.tree)
    if got != want:
        yield "sharing", f"(result, operand) pairs that share memory: {sorted(got)}, not {sorted(want)}"


NUMBERS = ("values", "operand values")


# ---- an item: an operator and a type


class Item:
    """An operator in a type, and its findings."""

    def __init__(self, name, dtype, full):
        self.op, self.dtype, self.full = OPS[name], dtype, full
        self.call, self.method = callable_of(self.op, self.op), callable_of(self.op, self.op.method_variant)
        self.tolerance = Tolerance(dtype, allowed(name))
        self.gradient_tolerance = Tolerance(dtype, allowed(name), gradient=True)
        self.fell_back = {"first": {}, "forward": {}, "backward": {}}
        self.compared_samples = 0

    def samples(self, count, full_count, requires_grad=False):
        """Yields (index, (input, args, kwargs), sample) of the first samples; the same ones in each call."""
        limit = full_count if self.full else count
        torch.manual_seed(SEED)
        listed = list(itertools.islice(self.op.sample_inputs("cpu", self.dtype, requires_grad=requires_grad), limit))
        for index, sample in enumerate(listed):
            yield index, (sample.input, sample.args, sample.kwargs), sample

    def compares_values(self, tree):
        """Returns the argument `values` for opnet_tensors.differences."""
        return False if self.op.name in UNINITIALISED else None if is_random(self.op, tree) else True

    def both(self, call, tree, there=None):
        """Returns the outcomes of `call` on xpud and on the CPU."""
        return Outcome(there or call, tree, DEVICE), Outcome(call, tree, "cpu")

    def compared(self, call, tree, there=None, values=True, tolerance=None):
        """Returns the differences of `call` on xpud from the CPU, as (kind, message) pairs."""
        return self.differences(call, tree, *self.both(call, tree, there), values, tolerance)

    def differences(self, call, tree, mine, theirs, values=True, tolerance=None):
        values = values and self.compares_values(tree)
        found = list(outcome_differences(mine, theirs, tolerance or self.tolerance, values))
        if self.dtype in SIXTEEN_BITS and any(kind in NUMBERS for kind, _ in found):
            exact = Outcome(call, widened(tree, self.dtype), "cpu")
            if exact.error is None and is_as_near((mine.result, mine.tree), (theirs.result, theirs.tree), (exact.result, exact.tree), self.dtype):
                found = [(kind, message) for kind, message in found if kind not in NUMBERS]
        return found

    def count_fallbacks(self, direction, before):
        record = self.fell_back[direction]
        for name, count in torch.xpud.fallback_counts().items():
            if count > before.get(name, 0):
                record[name] = record.get(name, 0) + count - before.get(name, 0)


# ---- aspects: functions of an item that yield (variant, kind, message)


def values(item):
    """Compares results with their types, shapes, strides and shared memory, and the operands afterwards."""
    for index, tree, _ in item.samples(3, None):
        theirs = Outcome(item.call, tree, "cpu")
        item.compared_samples += theirs.error is None
        makes_tensors = not leaves(tree) and bool(leaves(theirs.result))
        before = torch.xpud.fallback_counts()
        mine = Outcome(item.call, tree, DEVICE, **({"device": DEVICE} if makes_tensors else {}))
        item.count_fallbacks("forward", before)
        if index < 2 and all(leaf.numel() for leaf in leaves(tree)):
            item.count_fallbacks("first", before)
        for kind, message in item.differences(item.call, tree, mine, theirs):
            yield f"sample {index}", kind, message


def method(item):
    """Runs the tensor's method of the same name."""
    if item.op.method_variant is None:
        return
    for index, tree, _ in item.samples(1, 2):
        if is_tensor(tree[0]):
            for kind, message in item.compared(item.method, tree):
                yield f"sample {index}", kind, message


def gradients(item):
    if not item.op.supports_autograd or item.dtype not in item.op.supported_backward_dtypes("cpu"):
        return
    for index, tree, sample in item.samples(2, 12, requires_grad=True):
        before = torch.xpud.fallback_counts()
        call = functools.partial(gradients_of, item.call, sample.output_process_fn_grad, index % 2 == 1)
        mine = Outcome(call, tree, DEVICE)
        item.count_fallbacks("backward", before)
        theirs = Outcome(call, tree, "cpu")
        for kind, message in item.differences(call, tree, mine, theirs, tolerance=item.gradient_tolerance):
            yield f"sample {index}", kind, message


def gradients_of(call, process, expanded, input, *args, **kwargs):
    outputs = [o for o in leaves(process(call(input, *args, **kwargs))) if o.requires_grad]
    inputs = [i for i in leaves((input, args, kwargs)) if i.requires_grad]
    if not outputs or not inputs:
        return []
    weights = [weight_like(o, expanded) for o in outputs]
    # PyTorch does not promise a gradient's strides, nor that a gradient owns its memory.
    return [g if g is None else g.contiguous().clone() for g in torch.autograd.grad(outputs, inputs, weights, allow_unused=True)]


def weight_like(output, expanded):
    """Returns a gradient for an output: different numbers, or one number with strides 0, as from sum().backward()."""
    if output.layout != torch.strided:
        return torch.ones_like(output)
    if expanded:
        return torch.ones((), dtype=output.dtype).to(output.device).expand(output.shape)
    numbers = torch.linspace(0.5, 1.5, max(output.numel(), 1))[: output.numel()].reshape(output.shape)
    return numbers.to(output.dtype).to(output.device)


def layouts(item):
    """Runs with operands in layouts that the samples do not have."""
    yield from relaid_samples(item, LAYOUTS)


def bits(item):
    """Runs with conjugated operands, and with operands that have the negative bit."""
    if item.dtype == torch.complex64 or (item.dtype == torch.float32 and item.full):
        yield from relaid_samples(item, BITS)


def relaid_samples(item, chosen):
    for index, tree, _ in item.samples(1, 3):
        for name, layout in chosen.items():
            changed = relaid(tree, layout)
            if changed is None or (name == "expanded" and item.op.name in WRITES_TWICE):
                continue
            for kind, message in item.compared(item.call, changed):
                yield f"{name}, sample {index}", kind, message


# With an expanded index, or expanded running statistics, these write several values to one place, and the final one is undefined.
WRITES_TWICE = {"scatter", "index_copy", "index_put", "put", "masked_scatter", "nn.functional.batch_norm", "native_batch_norm", "_native_batch_norm_legit",
                "_batch_norm_with_update"}  # fmt: skip


def strided_gradients(item):
    if not item.op.supports_autograd or item.dtype not in (torch.float32, torch.complex64) or item.dtype not in item.op.supported_backward_dtypes("cpu"):
        return
    for index, tree, sample in item.samples(1, 3, requires_grad=True):
        changed = relaid(tree, strided)
        if changed is None:
            continue
        call = functools.partial(gradients_of, item.call, sample.output_process_fn_grad, False)
        for kind, message in item.compared(call, changed, tolerance=item.gradient_tolerance):
            yield f"sample {index}", kind, message


def scalars(item):
    """Runs with 0-dim operands. For operators of two operands, 0-dim ones also stay on the CPU."""
    for index, tree, _ in item.samples(1, 2):
        changed = relaid(tree, scalar)
        if changed is not None:
            for kind, message in item.compared(item.call, changed):
                yield f"sample {index}", kind, message
        if isinstance(item.op, BinaryUfuncInfo) and is_tensor(tree[0]) and tree[1] and is_tensor(tree[1][0]) and tree[1][0].numel():
            yield from host_scalar(item, index, tree)


def host_scalar(item, index, tree):
    other = scalar(tree[1][0].detach())
    tree = (tree[0], (other, *tree[1][1:]), tree[2])

    def call_with_host_scalar(input, _, *args, **kwargs):
        return item.call(input, other, *args, **kwargs)

    for kind, message in item.compared(item.call, tree, there=call_with_host_scalar):
        yield f"0-dim on the CPU, sample {index}", kind, message


def devices(item):
    """Runs with operands on two devices: this must raise at once, or give the right result."""
    for index, tree, _ in item.samples(1, 2):
        places = [i for i, leaf in enumerate(tree_flatten(tree)[0]) if is_tensor(leaf) and leaf.dim() and leaf.numel()]
        if len(leaves(tree)) < 2:
            continue
        for place in places:
            yield from host_operand(item, index, tree, place)


def host_operand(item, index, tree, place):
    flat, spec = tree_flatten(tree)

    def call_with_host_operand(input, *args, **kwargs):
        mixed = tree_flatten((input, args, kwargs))[0]
        mixed[place] = flat[place].detach().clone()
        input, args, kwargs = tree_unflatten(mixed, spec)
        return item.call(input, *args, **kwargs)

    mine, theirs = item.both(item.call, tree, there=call_with_host_operand)
    if isinstance(mine.error, (RuntimeError, ValueError, TypeError)) and "does not exist" not in str(mine.error):
        return
    if mine.error is not None and theirs.error is None:
        yield f"operand {place} on the CPU, sample {index}", "exception", brief(mine.error)
    elif mine.error is None and theirs.error is None and item.compares_values(tree):
        got, want = [t.cpu() for t in leaves(mine.result)], leaves(theirs.result)
        for kind, message in tree_differences(got, want, item.tolerance):
            if kind == "values":
                yield f"operand {place} on the CPU, sample {index}", kind, message


# ---- out=


class Target:
    """Tensors for out=, of which a call may write only some elements."""

    def __init__(self, name, make):
        self.name, self.make = name, make


def other_type(dtype):
    """Returns a type that cannot hold results of `dtype`."""
    if dtype.is_complex:
        return torch.float32
    return torch.int64 if dtype.is_floating_point else torch.bool


def wider_type(dtype):
    return {torch.float32: torch.float64, torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.int64: torch.float32,
            torch.bool: torch.int64, torch.complex64: torch.complex128}.get(dtype, torch.float64)  # fmt: skip


def filled(shape, dtype):
    return torch.ones(shape, dtype=dtype)


def repeated(want):
    """Returns a tensor with all elements at one place. CPU kernels that ignore strides stay within its memory."""
    return filled((max(want.numel(), 1),), want.dtype).as_strided(want.shape, (0,) * want.dim())


TARGETS = (
    Target("strided", lambda want: filled((*want.shape, 2), want.dtype).select(-1, 0)),
    Target("empty", lambda want: filled((0,), want.dtype)),
    Target("wrong shape", lambda want: filled((*want.shape, 2), want.dtype)),
    Target("wrong type", lambda want: filled(want.shape, other_type(want.dtype))),
    Target("wider type", lambda want: filled(want.shape, wider_type(want.dtype))),
    Target("repeated", repeated),
)


def out(item):
    """Checks that out= of other strides, shapes and types is written, resized or refused as on the CPU."""
    if not item.op.supports_out:
        return
    for index, tree, _ in item.samples(1, 3):
        wanted = Outcome(item.call, tree, "cpu")
        if wanted.error is not None or not leaves(wanted.result) or len(leaves(wanted.result)) != len(tree_flatten(wanted.result)[0]):
            continue
        for target in TARGETS:
            for kind, message in target_differences(item, tree, wanted.result, target):
                yield f"{target.name}, sample {index}", kind, message
        yield from wrong_device(item, index, tree, wanted.result)


def target_tree(want, target):
    flat, spec = tree_flatten(want)
    made = [target.make(leaf) for leaf in flat]
    return made[0] if is_tensor(want) else tuple(made)


def target_differences(item, tree, want, target):
    with_out = (tree[0], tree[1], {**tree[2], "out": target_tree(want, target)})
    mine, theirs = item.both(item.call, with_out)
    defined = item.compares_values(tree) and target.name != "repeated"
    yield from item.differences(item.call, with_out, mine, theirs, defined)
    if mine.error is None and theirs.error is None and target.name == "strided":
        yield from gap_differences(item, mine, theirs)


def gap_differences(item, mine, theirs):
    """Checks that elements in the gaps of out= do not change."""
    for got, want in zip(leaves(mine.tree[2]["out"]), leaves(theirs.tree[2]["out"])):
        if got.stride() == want.stride():
            for kind, message in tree_differences(on_host(whole(got.detach().zero_())), whole(want.detach().zero_()), item.tolerance):
                yield f"memory {kind}", message


def whole(value):
    size = value.untyped_storage().nbytes() // value.element_size()
    return value.detach().as_strided((size,), (1,), 0)


def wrong_device(item, index, tree, want):
    if all(leaf.dim() == 0 for leaf in leaves(tree)):  # such operands may be on the CPU
        return
    for operands, target in ((DEVICE, "cpu"), ("cpu", DEVICE)):
        result = target_tree(placed(want, target), Target("", torch.empty_like))
        if any(leaf.numel() for leaf in leaves(want)) and Outcome(item.call, tree, operands, out=result).error is None:
            yield f"operands on {operands}, out on {target}, sample {index}", "accepted", "out= on another device"


def overlap(item):
    """Writes results over operands: with a partial overlap (the CPU refuses), and with out= that is the operand itself."""
    if item.dtype not in (torch.float32, torch.int64, torch.complex64):
        return
    for index, tree, _ in item.samples(1, 3):
        first = tree[0]
        if not is_tensor(first) or first.layout != torch.strided or first.numel() < 2 or not item.compares_values(tree):
            continue
        yield from overlapped(item, index, tree)


def overlapped(item, index, tree):
    base = torch.zeros(tree[0].numel() + 1, dtype=item.dtype)
    lower, upper = base[:-1].view(tree[0].shape), base[1:].view(tree[0].shape)
    lower.copy_(tree[0].detach())
    variants = {}
    if item.op.supports_out:
        variants["out= one element on"] = (item.call, (lower, tree[1], {**tree[2], "out": upper}))
        same = lower.clone()
        variants["out= is the operand"] = (item.call, (same, tree[1], {**tree[2], "out": same}))
    if item.op.inplace_variant is not None and tree[1] and is_tensor(tree[1][0]) and tree[1][0].shape == tree[0].shape and tree[1][0].dtype == item.dtype:
        variants["in-place, operand one element on"] = (item.op.inplace_variant, (lower, (upper, *tree[1][1:]), tree[2]))
    wanted = Outcome(item.call, (lower, *tree[1:]), "cpu")
    for name, (call, changed) in variants.items():
        mine, theirs = item.both(call, changed)
        defined = not any(value_difference(got, want, item.tolerance) for got, want in zip(leaves(theirs.result), leaves(wanted.result)))
        for kind, message in item.differences(call, changed, mine, theirs, defined):
            yield f"{name}, sample {index}", kind, message


# ---- in-place


def in_place(item):
    if item.op.inplace_variant is None:
        return
    for index, tree, _ in item.samples(2, None):
        if not is_tensor(tree[0]):
            continue
        for name, layout in (("plain", torch.clone), ("strided", strided), ("permuted", LAYOUTS["permuted"]), ("expanded", LAYOUTS["expanded"])):
            if name != "plain" and index > 2:
                break
            changed = (layout(tree[0].detach()), tree[1], tree[2])
            defined = name != "expanded"  # the last write to a place is undefined
            for kind, message in item.compared(item.op.inplace_variant, changed, values=defined):
                yield f"{name}, sample {index}", kind, message


# ---- errors


def errors(item):
    """Checks that calls that the CPU refuses raise the same class of exception."""
    if item.op.error_inputs_func is None or item.dtype != torch.float32:
        return
    torch.manual_seed(SEED)
    for index, error in enumerate(item.op.error_inputs("cpu")):
        sample = error.sample_input
        tree = (sample.input, sample.args, sample.kwargs)
        mine, theirs = item.both(item.call, tree)
        if theirs.error is None:
            continue
        for kind, message in item.differences(item.call, tree, mine, theirs):
            yield f"error input {index}", kind, message


ASPECTS = {
    "values": values, "gradients": gradients, "method": method, "layouts": layouts, "bits": bits, "strided gradients": strided_gradients,
    "scalars": scalars, "devices": devices, "out": out, "overlap": overlap, "in-place": in_place, "errors": errors,
}  # fmt: skip


def run_item(name, dtype, full, aspects, announce):
    """Runs an operator in a type. Returns failures as dicts, the operators that fell back, and the number of samples that the CPU could run."""
    item = Item(name, dtype, full)
    failures = []
    for aspect in aspects or ASPECTS:
        if (name, aspect) in CPU_CRASHES:
            continue
        announce(aspect)
        clear_errors()
        try:
            found = list(ASPECTS[aspect](item))
        except Exception as error:  # from the test itself, or from a copy after the op's error
            found = [("", "net", brief(error))]
        failures += [{"aspect": aspect, "variant": v, "kind": k, "message": m} for v, k, m in found]
    return {"failures": failures, "fell_back": item.fell_back, "compared": item.compared_samples}
