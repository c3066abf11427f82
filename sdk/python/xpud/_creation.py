"""Functions that create arrays."""

from __future__ import annotations

import math
import typing

import numpy

from . import _xpud
from ._array import Array
from ._session import Device, Session, device_of
from ._table import BY_NAME as OPS
from ._types import BY_NAME, DType, TYPES, dtype as to_dtype

if typing.TYPE_CHECKING:
    from ._types import DTypeLike

    Where = typing.Union[Device, Session, int, None]
    Shape = typing.Union[int, typing.Sequence[int]]

_FLOAT32 = BY_NAME["float32"]


def _shape(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def empty(shape: Shape, *, dtype: DTypeLike = _FLOAT32, device: Where = None) -> Array:
    """Returns an uninitialised array. Raises ValueError for negative sizes or more than 8 dimensions, and xpud.OutOfMemoryError."""
    return _xpud.empty(device_of(device), to_dtype(dtype), _shape(shape))


def full(shape: Shape, fill_value, *, dtype: DTypeLike | None = None, device: Where = None) -> Array:
    """Returns an array filled with the number `fill_value`. The default dtype is the number's: int64, float32 or bool."""
    array = empty(shape, dtype=type(fill_value) if dtype is None else dtype, device=device)
    return OPS["fill"]["op"](fill_value, out=array, compute=array.dtype)


def zeros(shape: Shape, *, dtype: DTypeLike = _FLOAT32, device: Where = None) -> Array:
    """Returns an array of zeros. Errors as for empty."""
    return full(shape, 0, dtype=dtype, device=device)


def ones(shape: Shape, *, dtype: DTypeLike = _FLOAT32, device: Where = None) -> Array:
    """Returns an array of ones. Errors as for empty."""
    return full(shape, 1, dtype=dtype, device=device)


def empty_like(array: Array, *, dtype: DTypeLike | None = None) -> Array:
    """Returns an uninitialised array with the shape, device and (by default) type of `array`."""
    return empty(array.shape, dtype=array.dtype if dtype is None else dtype, device=array.device)


def full_like(array: Array, fill_value, *, dtype: DTypeLike | None = None) -> Array:
    """Returns an array filled with `fill_value`; shape, device and type as for empty_like."""
    return full(array.shape, fill_value, dtype=array.dtype if dtype is None else dtype, device=array.device)


def zeros_like(array: Array, *, dtype: DTypeLike | None = None) -> Array:
    """Returns an array of zeros; shape, device and type as for empty_like."""
    return full_like(array, 0, dtype=dtype)


def ones_like(array: Array, *, dtype: DTypeLike | None = None) -> Array:
    """Returns an array of ones; shape, device and type as for empty_like."""
    return full_like(array, 1, dtype=dtype)


def arange(start, stop=None, step=1, *, dtype: DTypeLike | None = None, device: Where = None) -> Array:
    """Returns start, start + step, .. before stop; a single number is stop. int64 for integers, otherwise float32. Raises ValueError for step 0."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("step must not be 0")
    whole = all(isinstance(each, int) for each in (start, stop, step))
    count = len(range(start, stop, step)) if whole else max(math.ceil((stop - start) / step), 0)
    array = empty(count, dtype=(int if whole else float) if dtype is None else dtype, device=device)
    return OPS["arange"]["op"](start, step, out=array, compute=array.dtype)


def asarray(values, /, *, dtype: DTypeLike | None = None, device: Where = None, copy: bool | None = None) -> Array:
    """Returns an array of the values: of a NumPy array, of anything that NumPy converts (lists, numbers, objects with __array__), of an object with
    __dlpack__, or of an xpud.Array, which is returned itself if type and device match, unless copy is True.

    Types stay; Python's integers become int64, its floats float32. Values of another type than `dtype` are converted on the device.
    Raises TypeError for a type that the device lacks, and ValueError for copy=False if only a copy is possible.
    """
    if isinstance(values, Array):
        return _moved(values, dtype, device, copy)
    if copy is False:
        raise ValueError("host values need a copy; use copy=None or copy=True")
    if hasattr(values, "__dlpack__") and not isinstance(values, (numpy.ndarray, numpy.generic)):
        made = from_dlpack(values, device=device)
        return made if dtype is None else made.astype(dtype, copy=False)
    plain = not hasattr(values, "__array__")
    host = numpy.asarray(values)
    if plain and host.dtype == numpy.float64:
        host = host.astype(numpy.float32) if dtype is None else host
    made = _uploaded(host, to_dtype(host.dtype), device)
    return made if dtype is None else made.astype(dtype, copy=False)


def _moved(array: Array, dtype: DTypeLike | None, device: Where, copy: bool | None) -> Array:
    moved = array if device is None else array.to_device(device_of(device))
    made = moved if dtype is None else moved.astype(dtype, copy=False)
    if copy is False and made is not array:
        raise ValueError("another type or device needs a copy")
    return made.copy() if copy and made is array else made


def _uploaded(host: numpy.ndarray, dtype: DType, device: Where) -> Array:
    host = numpy.ascontiguousarray(host, host.dtype.newbyteorder("=")).reshape(host.shape)  # ascontiguousarray adds a dimension to 0-d arrays
    array = empty(host.shape, dtype=dtype, device=device)
    array._upload(host.ctypes.data, host.nbytes)
    return array


def from_address(address: int, shape: Shape, dtype: DType, device: Where = None) -> Array:
    """Returns an array of row-major host bytes, which are sent to the device without an intermediate copy."""
    array = empty(shape, dtype=dtype, device=device)
    array._upload(address, array.nbytes)
    return array


def from_dlpack(values, /, *, device: Where = None, copy: bool | None = None) -> Array:
    """Returns an array of a DLPack object in CPU memory. Raises ValueError for copy=False, and BufferError for another device or type."""
    if isinstance(values, Array):
        return _moved(values, None, device, copy)
    if copy is False:
        raise ValueError("host values need a copy; use copy=None or copy=True")
    kind, _ = values.__dlpack_device__()
    if kind != 1:
        raise BufferError(f"the values are on DLPack device type {kind}; only the CPU's (1) can be read")
    try:
        capsule = values.__dlpack__(max_version=(1, 0))
    except TypeError:  # made before DLPack 1.0
        capsule = values.__dlpack__()
    address, shape, strides, dtype = _xpud.import_dlpack(capsule)
    if strides is not None and 0 not in shape and strides != _packed(shape):
        address, host = _gathered(address, shape, strides, dtype)
    array = from_address(address, shape, dtype, device)
    del capsule  # keeps the memory alive until here
    return array


def _packed(shape: typing.Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[d + 1:]) for d in range(len(shape)))


def _gathered(address: int, shape, strides, dtype: DType) -> tuple[int, numpy.ndarray]:
    """Returns strided host bytes in order, and their address. 16-bit integers stand for bfloat16."""
    words = dtype.numpy or numpy.dtype("int16")

    class Bytes:
        __array_interface__ = {"version": 3, "shape": shape, "typestr": words.str, "data": (address, True),
                               "strides": tuple(stride * words.itemsize for stride in strides)}

    host = numpy.ascontiguousarray(numpy.asarray(Bytes()))
    return host.ctypes.data, host


def empty_host(shape: Shape, dtype: DTypeLike = _FLOAT32, *, device: Where = None) -> numpy.ndarray:
    """Returns an uninitialised NumPy array in memory that the daemon and its devices share: asarray(it), and array.numpy(out=it), copy directly
    between it and the device. Ordinary memory if the daemon shares none. A forked child must not touch it (segmentation fault).
    """
    dtype = to_dtype(dtype)
    if dtype.numpy is None:
        raise TypeError(f"NumPy has no {dtype.name}")
    shape = _shape(shape)
    count = math.prod(shape) * dtype.itemsize
    try:
        memory = _xpud.HostMemory(device_of(device), count)
    except NotImplementedError:
        return numpy.empty(shape, dtype.numpy)
    if count == 0:
        return numpy.empty(shape, dtype.numpy)
    return numpy.asarray(_Shared(memory, shape, dtype.numpy))


class _Shared:
    """Shared memory for NumPy; NumPy's arrays keep this object, and this object keeps the memory."""

    def __init__(self, memory: object, shape: tuple[int, ...], dtype: numpy.dtype):
        self._memory = memory
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (memory.address, False)}


def converted(array: Array, dtype: DType) -> Array:
    """Returns a row-major copy, of another type or of the same."""
    return OPS["_copy_from"]["op"](array, out=array._new(dtype, array.shape))
