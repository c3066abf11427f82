"""Keys of array[...] that contain arrays or masks. Integers, slices, ... and None alone are handled by `Array._cut`."""

from __future__ import annotations

import operator
import typing

import numpy
import xpud  # its functions exist when arrays are indexed

from ._array import Array


class Selection(typing.NamedTuple):
    """Returns a view, and the arrays that select from it: (dimension of the view, positions)."""
    view: Array
    chosen: list[tuple[int, typing.Any]]


def _is_array_like(key: object) -> bool:
    return isinstance(key, (Array, list, numpy.ndarray))


def _as_number(key: object) -> int:
    try:
        return operator.index(key)
    except TypeError:
        raise TypeError(f"an index must be an integer, a slice, ..., None, or an array of integers or bool, not {key!r}") from None


def _dimensions(key: object) -> int:
    """Returns how many dimensions an index consumes: a mask consumes its own."""
    if key is None:
        return 0
    if not _is_array_like(key):
        return 1
    key = numpy.asarray(key) if isinstance(key, list) else key
    return key.ndim if key.dtype.kind == "b" else 1


def _complete(array: Array, key: object) -> list:
    """Returns the entries, with full slices for `...`."""
    keys = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, each in enumerate(keys) if each is Ellipsis]
    taken = sum(_dimensions(each) for each in keys if each is not Ellipsis)
    if taken > array.ndim or len(dots) > 1:
        raise IndexError(f"{taken} indices for {array.ndim} dimensions" if len(dots) < 2 else "an index can have only one ...")
    return keys if not dots else keys[:dots[0]] + [slice(None)] * (array.ndim - taken) + keys[dots[0] + 1:]


def select(array: Array, key: object) -> Selection:
    """Raises IndexError for too many indices or one out of range, ValueError for a negative step, TypeError for something else."""
    view = array._cut(key)
    if view is not None:
        return Selection(view, [])
    plain: list[typing.Any] = []
    chosen: list[tuple[int, typing.Any]] = []
    dimension = made = 0  # the next dimension of the array, and of the view
    for each in _complete(array, key):
        if _is_array_like(each):
            for positions in _positions(array, dimension, each):
                chosen.append((made, positions))
                plain.append(slice(None))
                dimension, made = dimension + 1, made + 1
        elif each is None or isinstance(each, slice):
            plain.append(each)
            dimension, made = dimension + (each is not None), made + 1
        else:
            plain.append(_as_number(each))
            dimension += 1
    return Selection(array._cut(tuple(plain)), chosen)


def _positions(array: Array, dimension: int, key: object) -> tuple:
    """Returns positions in one dimension or, for a mask, in each of its dimensions."""
    key = numpy.asarray(key) if isinstance(key, list) else key
    if isinstance(key, numpy.ndarray) and key.size == 0:
        key = key.astype(numpy.int64)
    kind = key.dtype.kind
    if kind == "b":
        if key.shape != array.shape[dimension:dimension + key.ndim]:
            raise IndexError(f"a mask of shape {key.shape} for dimensions of {array.shape[dimension:dimension + key.ndim]}")
        return _nonzero(key)
    if kind not in "iu":
        raise TypeError(f"an index array must have integers or bool, not {key.dtype}")
    return (key,)


def _nonzero(mask: typing.Any) -> tuple:
    if not isinstance(mask, Array):
        return mask.nonzero()
    try:
        return xpud.nonzero(mask)
    except NotImplementedError:  # the daemon is older, and does not know the op
        return mask.numpy().nonzero()
