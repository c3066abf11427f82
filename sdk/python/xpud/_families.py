"""Families whose ops are neither elementwise nor reductions: one function for each family. It takes the op's row, and checks and creates arrays as the
family's descriptor requires (proto/ops/family.h). Rows of a family differ only in their kernels."""

from __future__ import annotations

import inspect
import keyword
import math
import typing

import xpud

from . import _table, _xpud
from ._array import Array
from ._creation import zeros
from ._types import BY_NAME, DType

_FLOAT32 = BY_NAME["float32"]
ACTIVATIONS = {None: 0, "relu": 1, "gelu": 2, "gelu_tanh": 3}


def execute(row: dict, outputs: tuple, inputs: tuple, attributes: tuple = (), compute: DType | None = None, lists: tuple = ()) -> None:
    _xpud.execute(row["number"], outputs, inputs, attributes, compute, lists)


def name_of(row: dict) -> str:
    return row["names"][0]


def check_type(row: dict, array: Array) -> None:
    if not isinstance(array, Array):
        raise TypeError(f"{name_of(row)} takes xpud arrays, not {type(array).__name__}; xpud.asarray makes one")
    if array.dtype not in row["dtypes"]:
        raise TypeError(f"{name_of(row)} does not take {array.dtype.name}, only {', '.join(each.name for each in row['dtypes'])}")


def check_same_type(row: dict, first: Array, *others: Array | None) -> None:
    check_type(row, first)
    for other in others:
        if other is not None and other.dtype is not first.dtype:
            raise TypeError(f"{name_of(row)} of {first.dtype.name} and {other.dtype.name} differ; convert with astype")


