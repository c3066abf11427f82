"""xpud.Array."""

from __future__ import annotations

import itertools
import math
import typing

import numpy as np

import xpud  # its functions exist when methods are called

from . import _xpud
from ._types import BY_NAME, DType, dtype as to_dtype

if typing.TYPE_CHECKING:
    from ._session import Device
    from ._types import DTypeLike

_KDL_CPU = 1
_SHARED = 1 << 16  # exports of this many bytes and more are written directly by the device
_SHOWN = 1000  # arrays of at most this many elements are shown completely


class Array(_xpud.Array):
    """A strided view of device memory.

    Created by xpud.asarray and similar functions, not by its constructor. Slices, reshapes and permutations are views of the same memory. Ops are
    asynchronous: their errors are raised when a value is read, or by synchronize().
    """

    __slots__ = ()
    __array_ufunc__ = None  # makes NumPy call our operators for `numpy_array + array`, which raise an error

    # ---- values

    def numpy(self, out: np.ndarray | None = None) -> np.ndarray:
        """Waits and returns the values as a NumPy array; bfloat16 as float32.

        out: a contiguous NumPy array of the same shape and type to write to; the device writes directly to an array of xpud.empty_host.
        Raises ValueError or TypeError if `out` does not fit, and errors of earlier ops as Device.synchronize.
        """
        if self.dtype.numpy is None:
            return self.astype(BY_NAME["float32"]).numpy(out)
        if out is None:
            out = np.empty(self.shape, self.dtype.numpy)
        elif out.shape != self.shape or not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError(f"out of shape {out.shape} for an array of shape {self.shape}; it has to be contiguous and writable")
        elif out.dtype != self.dtype.numpy:
            raise TypeError(f"out of {out.dtype} for an array of {self.dtype.name}")
        source = self.contiguous()
        source._download(out.ctypes.data, source.nbytes)
        return out

    def __array__(self, dtype=None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("copy=False is not possible: the values are on a device")
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def item(self):
        """Returns the value of an array with one element as a Python number. Raises ValueError for other sizes."""
        if self.size != 1:
            raise ValueError(f"item() needs an array with one element, not of shape {self.shape}")
        return self.numpy().item()

    def tolist(self):
        """Returns the values as Python numbers, in nested lists."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.ndim:
            raise TypeError(f"only an integer array without dimensions is an index, not {self.dtype.name} of shape {self.shape}")
        return self.item()

    def __iter__(self):
        if self.ndim == 0:
            raise TypeError("an array without dimensions cannot be iterated over")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value) -> bool:
        return bool(xpud.any(self == value))

    def __repr__(self) -> str:
        prefix, suffix = "Array(", f", dtype={self.dtype.name}, device={self.device.index})"
        try:
            values = np.array2string(self._edges(), separator=", ", prefix=prefix, suffix=suffix, threshold=_SHOWN)
        except (RuntimeError, OSError, IndexError, MemoryError) as error:
            values = f"<{error}>"
        return f"{prefix}{values}{suffix}" if self.size else f"{prefix}[], shape={self.shape}{suffix}"

    def __format__(self, form: str) -> str:
        return format(self.item(), form) if form and self.ndim == 0 else repr(self)

    def _edges(self) -> np.ndarray:
        """Returns the values; for a large array, only those that NumPy shows, in an array whose other pages stay untouched."""
        if self.size <= _SHOWN:
            return self.numpy()
        shown = np.zeros(self.shape, self.dtype.numpy or np.float32)
        sides = [(slice(None),) if size <= 6 else (slice(0, 3), slice(size - 3, None)) for size in self.shape]
        for corner in itertools.product(*sides):
            shown[corner] = self[corner].numpy()
        return shown

    # ---- other libraries

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns (kDLCPU, 0): __dlpack__ exports a copy in host memory, because device memory belongs to another process."""
        return _KDL_CPU, 0

    def __dlpack__(self, *, stream=None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None,
                   copy: bool | None = None):
        """Returns a DLPack capsule of the values, copied to host memory; from 64 KiB on, the device writes that memory directly.

        Raises BufferError for copy=False, or if a device other than the CPU is requested.
        """
        if copy is False:
            raise BufferError("copy=False is not possible: the values are on a device of another process")
        if dl_device is not None and tuple(dl_device) != (_KDL_CPU, 0):
            raise BufferError(f"cannot export to DLPack device {dl_device}; only to the CPU, (1, 0)")
        source = self.contiguous()
        owner, address = _host_bytes(self.device, source.nbytes)
        source._download(address, source.nbytes)
        return _xpud.export_dlpack(owner, address, self.shape, self.dtype, max_version is not None and max_version[0] >= 1)

    def to_device(self, device: Device, /, *, stream=None) -> Array:
        """Returns the array itself if it is on `device`, otherwise a copy. The host is not involved if the devices reach each other."""
        device = xpud._session.device_of(device)
        if device == self.device:
            return self
        made = xpud.empty(self.shape, dtype=self.dtype, device=device)
        source = self.contiguous()
        if made._copy_from(source):
            return made
        owner, address = _host_bytes(self.device, source.nbytes)
        source._download(address, source.nbytes)
        made._upload(address, source.nbytes)
        return made

    # ---- views

    def _as(self, shape: typing.Sequence[int], strides: typing.Sequence[int], offset: int | None = None) -> Array:
        return self._view(tuple(shape), tuple(strides), self._offset if offset is None else offset)

    def reshape(self, *shape) -> Array:
        """Returns the elements in another shape; one size may be -1. A view, unless gaps make a copy necessary.

        Raises ValueError if the number of elements differs.
        """
        shape = _fill_in(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        source = self
        strides = _strides_of(source, shape)
        if strides is None:
            source = self.contiguous()
            strides = _row_major(shape)
        return source._as(shape, strides)

    def permute(self, *axes) -> Array:
        """Returns a view with the dimensions in another order. Raises ValueError unless each dimension is named once."""
        axes = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        order = [axis + self.ndim if axis < 0 else axis for axis in axes]
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"{tuple(axes)} is not a permutation of {self.ndim} dimensions")
        return self._as([self.shape[d] for d in order], [self._strides[d] for d in order])

    @property
    def T(self) -> Array:
        """Returns a view of a matrix with its dimensions swapped. Raises ValueError unless there are two dimensions."""
        if self.ndim != 2:
            raise ValueError(f"T needs two dimensions, not {self.ndim}; mT swaps the last two")
        return self.permute(1, 0)

    @property
    def mT(self) -> Array:
        """Returns a view with the last two dimensions swapped. Raises ValueError if there are fewer than two."""
        if self.ndim < 2:
            raise ValueError(f"mT needs two dimensions, not {self.ndim}")
        return self.permute(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)

    def contiguous(self) -> Array:
        """Returns the array itself if it is row-major without gaps, otherwise a row-major copy."""
        return self if self.is_contiguous else self.copy()

    def copy(self) -> Array:
        """Returns a row-major copy in new memory."""
        return +self

    def astype(self, dtype: DTypeLike, /, *, copy: bool = True) -> Array:
        """Converts to another element type. Returns a copy, unless copy is False and the type is the same."""
        dtype = to_dtype(dtype)
        return self if dtype is self.dtype and not copy else xpud._creation.converted(self, dtype)

    def __getitem__(self, key) -> Array:
        """Returns a view for integers, slices with positive steps, ... and None; a copy for integer arrays (broadcast together) or a mask."""
        view = self._cut(key)
        if view is not None:
            return view
        view, chosen = xpud._index.select(self, key)
        return xpud._functions.take_chosen(view, chosen) if chosen else view

    def __setitem__(self, key, value) -> None:
        """Writes through a view, or a number by a mask of the leading dimensions. Raises ValueError for integer arrays as positions."""
        xpud._functions.write(self, key, value)

    def var(self, *, axis: int | tuple[int, ...] | None = None, correction: float = 0.0, keepdims: bool = False) -> Array:
        """Like xpud.var."""
        return xpud.var(self, axis=axis, correction=correction, keepdims=keepdims)

    def std(self, *, axis: int | tuple[int, ...] | None = None, correction: float = 0.0, keepdims: bool = False) -> Array:
        """Like xpud.std."""
        return xpud.std(self, axis=axis, correction=correction, keepdims=keepdims)

    # ---- operators without slots

    def __matmul__(self, other: Array) -> Array:
        return xpud._functions.matmul(self, other)

    def __rmatmul__(self, other) -> Array:
        return xpud._functions.matmul(other, self)

    def __divmod__(self, other) -> tuple[Array, Array]:
        return self // other, self % other

    def __reduce__(self):
        """Pickles the array with its values. Unpickling puts it on the default device of the reading process."""
        if self.dtype.numpy is None:
            return _restore, (self.numpy(), self.dtype)
        return _restore, (self.numpy(), None)

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, _memo) -> Array:
        return self.copy()


