"""What stands in the brackets of array[...]: views where positions are regular, copies where an array or a mask says which."""

from __future__ import annotations

import operator
import typing

import numpy
import xpud

if typing.TYPE_CHECKING:
    from ._array import Array


class Selection(typing.NamedTuple):
    """A view, and the arrays that choose from it: (dimension of the view, positions)."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    chosen: tuple[tuple[int, typing.Any], ...]


def _is_array_like(key: object) -> bool:
    return isinstance(key, (xpud.Array, list, numpy.ndarray))


def _as_number(key: object) -> int:
    try:
        return operator.index(key)
    except TypeError:
        raise TypeError(f"an index is an integer, a slice, ..., None, or an array of integers or bool, not {key!r}") from None


def _complete(array: Array, key: object) -> list:
    """One entry for each dimension, besides None: `...` and what is left out become full slices."""
    keys = list(key) if isinstance(key, tuple) else [key]
    taken = sum(_dimensions(each) for each in keys if each is not None and each is not Ellipsis)
    dots = [i for i, each in enumerate(keys) if each is Ellipsis]
    if taken > array.ndim or len(dots) > 1:
        raise IndexError(f"{taken} indices for {array.ndim} dimensions" if len(dots) < 2 else "an index has at most one ...")
    rest = [slice(None)] * (array.ndim - taken)
    if not dots:
        return keys + rest
    return keys[:dots[0]] + rest + keys[dots[0] + 1:]


def _dimensions(key: object) -> int:
    """How many dimensions an index takes: a mask takes its own."""
    if not _is_array_like(key):
        return 1
    key = numpy.asarray(key) if isinstance(key, list) else key
    return key.ndim if str(getattr(key.dtype, "name", key.dtype)) == "bool" else 1


def select(array: Array, key: object) -> Selection:
    """IndexError: too many indices, or one out of range. ValueError: a negative step (xpud.flip copies)."""
    shape, strides, chosen = [], [], []
    offset, dimension = array._offset, 0
    for each in _complete(array, key):
        if each is None:
            shape.append(1)
            strides.append(0)
            continue
        size, stride = array.shape[dimension], array._strides[dimension]
        if isinstance(each, slice):
            start, stop, step = each.indices(size)
            if step < 0:
                raise ValueError("views have no negative steps; xpud.flip makes a reversed copy")
            count = len(range(start, stop, step))
            shape.append(count)
            strides.append(stride * step)
            offset += start * stride if count else 0
        elif _is_array_like(each):
            for positions in _positions(array, dimension, each):
                chosen.append((len(shape), positions))
                shape.append(array.shape[dimension])
                strides.append(array._strides[dimension])
                dimension += 1
            continue
        else:
            number = _as_number(each)
            if not -size <= number < size:
                raise IndexError(f"index {number} is out of range for dimension {dimension} with size {size}")
            offset += (number + size if number < 0 else number) * stride
        dimension += 1
    return Selection(tuple(shape), tuple(strides), offset, tuple(chosen))


def _positions(array: Array, dimension: int, key: object) -> tuple:
    """Positions in one dimension, or, for a mask, in each of its own: counted on the host, as they decide a shape."""
    key = numpy.asarray(key) if isinstance(key, list) else key
    if isinstance(key, numpy.ndarray) and key.size == 0:
        key = key.astype(numpy.int64)
    kind = key.dtype.kind
    if kind == "b":
        if key.shape != array.shape[dimension:dimension + key.ndim]:
            raise IndexError(f"a mask of shape {key.shape} for dimensions of {array.shape[dimension:dimension + key.ndim]}")
        return (key.numpy() if isinstance(key, xpud.Array) else key).nonzero()
    if kind not in "iu":
        raise TypeError(f"an index array holds integers or bool, not {key.dtype}")
    return (key,)