def axis_of(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise IndexError(f"axis {axis} of an array with {ndim} dimensions")
    return axis + ndim if axis < 0 else axis


def like(array: Array, shape: typing.Sequence[int], dtype: DType | None = None) -> Array:
    return array._new(dtype or array.dtype, tuple(shape))


def given_or_made(row: dict, out: Array | None, source: Array, shape: typing.Sequence[int]) -> Array:
    if out is None:
        return like(source, shape)
    if out.shape != tuple(shape) or out.dtype is not source.dtype or not out.is_contiguous or out._memory == source._memory:
        raise ValueError(f"{name_of(row)} writes to a contiguous array of shape {tuple(shape)} and type {source.dtype.name}, apart from its "
                         f"inputs, not to one of {out.shape} and {out.dtype.name}")
    return out


def statistics_type(array: Array) -> DType:
    """Returns the type of means and deviations: float32 for 16-bit inputs."""
    return _FLOAT32 if array.itemsize == 2 else array.dtype


# ---- one function per family

def softmax(row: dict, *arrays: Array, axis: int = -1, out: Array | None = None) -> Array:
    """Softmax of an array over one axis; or, from (gradient, output), the gradient of the array."""
    if len(arrays) != row["inputs"]:
        raise TypeError(f"{name_of(row)} takes {row['inputs']} arrays, not {len(arrays)}")
    check_same_type(row, *arrays)
    if any(array.shape != arrays[0].shape for array in arrays):
        raise ValueError(f"{name_of(row)} of shapes {', '.join(str(array.shape) for array in arrays)}")
    axis = axis_of(axis, arrays[0].ndim) if arrays[0].ndim else 0
    out = given_or_made(row, out, arrays[0], arrays[0].shape)
    if out.size:
        execute(row, (out,), arrays, (axis,))
    return out


def layer_norm(row: dict, x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5,
               out: Array | None = None) -> tuple[Array, Array, Array]:
    """Normalises over the last axis. Returns (y, mean, 1 / deviation). weight and bias have one dimension and are optional."""
    check_same_type(row, x, weight, bias)
    if x.ndim == 0 or any(each is not None and each.shape != x.shape[-1:] for each in (weight, bias)):
        raise ValueError(f"{name_of(row)} over the last axis of {x.shape}, with weight and bias of "
                         f"{[each.shape for each in (weight, bias) if each is not None]}")
    y = given_or_made(row, out, x, x.shape)
    mean, deviation = (like(x, (*x.shape[:-1], 1), statistics_type(x)) for _ in range(2))
    if y.size:
        rows, columns = math.prod(x.shape[:-1]), x.shape[-1]
        execute(row, (y.reshape(rows, columns), mean.reshape(rows), deviation.reshape(rows)),
                (x.contiguous().reshape(rows, columns), _dense(weight), _dense(bias)), (eps,), x.dtype)
    return y, mean, deviation


def layer_norm_backward(row: dict, gradient: Array, x: Array, mean: Array, deviation: Array, weight: Array | None = None) -> tuple[Array, Array, Array]:
    """Returns the gradients of layer_norm's x, weight and bias."""
    check_same_type(row, x, gradient, weight)
    rows, columns = math.prod(x.shape[:-1]), x.shape[-1]
    if gradient.shape != x.shape or mean.size != rows or deviation.size != rows:
        raise ValueError(f"{name_of(row)} of gradient {gradient.shape}, x {x.shape}, mean {mean.shape}, deviation {deviation.shape}")
    dx, dweight, dbias = like(x, (rows, columns)), like(x, (columns,)), like(x, (columns,))
    if x.size:
        execute(row, (dx, dweight, dbias), (gradient.contiguous().reshape(rows, columns), x.contiguous().reshape(rows, columns),
                                            mean.contiguous().reshape(rows), deviation.contiguous().reshape(rows), _dense(weight)))
    return dx.reshape(x.shape), dweight, dbias


def _dense(array: Array | None) -> Array | None:
    return None if array is None else array.contiguous()


def check_index(row: dict, index: Array) -> None:
    if not isinstance(index, Array) or index.dtype.name not in ("int32", "int64"):
        raise TypeError(f"{name_of(row)} takes positions of int32 or int64, not {index.dtype if isinstance(index, Array) else type(index).__name__}")


def gather(row: dict, array: Array, index: Array, *, axis: int) -> Array:
    """Selects along one axis, by positions >= 0. One-dimensional positions apply to all slices (take); otherwise each element has its own
    position (take_along_axis)."""
    check_type(row, array)
    check_index(row, index)
    axis = axis_of(axis, array.ndim)
    if index.ndim == array.ndim and array.ndim > 1:
        shape = index.shape
        if any(i > a for d, (i, a) in enumerate(zip(index.shape, array.shape)) if d != axis):
            raise ValueError(f"positions of shape {index.shape} for an array of shape {array.shape} along axis {axis}")
    elif index.ndim == 1:
        shape = (*array.shape[:axis], index.shape[0], *array.shape[axis + 1:])
    else:
        raise ValueError(f"positions of shape {index.shape} for an array of shape {array.shape}: one dimension, or as many")
    out = like(array, shape)
    if out.size:
        execute(row, (out,), (array, index if index.ndim > 1 else index.contiguous()), (axis,))
    return out


def embedding(row: dict, weight: Array, index: Array) -> Array:
    """Returns rows of a matrix [V, D] by positions of any shape S, as [*S, D]."""
    check_type(row, weight)
    check_index(row, index)
    if weight.ndim != 2:
        raise ValueError(f"{name_of(row)} takes rows of a matrix, not of shape {weight.shape}")
    out = like(weight, (*index.shape, weight.shape[1]))
    if out.size:
        execute(row, (out.reshape(index.size, weight.shape[1]),), (weight, index.contiguous().reshape(index.size)))
    return out


def scatter_add(row: dict, index: Array, source: Array, *, rows: int, padding: int = -1) -> Array:
    """Returns [rows, D]: zeros, to which each row of source [N, D] is added at its index [N], except where the index is `padding`."""
    check_type(row, source)
    check_index(row, index)
    if source.ndim != 2 or index.shape != source.shape[:1]:
        raise ValueError(f"{name_of(row)} of positions {index.shape} and rows {source.shape}")
    out = zeros((rows, source.shape[1]), dtype=source.dtype, device=source.device)
    if source.size and out.size:
        execute(row, (out,), (index.contiguous(), source.contiguous()), (padding,))
    return out


def matmul(row: dict, a: Array, b: Array, addend: Array | None = None, *, beta: float = 1.0, alpha: float = 1.0,
           activation: str | None = None, out: Array | None = None) -> Array:
    """activation(alpha a b + beta addend) of matrices [M,K] and [K,N], or of batches of them in one leading dimension."""
    check_same_type(row, a, b, addend)
    if activation not in ACTIVATIONS:
        raise ValueError(f"no activation {activation!r}; there are {', '.join(filter(None, ACTIVATIONS))}")
    if a.ndim != b.ndim or a.ndim not in (2, 3) or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise ValueError(f"matrices of shapes {a.shape} and {b.shape} do not multiply")
    shape = (*a.shape[:-1], b.shape[-1])
    out = given_or_made(row, out, a, shape)
    if out.size == 0:
        return out
    if addend is not None:
        addend = xpud.broadcast_to(addend, shape)
    if a.shape[-1] == 0:
        raise ValueError(f"matrices of shapes {a.shape} and {b.shape}: nothing to sum over")
    execute(row, (out,), (a, b) if addend is None else (a, b, addend), (float(beta) if addend is not None else 0.0, float(alpha), ACTIVATIONS[activation]))
    return out


def attention(row: dict, query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None,
              is_causal: bool = False) -> tuple[Array, Array]:
    """Returns softmax(scale query key' + mask) value, and the logarithm of the sums. query [B,H,S,D], key [B,G,T,D], value [B,G,T,E]; G
    divides H. mask broadcasts to [B,H,S,T]: bool (True attends), or of the query's type. scale defaults to 1 / sqrt(D)."""
    check_same_type(row, query, key, value)
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ValueError(f"attention takes four dimensions each: {shapes}")
    batch, heads, length, width = query.shape
    if key.shape != (batch, *key.shape[1:3], width) or value.shape[:3] != key.shape[:3] or key.shape[1] == 0 or heads % key.shape[1]:
        raise ValueError(f"attention of {shapes}")
    if mask is not None:
        if mask.dtype.name != "bool" and mask.dtype is not query.dtype:
            raise TypeError(f"a mask is of bool or {query.dtype.name}, not {mask.dtype.name}")
        mask = xpud.broadcast_to(mask, (batch, heads, length, key.shape[2]))
    out, logsumexp = like(query, (batch, heads, length, value.shape[3])), like(query, (batch, heads, length), _FLOAT32)
    if out.size and key.size:
        execute(row, (out, logsumexp), (query, key, value, mask), (width ** -0.5 if scale is None else float(scale), int(is_causal)))
    elif out.size:
        raise ValueError(f"attention needs at least one key: {shapes}")
    return out, logsumexp


_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def nll_loss(row: dict, *inputs: Array | None, reduction: str = "mean", ignore_index: int = -100):
    """Negative log likelihood of logarithms of probabilities [N,C] with targets [N], and weights [C] or None. Forward, from (logp, target,
    weight), returns (loss, total weight). Backward, from (gradient, logp, target, weight), returns the gradient of logp."""
    forward = row["outputs"] == 2
    gradient, (logp, target, *rest) = (None, inputs) if forward else (inputs[0], inputs[1:])
    check_same_type(row, logp, gradient)
    check_index(row, target)
    if logp.ndim != 2 or target.shape != logp.shape[:1] or reduction not in _REDUCTIONS:
        raise ValueError(f"{name_of(row)} of {logp.shape} with targets {target.shape}, {reduction!r}")
    operands = (logp, target.contiguous(), *map(_dense, rest))
    attributes = (_REDUCTIONS[reduction], ignore_index)
    if forward:
        out, total = like(logp, target.shape if reduction == "none" else ()), like(logp, ())
        execute(row, (out, total), operands, attributes)
        return out, total
    out = like(logp, logp.shape)
    execute(row, (out,), (gradient, *operands), attributes)
    return out


FAMILIES: dict[str, typing.Callable] = {each.__name__: each for each in (
    softmax, layer_norm, layer_norm_backward, gather, embedding, scatter_add, matmul, attention, nll_loss)}
FAMILIES |= {"softmax_backward": softmax, "nll_loss_backward": nll_loss}  # by the row's inputs


def by_descriptor(row: dict, *arrays: Array | typing.Sequence[Array], dtype: DType | None = None, **attributes):
    """Takes arrays in the order of the family's inputs, and its attributes by name. Returns one array, or a tuple if there are several outputs.
    If the size of the result depends on values, the op that finds it gives the last inputs, and the call waits for it."""
    size = 0
    if row["sized_by"] is not None:
        found = by_descriptor(_table.BY_NAME[row["sized_by"]], *arrays, **attributes)
        arrays = (*arrays, *(found if isinstance(found, tuple) else (found,)))
        size = int(arrays[-1].reshape(-1)[-1]) if arrays[-1].size else 0
    if not len(row["parameters"]) - row["optional"] <= len(arrays) <= len(row["parameters"]) or (dtype is not None and row["types"] != "sum"):
        raise TypeError(f"{name_of(row)} takes {', '.join(name for name, _ in row['parameters'])}, not {len(arrays)} arguments")
    flat, lists = [], []
    for (_, is_list), given in zip(row["parameters"], arrays):
        flat += given if is_list else [given]
        lists += [len(given)] if is_list else []
    if not flat:
        raise ValueError(f"{name_of(row)} needs at least one array")
    for array in flat:
        if array is not None:
            check_type(row, array)
    compute = dtype or flat[0].dtype
    if row["types"] == "sum" and dtype is None and compute.kind in "biu":
        compute = BY_NAME["int64"]
    elif dtype is not None:
        flat[0] = flat[0].astype(dtype)
    numbers = []
    for name, kind, default in row["attributes"]:
        value = attributes.pop(name, default)
        if value is None:
            raise TypeError(f"{name_of(row)} needs {name}=")
        if kind == "dimension":
            value = axis_of(value, max(flat[0].ndim, 1))
        numbers += [len(value), *value] if kind in ("integers", "reals") else [tuple(BY_NAME).index(value.name) if kind == "dtype" else value]
    if attributes:
        raise TypeError(f"{name_of(row)} has no {', '.join(attributes)}")
    call = (tuple(flat), tuple(numbers), compute, tuple(lists))
    made = _xpud.infer(row["number"], (), *call, size)
    if row["sized_by"] is not None:  # the first dimension is the innermost: the columns of the result are contiguous
        outputs = tuple(like(flat[0], shape[::-1], each).permute(*reversed(range(len(shape)))) for shape, each in made)
    else:
        outputs = tuple(like(flat[0], shape, each) for shape, each in made)
    if any(out.size for out in outputs):
        _xpud.execute(row["number"], outputs, *call)
    return outputs if len(outputs) > 1 else outputs[0]


def _described(row: dict) -> tuple[inspect.Signature, str]:
    """Returns the signature and the description of an op that by_descriptor calls."""
    kinds, first_optional = inspect.Parameter, len(row["parameters"]) - row["optional"]
    words = [kinds(name, kinds.POSITIONAL_ONLY, default=None if i >= first_optional else kinds.empty) for i, (name, _) in enumerate(row["parameters"])]
    names = [each[0] for each in (*row["parameters"], *row["attributes"])]
    if len(set(names)) < len(names) or not all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
        words = [kinds("arrays", kinds.VAR_POSITIONAL)]
    number = {"bool": bool, "integer": int, "dimension": int}
    words += [kinds(name, kinds.KEYWORD_ONLY, default=kinds.empty if default is None else number.get(kind, float)(default))
              for name, kind, default in row["attributes"]]
    words += [kinds("dtype", kinds.KEYWORD_ONLY, default=None)] if row["types"] == "sum" else []
    operands = ", ".join(f"{name} (a list of arrays)" if is_list else name for name, is_list in row["parameters"])
    text = f"The op {row['aten'].split('|')[0]} of the op table, of the family {row['family']}, on {operands}.\n" \
           f"Returns {'an array' if row['outputs'] == 1 else 'a tuple of %d arrays' % row['outputs']}."
    if row["sized_by"] is not None:
        text += " The size of the result depends on values, and the call waits for it."
    return inspect.Signature(words), text


def function_of(row: dict) -> typing.Callable:
    """Returns a function that calls the op of a row."""
    family = FAMILIES.get(row["family"], by_descriptor)

    def function(*arrays, **options):
        return family(row, *arrays, **options)

    if family is by_descriptor:
        function.__signature__, text = _described(row)
    else:
        signature = inspect.signature(family)
        function.__signature__, text = signature.replace(parameters=list(signature.parameters.values())[1:]), family.__doc__
    function.__name__ = function.__qualname__ = name_of(row)
    function.__module__ = "xpud.ops"
    function.__doc__ = f"{text}\n\nTypes: {', '.join(each.name for each in row['dtypes'])}."
    return function
