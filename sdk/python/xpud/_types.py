"""Element types."""

from __future__ import annotations

import typing

import numpy

from . import _xpud


class DType:
    """An element type of the device. Each type is one object, such as xpud.float32; compare with `is` or `==`.

    numpy: the equivalent NumPy type, or None (for bfloat16, which NumPy lacks).
    """

    __slots__ = ("name", "itemsize", "kind", "numpy")

    def __init__(self, name: str, itemsize: int, floating: bool):
        self.name = name
        self.itemsize = itemsize
        self.kind = "f" if floating else "b" if name == "bool" else "u" if name.startswith("u") else "i"
        self.numpy = None if name == "bfloat16" else numpy.dtype(name)

    def __repr__(self) -> str:
        return f"xpud.{self.name}"

    def __reduce__(self):
        return dtype, (self.name,)


TYPES: tuple[DType, ...] = tuple(DType(*description) for description in _xpud.types())
_xpud.register_types(TYPES)
BY_NAME = {each.name: each for each in TYPES}
_OF_PYTHON = {bool: BY_NAME["bool"], int: BY_NAME["int64"], float: BY_NAME["float32"]}

if typing.TYPE_CHECKING:
    DTypeLike = typing.Union[DType, str, type, numpy.dtype]


def dtype(like: DTypeLike) -> DType:
    """Returns the element type for `like`: a DType, its name, a NumPy type, or Python's bool, int (int64) and float (float32).

    Raises TypeError for types that the device lacks (complex numbers, unsigned integers beyond 8 bits).
    """
    if isinstance(like, DType):
        return like
    if like in _OF_PYTHON:
        return _OF_PYTHON[like]
    if isinstance(like, str) and like in BY_NAME:
        return BY_NAME[like]
    name = numpy.dtype(like).name  # also matches ml_dtypes' bfloat16
    if name in BY_NAME:
        return BY_NAME[name]
    raise TypeError(f"the device has no type {name}; it has {', '.join(BY_NAME)}")


def result_type(*types: DTypeLike) -> DType:
    """Returns the result type of an elementwise op for arrays of these types (sdk/python/README.md, Types)."""
    return _xpud.promote(*map(dtype, types))