def _restore(values: np.ndarray, dtype: DType | None) -> Array:
    return xpud.asarray(values, dtype=dtype)


def _host_bytes(device: Device, count: int) -> tuple[object, int]:
    """Returns the owner and the address of new host memory. Large sizes are shared with the daemon, if the daemon shares memory."""
    if count >= _SHARED:
        try:
            memory = _xpud.HostMemory(device, count)
            return memory, memory.address
        except (NotImplementedError, MemoryError, RuntimeError):
            pass
    memory = np.empty(max(count, 1), np.uint8)
    return memory, memory.ctypes.data


def _row_major(shape: typing.Sequence[int]) -> list[int]:
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return strides[::-1]


def _fill_in(array: Array, shape: typing.Sequence[int]) -> tuple[int, ...]:
    shape = tuple(shape)
    known = math.prod(size for size in shape if size != -1)
    if shape.count(-1) == 1 and known and array.size % known == 0:
        shape = tuple(array.size // known if size == -1 else size for size in shape)
    if math.prod(shape) != array.size or min(shape, default=0) < 0:
        raise ValueError(f"cannot reshape an array of shape {array.shape} to {shape}")
    return shape


def _strides_of(array: Array, shape: tuple[int, ...]) -> list[int] | None:
    """Returns strides that give the array's elements another shape, or None if gaps prevent that."""
    if array.is_contiguous:
        return _row_major(shape)
    # Each group of dimensions without gaps is one size, and the stride of its last dimension.
    runs: list[list[int]] = []
    for size, stride in zip(array.shape, array._strides):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1] = [runs[-1][0] * size, stride]
        else:
            runs.append([size, stride])
    strides, left, stride = [], 1, 0
    for size in reversed(shape):
        if left == 1 and size != 1:
            if not runs:
                return None
            left, stride = runs.pop()
        if left % size:
            return None
        strides.append(stride)
        left //= size
        stride *= size
    return strides[::-1] if left == 1 and not runs else None
