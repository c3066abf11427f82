"""xpud.Array."""

from __future__ import annotations

import itertools
import math
import typing

import numpy as np

import xpud  # whose functions are there when methods are called

from . import _index, _xpud
from ._types import BY_NAME, DType, dtype as to_dtype

if typing.TYPE_CHECKING:
    from ._session import Device
    from ._types import DTypeLike

_KDL_CPU = 1
_SHARED = 1 << 16  # bytes from which an export is written by the device itself
_SHOWN = 1000  # elements that repr shows without leaving some out


class Array(_xpud.Array):
    """A strided view of device memory.

    Made by xpud.asarray and its like, never by its own name. Slices, reshapes and permutations are views of the same memory; ops are
    asynchronous: what goes wrong in them is raised where a value is read, or by synchronize().
    """

    __slots__ = ()
    __array_ufunc__ = None  # NumPy leaves `numpy_array + array` to us, who ask for xpud.asarray

    # ---- values

    def numpy(self, out: np.ndarray | None = None) -> np.ndarray:
        """The values as a NumPy array, once they are computed; bfloat16 as float32.

        out: a contiguous NumPy array of the same shape and type to write to; one of xpud.empty_host is written by the device itself.
        ValueError, TypeError: `out` does not fit. Errors of earlier ops: as Device.synchronize.
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
            raise ValueError("the values are on a device: an array of NumPy's is a copy")
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def item(self):
        """The value of an array of one element, as Python's number. ValueError: more elements, or none."""
        if self.size != 1:
            raise ValueError(f"an array of shape {self.shape} is not one value")
        return self.numpy().item()

    def tolist(self):
        """The values as Python's numbers, in nested lists."""
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
        """The values; of many, those that NumPy shows, in an array whose other pages are never touched."""
        if self.size <= _SHOWN:
            return self.numpy()
        shown = np.zeros(self.shape, self.dtype.numpy or np.float32)
        sides = [(slice(None),) if size <= 6 else (slice(0, 3), slice(size - 3, None)) for size in self.shape]
        for corner in itertools.product(*sides):
            shown[corner] = self[corner].numpy()
        return shown

    # ---- other libraries

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kDLCPU, 0): what __dlpack__ gives lies in host memory, as device memory is another process's."""
        return _KDL_CPU, 0

    def __dlpack__(self, *, stream=None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None,
                   copy: bool | None = None):
        """A DLPack capsule of the values, copied to host memory: from 64 KiB on memory that the device writes itself.

        BufferError: copy=False, or another device than the CPU is asked for.
        """
        if copy is False:
            raise BufferError("the values are on a device of another process: an export is a copy")
        if dl_device is not None and tuple(dl_device) != (_KDL_CPU, 0):
            raise BufferError(f"device {dl_device} is asked for; only the CPU, (1, 0), is there")
        source = self.contiguous()
        owner, address = _host_bytes(self.device, source.nbytes)
        source._download(address, source.nbytes)
        return _xpud.export_dlpack(owner, address, self.shape, self.dtype, max_version is not None and max_version[0] >= 1)

    def to_device(self, device: Device, /, *, stream=None) -> Array:
        """The array itself if it is there, else a copy."""
        device = xpud._session.device_of(device)
        if device == self.device:
            return self
        made = xpud.empty(self.shape, dtype=self.dtype, device=device)
        source = self.contiguous()
        owner, address = _host_bytes(self.device, source.nbytes)
        source._download(address, source.nbytes)
        made._upload(address, source.nbytes)
        return made

    # ---- views

    def _as(self, shape: typing.Sequence[int], strides: typing.Sequence[int], offset: int | None = None) -> Array:
        return self._view(tuple(shape), tuple(strides), self._offset if offset is None else offset)

    def reshape(self, *shape) -> Array:
        """The same elements in another shape; one size may be -1. A view, unless gaps make a copy necessary.

        ValueError: another number of elements.
        """
        shape = _fill_in(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        source = self
        strides = _strides_of(source, shape)
        if strides is None:
            source = self.contiguous()
            strides = _row_major(shape)
        return source._as(shape, strides)

    def permute(self, *axes) -> Array:
        """The dimensions in another order; a view. ValueError: not each dimension once."""
        axes = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        order = [axis + self.ndim if axis < 0 else axis for axis in axes]
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"{tuple(axes)} is no order of {self.ndim} dimensions")
        return self._as([self.shape[d] for d in order], [self._strides[d] for d in order])

    @property
    def T(self) -> Array:
        """The matrix with its dimensions swapped; a view. ValueError: not two dimensions."""
        if self.ndim != 2:
            raise ValueError(f"T is of matrices, not of {self.ndim} dimensions; mT swaps the last two")
        return self.permute(1, 0)

    @property
    def mT(self) -> Array:
        """The last two dimensions swapped; a view. ValueError: less than two."""
        if self.ndim < 2:
            raise ValueError(f"mT needs two dimensions, not {self.ndim}")
        return self.permute(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)

    def contiguous(self) -> Array:
        """The array itself if its elements lie in order without gaps, else a copy that does."""
        return self if self.is_contiguous else self.copy()

    def copy(self) -> Array:
        """A copy in memory of its own, row-major."""
        return +self

    def astype(self, dtype: DTypeLike, /, *, copy: bool = True) -> Array:
        """Converted to another element type: always a copy, unless copy is False and the type is the same."""
        dtype = to_dtype(dtype)
        return self if dtype is self.dtype and not copy else xpud._creation.converted(self, dtype)

    def __getitem__(self, key) -> Array:
        """A view by integers, slices with positive steps, ... and None; a copy by arrays: of integers (side by side), or a mask."""
        view = self._cut(key)
        if view is not None:
            return view
        view, chosen = _index.select(self, key)
        return xpud._functions.take_chosen(view, chosen) if chosen else view

    def __setitem__(self, key, value) -> None:
        """Writes through a view; by a mask of the array's leading dimensions, a number. Positions by integer arrays: ValueError."""
        xpud._functions.write(self, key, value)

    def var(self, *, axis: int | tuple[int, ...] | None = None, correction: float = 0.0, keepdims: bool = False) -> Array:
        """As xpud.var."""
        return xpud.var(self, axis=axis, correction=correction, keepdims=keepdims)

    def std(self, *, axis: int | tuple[int, ...] | None = None, correction: float = 0.0, keepdims: bool = False) -> Array:
        """As xpud.std."""
        return xpud.std(self, axis=axis, correction=correction, keepdims=keepdims)

    # ---- operators without slots

    def __matmul__(self, other: Array) -> Array:
        return xpud._functions.matmul(self, other)

    def __rmatmul__(self, other) -> Array:
        return xpud._functions.matmul(other, self)

    def __divmod__(self, other) -> tuple[Array, Array]:
        return self // other, self % other

    def __reduce__(self):
        """Pickled with its values; unpickled on the default device of who does that."""
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
    """Host memory: its owner and its address. Shared with the daemon where that pays and the daemon shares."""
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
        raise ValueError(f"an array of shape {array.shape} has no shape {shape}")
    return shape


def _strides_of(array: Array, shape: tuple[int, ...]) -> list[int] | None:
    """Strides by which the array's elements have another shape, or None where gaps forbid that."""
    if array.is_contiguous:
        return _row_major(shape)
    # Runs of dimensions that lie without gaps, as one size and the stride of its last dimension.
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
