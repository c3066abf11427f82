"""Functions besides elementwise ops and reductions, which are generated from the op table."""

from __future__ import annotations

import builtins
import math
import typing

import numpy

from . import _einsum, _index, _table, ops
from ._array import Array
from ._creation import arange, asarray
from ._families import axis_of, execute
from ._types import BY_NAME, dtype as to_dtype, result_type

if typing.TYPE_CHECKING:
    from ._types import DTypeLike

    Axis = typing.Union[int, typing.Tuple[int, ...], None]

_MAX_JOINED = 400  # arrays of one command: so many descriptors of maximal rank fit

# ---- shapes: views if possible


def reshape(array: Array, shape: typing.Sequence[int], /) -> Array:
    """Like Array.reshape."""
    return array.reshape(tuple(shape))


def permute_dims(array: Array, axes: typing.Sequence[int], /) -> Array:
    """Like Array.permute."""
    return array.permute(tuple(axes))


def matrix_transpose(array: Array, /) -> Array:
    """Like Array.mT."""
    return array.mT


def astype(array: Array, dtype: DTypeLike, /, *, copy: bool = True) -> Array:
    """Like Array.astype."""
    return array.astype(dtype, copy=copy)


def expand_dims(array: Array, /, axis: int = 0) -> Array:
    """Returns a view with an additional dimension of size 1."""
    axis = axis_of(axis, array.ndim + 1)
    return array._as((*array.shape[:axis], 1, *array.shape[axis:]), (*array._strides[:axis], 0, *array._strides[axis:]))


def squeeze(array: Array, /, axis: int | tuple[int, ...]) -> Array:
    """Returns a view without dimensions of size 1. Raises ValueError for other sizes."""
    gone = {axis_of(each, array.ndim) for each in (axis if isinstance(axis, tuple) else (axis,))}
    if any(array.shape[d] != 1 for d in gone):
        raise ValueError(f"axes {axis} of shape {array.shape} are not all of size 1")
    kept = [d for d in range(array.ndim) if d not in gone]
    return array._as([array.shape[d] for d in kept], [array._strides[d] for d in kept])


def broadcast_to(array: Array, /, shape: typing.Sequence[int]) -> Array:
    """Returns a view that repeats elements (stride 0). Raises ValueError if the shapes do not fit."""
    shape = tuple(shape)
    lead = len(shape) - array.ndim
    if lead < 0 or any(own not in (1, wanted) for own, wanted in zip(array.shape, shape[lead:])):
        raise ValueError(f"an array of shape {array.shape} does not broadcast to {shape}")
    strides = [0 if own == 1 else stride for own, stride in zip(array.shape, array._strides)]
    return array._as(shape, [0] * lead + strides)


