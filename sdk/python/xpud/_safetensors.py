"""The safetensors format: eight bytes with a length, that many bytes of JSON with each tensor's type, shape and position, then the tensors' bytes,
row-major and little-endian."""

from __future__ import annotations

import json
import math
import operator
import os
import typing

import numpy

from ._array import Array
from ._creation import from_address
from ._session import Device, device_of
from ._types import BY_NAME

if typing.TYPE_CHECKING:
    from ._creation import Where

_TYPES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
          "F32": "float32", "F64": "float64"}


def _header(path: str | os.PathLike, pages: numpy.ndarray) -> tuple[dict, int]:
    length = int.from_bytes(pages[:8].tobytes(), "little")
    if len(pages) < 8 or length > len(pages) - 8:
        raise ValueError(f"{os.fspath(path)} is not a safetensors file: its header would have {length} of {len(pages)} bytes")
    try:
        header = json.loads(pages[8:8 + length].tobytes())
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is not a safetensors file: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{os.fspath(path)} is not a safetensors file: its header is a {type(header).__name__}")
    header.pop("__metadata__", None)
    return header, 8 + length


def load_safetensors(path: str | os.PathLike, *, device: Where = None, names: typing.Iterable[str] | None = None) -> dict[str, Array]:
    """Loads the tensors of a safetensors file onto a device: all of them, or those in `names`.

    The file is mapped, and its pages go directly to the daemon's staging memory, so this process makes no second copy of the weights.
    Raises ValueError for an invalid file, KeyError for an unknown name, and TypeError for a type that the device lacks.
    """
    place = device_of(device)
    if os.path.getsize(path) == 0:
        raise ValueError(f"{os.fspath(path)} is empty")
    pages = numpy.memmap(path, numpy.uint8, "r")
    header, start = _header(path, pages)
    return {name: _tensor(name, header[name], pages[start:], place) for name in (header if names is None else names)}


def _tensor(name: str, entry: dict, data: numpy.ndarray, device: Device) -> Array:
    try:
        kind, shape, (first, end) = str(entry["dtype"]), tuple(map(operator.index, entry["shape"])), map(operator.index, entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: {entry!r} does not describe a tensor ({error})") from None
    if kind not in _TYPES:
        raise TypeError(f"{name} is of {kind}, which the device lacks")
    dtype = BY_NAME[_TYPES[kind]]
    if not 0 <= first <= end <= len(data) or end - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name}: bytes {first} to {end} of {len(data)} for {kind} of shape {shape}")
    return from_address(data[first:end].ctypes.data, shape, dtype, device)
