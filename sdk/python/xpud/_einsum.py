"""xpud.einsum: each pair of arrays becomes one product of batches of matrices."""

from __future__ import annotations

import math
import re
import typing

import xpud

from ._array import Array


class _Labelled(typing.NamedTuple):
    """An array, and a label for each of its dimensions: a letter, or a negative number of a dimension that `...` stands for."""
    array: Array
    labels: tuple


def _parse(subscripts: str, arrays: typing.Sequence[Array]) -> tuple[list[_Labelled], tuple]:
    """Returns the arrays with their labels, and those of the result."""
    match = re.fullmatch(r"([A-Za-z.,]*)(?:->([A-Za-z.]*))?", subscripts.replace(" ", ""))
    if match is None:
        raise ValueError(f"subscripts are letters, commas, ... and ->, not {subscripts!r}")
    given, result = match.groups()
    words = given.split(",")
    if len(words) != len(arrays):
        raise ValueError(f"{subscripts!r} describes {len(words)} arrays, not {len(arrays)}")
    operands, most = [], 0
    for word, array in zip(words, arrays):
        if not isinstance(array, Array):
            raise TypeError(f"einsum takes xpud arrays, not {type(array).__name__}; xpud.asarray makes one")
        labels, more = _labels(word, array.ndim - len(word.replace("...", "")), subscripts)
        if len(labels) != array.ndim:
            raise ValueError(f"{word!r} has {len(labels)} dimensions, the array of shape {array.shape} has {array.ndim}")
        operands.append(_Labelled(array, labels))
        most = max(most, more)
    if any(array.dtype is not arrays[0].dtype for array in arrays):
        raise TypeError(f"einsum of {', '.join(array.dtype.name for array in arrays)}; convert with astype")
    if result is not None:
        labels, _ = _labels(result, most, subscripts)
        if len(set(labels)) < len(labels) or not set(labels) <= {label for each in operands for label in each.labels}:
            raise ValueError(f"the result of {subscripts!r} repeats a letter, or has one that no array has")
        return operands, labels
    letters = given.replace(",", "").replace(".", "")
    return operands, (*range(-most, 0), *sorted(letter for letter in set(letters) if letters.count(letter) == 1))


def _labels(word: str, more: int, subscripts: str) -> tuple[tuple, int]:
    """Returns the labels of a word whose `...` stands for `more` dimensions, and that number."""
    if "." not in word:
        return tuple(word), 0
    before, dots, after = word.partition("...")
    if not dots or "." in before + after or more < 0:
        raise ValueError(f"{word!r} in {subscripts!r} does not fit the array, or has dots other than one ...")
    return (*before, *range(-more, 0), *after), more


def _sizes(operands: typing.Sequence[_Labelled]) -> dict:
    sizes: dict = {}
    for array, labels in operands:
        for label, size in zip(labels, array.shape):
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
            elif size not in (1, sizes[label]):
                raise ValueError(f"the dimensions called {label if isinstance(label, str) else '...'} have sizes {sizes[label]} and {size}")
    return sizes


def _with_diagonals(operand: _Labelled, sizes: dict) -> _Labelled:
    """Returns a view in which each label appears once: of a repeated one, the diagonal."""
    array, labels = operand
    array = xpud.broadcast_to(array, tuple(sizes[label] for label in labels))
    strides = dict.fromkeys(labels, 0)
    for label, stride in zip(labels, array._strides):
        strides[label] += stride
    return _Labelled(array._as([sizes[label] for label in strides], list(strides.values())), tuple(strides))


def _summed(operand: _Labelled, kept: set) -> _Labelled:
    """Sums over the dimensions whose labels are not in `kept`."""
    gone = tuple(d for d, label in enumerate(operand.labels) if label not in kept)
    if not gone:
        return operand
    array = operand.array.sum(axis=gone, dtype=operand.array.dtype)
    return _Labelled(array, tuple(label for label in operand.labels if label in kept))


def _grouped(operand: _Labelled, *groups: typing.Sequence) -> Array:
    """Returns the array with one dimension for each group of labels."""
    order = [operand.labels.index(label) for group in groups for label in group]
    array = operand.array.permute(order) if order else operand.array
    sizes = dict(zip(operand.labels, operand.array.shape))
    return array.reshape([math.prod(sizes[label] for label in group) for group in groups])


def _product(a: _Labelled, b: _Labelled, kept: set, sizes: dict) -> _Labelled:
    """Returns the product of two, summed over the labels that are not in `kept`."""
    a, b = _summed(a, kept | set(b.labels)), _summed(b, kept | set(a.labels))
    both = [label for label in a.labels if label in b.labels]
    batch, inner = [label for label in both if label in kept], [label for label in both if label not in kept]
    rows = [label for label in a.labels if label not in both]
    columns = [label for label in b.labels if label not in both]
    labels = (*batch, *rows, *columns)
    if a.array.dtype.kind != "f" or not math.prod(sizes[label] for label in inner):
        left = _grouped(a, batch, rows, (), inner)
        right = _grouped(b, batch, (), columns, inner)
        made = (left * right).sum(axis=3, dtype=a.array.dtype)
    else:
        made = _grouped(a, batch, rows, inner) @ _grouped(b, batch, inner, columns)
    return _Labelled(made.reshape([sizes[label] for label in labels]), labels)


def einsum(subscripts: str, arrays: typing.Sequence[Array]) -> Array:
    operands, result = _parse(subscripts, arrays)
    sizes = _sizes(operands)
    operands = [_with_diagonals(operand, sizes) for operand in operands]
    total = operands[0]
    for at, operand in enumerate(operands[1:], 2):
        kept = set(result).union(*(later.labels for later in operands[at:]))
        total = _product(total, operand, kept, sizes)
    total = _summed(total, set(result))
    return _grouped(total, *((label,) for label in result)).copy()