def concat(arrays: typing.Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """Joins arrays along an axis; None: flattens them first. The result has their common type. Raises ValueError for shapes that do not fit."""
    if not arrays:
        raise ValueError("nothing to concatenate")
    if axis is None:
        arrays, axis = [array.reshape(-1) for array in arrays], 0
    axis = axis_of(axis, arrays[0].ndim)
    first = arrays[0].shape
    for array in arrays:
        if array.ndim != len(first) or any(a != b for d, (a, b) in enumerate(zip(array.shape, first)) if d != axis):
            raise ValueError(f"shapes {first} and {array.shape} cannot be joined along axis {axis}")
    sizes = [array.shape[axis] for array in arrays]
    out = arrays[0]._new(result_type(*(array.dtype for array in arrays)), (*first[:axis], builtins.sum(sizes), *first[axis + 1:]))
    start = 0
    full = [array for array in arrays if array.size]
    for some in (full[at:at + _MAX_JOINED] for at in range(0, len(full), _MAX_JOINED)):
        size = builtins.sum(array.shape[axis] for array in some)
        part = out[(slice(None),) * axis + (slice(start, start + size),)]
        execute(_table.BY_NAME["cat"], (part,), tuple(some), (axis,), out.dtype, (len(some),))
        start += size
    return out


def stack(arrays: typing.Sequence[Array], /, *, axis: int = 0) -> Array:
    """Joins arrays along a new axis."""
    return concat([expand_dims(array, axis_of(axis, array.ndim + 1)) for array in arrays], axis=axis if axis >= 0 else axis + arrays[0].ndim + 1)


concatenate = concat  # NumPy's name


def flip(array: Array, /, *, axis: Axis = None) -> Array:
    """Returns a copy with the order along the axes reversed."""
    for each in range(array.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,):
        size = array.shape[axis_of(each, array.ndim)]
        array = take(array, arange(size - 1, -1, -1, device=array.device), axis=each)
    return array


# ---- along an axis


def sort(array: Array, /, *, axis: int = -1, descending: bool = False) -> Array:
    """Returns a copy that is sorted along an axis. Equal elements keep their order. NaN counts as larger than every number."""
    return _sorted(array, axis, descending)[0]


def argsort(array: Array, /, *, axis: int = -1, descending: bool = False) -> Array:
    """Returns the positions, of int64, at which the elements of sort() were along the axis. Equal elements keep their order."""
    return _sorted(array, axis, descending)[1]


def _sorted(array: Array, axis: int, descending: bool) -> tuple[Array, Array]:
    return getattr(ops, "sort")(array, dim=axis_of(axis, max(array.ndim, 1)), descending=builtins.bool(descending))


def topk(array: Array, k: int, /, *, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    """Returns the k largest (or smallest) elements along an axis, the first of them first, and their positions, of int64."""
    axis = axis_of(axis, max(array.ndim, 1))
    if not 0 <= k <= (array.shape[axis] if array.ndim else 1):
        raise ValueError(f"topk of {k} elements along axis {axis} of shape {array.shape}")
    cut = (slice(None),) * axis + (slice(0, k),) if array.ndim else ...
    values, positions = _sorted(array, axis, largest)
    return values[cut].copy(), positions[cut].copy()


def cumsum(array: Array, /, *, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """Returns the sums of the elements up to each one along an axis; None: of the flattened array. Integers and bool give int64, unless dtype= is
    given."""
    return _scanned("cumsum", array, axis, dtype)


def cumprod(array: Array, /, *, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """Returns the products of the elements up to each one along an axis; None: of the flattened array. Types as of cumsum."""
    return _scanned("cumprod", array, axis, dtype)


def _scanned(name: str, array: Array, axis: int | None, dtype: DTypeLike | None) -> Array:
    if axis is None:
        array, axis = array.reshape(-1), 0
    return getattr(ops, name)(array, dim=axis_of(axis, max(array.ndim, 1)), dtype=None if dtype is None else to_dtype(dtype))


cumulative_sum, cumulative_prod = cumsum, cumprod  # the standard's names


# ---- positions


_INVALID_INDEX = -(1 << 55) + (14 << 50) + (1 << 49)  # InvalidIndexBase(kNoDimension) in proto/ops/invalid_index.h


def _wrapped(index: Array, size: int) -> Array:
    """Adds `size` to negative positions. A position out of range stays out of range, and the error names it."""
    out = index._new(BY_NAME["int64"], index.shape)
    return ops.index_position(0, index, size, _INVALID_INDEX, out=out) if index.size else out


def _positions(array: Array, index) -> Array:
    index = index if isinstance(index, Array) else asarray(index, device=array.device)
    return index if index.dtype.name in ("int32", "int64") else index.astype("int64")


def take(array: Array, index, /, *, axis: int | None = None) -> Array:
    """Returns a copy of the elements at one-dimensional positions along an axis. Positions may be negative. The axis is optional for
    one-dimensional arrays.

    Raises IndexError for a position out of range, at the next wait for the device.
    """
    if axis is None and array.ndim != 1:
        raise TypeError(f"take from {array.ndim} dimensions needs an axis")
    axis = axis_of(axis or 0, array.ndim)
    return ops.index_select(array, _wrapped(_positions(array, index), array.shape[axis]), axis=axis)


def take_along_axis(array: Array, index: Array, /, *, axis: int = -1) -> Array:
    """Returns, for each element of `index`, the element at that position along the axis. Errors as for take."""
    axis = axis_of(axis, array.ndim)
    if array.ndim == 1:
        return take(array, index, axis=0)
    return ops.gather(array, _wrapped(_positions(array, index), array.shape[axis]), axis=axis)


def nonzero(array: Array, /) -> tuple[Array, ...]:
    """Returns the positions of the elements that are not 0, in row-major order: an array for each axis. Waits for their number.

    Raises ValueError for an array without dimensions.
    """
    if array.ndim == 0:
        raise ValueError("nonzero of an array without dimensions; reshape(1) gives it one")
    positions = ops.nonzero(array)
    return tuple(positions[:, axis] for axis in range(array.ndim))


def take_chosen(view: Array, chosen: typing.Sequence[tuple[int, typing.Any]]) -> Array:
    """Returns view[.., positions, ..]. Raises ValueError unless the positions are in adjacent dimensions."""
    first = chosen[0][0]
    if [d for d, _ in chosen] != list(range(first, first + len(chosen))):
        raise ValueError("index arrays must be adjacent")
    merged = view.reshape(*view.shape[:first], math.prod(view.shape[first:first + len(chosen)]), *view.shape[first + len(chosen):])
    total: typing.Any = None
    for dimension, given in chosen:
        index = _wrapped(_positions(view, given), view.shape[dimension])
        total = index if total is None else total * view.shape[dimension] + index
    out = ops.index_select(merged, total.reshape(-1), axis=first)
    return out.reshape(*view.shape[:first], *total.shape, *view.shape[first + len(chosen):])


def write(array: Array, key, value) -> None:
    """Runs array[key] = value."""
    mask = asarray(key, device=array.device) if isinstance(key, numpy.ndarray) and key.dtype == bool else key
    if isinstance(mask, Array) and mask.dtype.name == "bool":
        _write_masked(array, mask, value)
        return
    target, chosen = _index.select(array, key)
    if chosen:
        raise ValueError("cannot write to positions of integer arrays; use xpud.where")
    if isinstance(value, (Array, bool, int, float)):
        source = value if not isinstance(value, Array) or value.device == array.device else value.to_device(array.device)
    else:
        source = asarray(value, device=array.device)
    if isinstance(source, Array):
        ops._copy_from(source, out=target)
    else:
        ops.fill(source, out=target, compute=array.dtype)


def _write_masked(array: Array, mask: Array, value) -> None:
    if mask.shape != array.shape[:mask.ndim]:
        raise IndexError(f"a mask of shape {mask.shape} for an array of shape {array.shape}")
    if isinstance(value, Array) and value.ndim:
        raise ValueError("can only write a number by a mask; use xpud.where for arrays")
    aligned = mask.reshape(*mask.shape, *[1] * (array.ndim - mask.ndim))
    ops.masked_fill(array, aligned, value, out=array)


# ---- elementwise ops with another order of operands than in the table


def where(condition: Array, a, b, /, *, out: Array | None = None) -> Array:
    """Returns a where the condition holds (is not 0), otherwise b; arrays or numbers, which broadcast. The result has their common type."""
    if not isinstance(condition, Array):
        raise TypeError(f"a condition is an xpud array, not {type(condition).__name__}; xpud.asarray makes one")
    condition = condition if condition.dtype.name == "bool" else ops.ne(condition, 0)
    return getattr(ops, "where")(condition, a, b, out=out)


def clip(array: Array, /, min=None, max=None, *, out: Array | None = None) -> Array:
    """Limits values to min and max: arrays, numbers, or None for no limit."""
    if min is None and max is None:
        return array.copy()
    if max is None:
        return ops.clamp_min(array, min, out=out)
    return ops.clamp_max(array, max, out=out) if min is None else ops.clamp(array, min, max, out=out)


def positive(array: Array, /) -> Array:
    """Returns a copy."""
    return +array


def square(array: Array, /, *, out: Array | None = None) -> Array:
    """x * x."""
    return ops.mul(array, array, out=out)


def isfinite(array: Array, /) -> Array:
    """Returns whether each element is neither infinite nor NaN, as bool."""
    return ops.logical_not(ops.logical_or(ops.isnan(array), ops.isinf(array)))


# ---- reductions whose results differ from the table's


def var(array: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """Returns the mean squared deviation. The divisor is the count minus `correction`."""
    return getattr(ops, "var")(array, axis, keepdims=keepdims, attribute=correction)


def std(array: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """Returns the square root of var."""
    return ops.sqrt(var(array, axis=axis, correction=correction, keepdims=keepdims))


def vector_norm(array: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Returns the square root of the sum of squares."""
    return ops.linalg_vector_norm(array, axis, keepdims=keepdims)


# ---- matrix products


def matmul(a: Array, b: Array, /, *, out: Array | None = None) -> Array:
    """Returns a @ b. Matrices are in the last two dimensions; the others broadcast. A one-dimensional a is a row, b a column. Floating types.

    Raises ValueError if the shapes do not fit, and TypeError for different or other types.
    """
    if not isinstance(a, Array) or not isinstance(b, Array):
        raise TypeError("matmul takes xpud arrays; xpud.asarray makes them")
    if a.ndim == b.ndim == 2:
        return ops.mm(a, b, out=out)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError("matmul takes arrays with dimensions; * multiplies by a number")
    row, column = a.ndim == 1, b.ndim == 1
    left, right = (expand_dims(a, 0) if row else a), (expand_dims(b, 1) if column else b)
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"arrays of shapes {a.shape} and {b.shape} do not multiply as matrices")
    if out is not None and (row or column or left.ndim != right.ndim or left.ndim > 3):
        raise ValueError("matmul supports `out` only for matrices, and for batches with one leading dimension")
    made = ops.mm(left, right) if left.ndim == right.ndim == 2 else _batched(left, right, out)
    if row:
        made = squeeze(made, -2)
    return squeeze(made, -1) if column else made


def _batched(a: Array, b: Array, out: Array | None) -> Array:
    if b.ndim == 2:  # one matrix b for all: treat the rows of all matrices as one matrix
        return ops.mm(a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    batch = numpy.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = math.prod(batch)
    left = broadcast_to(a, (*batch, *a.shape[-2:])).reshape(count, *a.shape[-2:])
    right = broadcast_to(b, (*batch, *b.shape[-2:])).reshape(count, *b.shape[-2:])
    made = ops.mm(left, right, out=out)
    return made.reshape(*batch, *made.shape[-2:]) if len(batch) != 1 else made


def einsum(subscripts: str, /, *arrays: Array) -> Array:
    """Returns the sums of products that `subscripts` describes, as numpy.einsum: einsum("bij,bjk->bik", a, b). `...` stands for further
    dimensions, which broadcast. Without "->", the result has the letters that appear once, in alphabetical order.

    Arrays are multiplied from left to right, as matrices where they have floating types. Raises ValueError if the subscripts do not fit the
    arrays, and TypeError if the arrays differ in type.
    """
    return _einsum.einsum(subscripts, arrays)


def linear(x: Array, weight: Array, bias: Array | None = None, /, *, activation: str | None = None) -> Array:
    """Returns activation(x weight' + bias), [.., N], of x [.., K], weight [N, K], bias [N]. activation: "relu", "gelu", "gelu_tanh" or None.

    Raises ValueError if the shapes do not fit, and TypeError for different or other types.
    """
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1] or (bias is not None and bias.shape != weight.shape[:1]):
        raise ValueError(f"linear of {x.shape} with weight {weight.shape} and bias {None if bias is None else bias.shape}")
    rows = x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    made = ops.mm(rows, weight.T, bias, activation=activation)
    return made if x.ndim == 2 else made.reshape(*x.shape[:-1], weight.shape[0])


# ---- layers


def softmax(x: Array, /, *, axis: int = -1, out: Array | None = None) -> Array:
    """exp(x) divided by its sum along the axis. Floating types."""
    return ops._softmax(x, axis=axis, out=out)


def log_softmax(x: Array, /, *, axis: int = -1, out: Array | None = None) -> Array:
    """The logarithm of softmax."""
    return ops._log_softmax(x, axis=axis, out=out)


def layer_norm(x: Array, weight: Array | None = None, bias: Array | None = None, /, *, eps: float = 1e-5) -> Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis; weight and bias [N] of the same type. Floating types."""
    return ops.native_layer_norm(x, weight, bias, eps=eps)[0]


def embedding(weight: Array, index, /) -> Array:
    """Returns rows of weight [V, D] by positions of int32 or int64 and any shape S, as [*S, D]. A position out of range raises IndexError
    at the next wait."""
    return ops.embedding(weight, _positions(weight, index))


def scaled_dot_product_attention(query: Array, key: Array, value: Array, /, mask: Array | None = None, *, is_causal: bool = False,
                                 scale: float | None = None) -> Array:
    """softmax(scale query key' + mask) value, of query [B,H,S,D], key [B,G,T,D] and value [B,G,T,E]: [B,H,S,E]. G divides H.

    mask: broadcasts to [B,H,S,T]; bool (True attends) or of the query's type (added). scale: default 1 / sqrt(D). is_causal: a query attends only to
    keys up to its own position. Floating types. A query without keys gives 0.
    """
    return ops._scaled_dot_product_fused_attention_overrideable(query, key, value, mask, scale=scale, is_causal=is_causal)[0]


def gelu(x: Array, /, *, approximate: str = "none", out: Array | None = None) -> Array:
    """x/2 (1 + erf(x / sqrt 2)); approximate="tanh" selects the approximation of Hendrycks and Gimpel."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate must be 'none' or 'tanh', not {approximate!r}")
    return (ops.gelu_tanh if approximate == "tanh" else getattr(ops, "gelu"))(x, out=out)


def nll_loss(logp: Array, target: Array, /, weight: Array | None = None, *, reduction: str = "mean", ignore_index: int = -100) -> Array:
    """Returns the negative log likelihood of log_softmax's [N, C] for targets [N]: [] ("mean", "sum") or [N] ("none")."""
    return ops.nll_loss_forward(logp, target, weight, reduction=reduction, ignore_index=ignore_index)[0]
