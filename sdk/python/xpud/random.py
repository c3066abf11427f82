"""Random numbers, generated on the device: a seed gives the same numbers on every device, and the same as torch_xpud.

Philox4x32-10. Each Generator uses its own counters; the module's functions use a Generator that xpud.random.seed sets.
"""

from __future__ import annotations

import secrets
import threading
import typing

from . import ops
from ._creation import empty
from ._types import BY_NAME, dtype as to_dtype

if typing.TYPE_CHECKING:
    from ._array import Array
    from ._creation import Shape, Where
    from ._types import DTypeLike

_FLOAT32, _INT64 = BY_NAME["float32"], BY_NAME["int64"]


class Generator:
    """Random numbers from a 64-bit seed; None: a seed of the operating system. Thread-safe."""

    def __init__(self, seed: int | None = None):
        self._lock = threading.Lock()
        self.seed(secrets.randbits(53) if seed is None else seed)

    def seed(self, seed: int) -> None:
        """Restarts with `seed`. Raises ValueError beyond 64 bits."""
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(f"a seed must fit into 64 bits: {seed}")
        with self._lock:
            self._seed = seed - (1 << 64) if seed >= 1 << 63 else seed
            self._offset = 0

    @property
    def state(self) -> tuple[int, int]:
        """The seed and the number of used counters; may be set."""
        return self._seed, self._offset

    @state.setter
    def state(self, state: tuple[int, int]) -> None:
        with self._lock:
            self._seed, self._offset = state

    def _draw(self, op, out: Array, parameters: tuple, compute, words: int = 1) -> Array:
        """Reserves `words` 32-bit words for each element."""
        with self._lock:
            seed, offset = self._seed, self._offset
            self._offset += (out.size * words + 3) // 4
        return op(*parameters, seed, offset, out=out, compute=compute) if out.size else out

    def uniform(self, shape: Shape, low: float = 0.0, high: float = 1.0, *, dtype: DTypeLike = _FLOAT32, device: Where = None) -> Array:
        """Returns numbers uniform in [low, high). Raises ValueError if low > high."""
        if low > high:
            raise ValueError(f"low {low} is beyond high {high}")
        out = _floating(shape, dtype, device)
        return self._draw(ops.uniform, out, (float(low), float(high)), out.dtype, _words(out))

    def normal(self, shape: Shape, mean: float = 0.0, std: float = 1.0, *, dtype: DTypeLike = _FLOAT32, device: Where = None) -> Array:
        """Returns normally distributed numbers. Raises ValueError for a negative deviation."""
        if std < 0:
            raise ValueError(f"the deviation {std} is negative")
        out = _floating(shape, dtype, device)
        return self._draw(ops.normal, out, (float(mean), float(std)), out.dtype)

    def exponential(self, shape: Shape, rate: float = 1.0, *, dtype: DTypeLike = _FLOAT32, device: Where = None) -> Array:
        """Returns exponentially distributed numbers with mean 1 / rate. Raises ValueError for a rate that is not positive."""
        if rate <= 0:
            raise ValueError(f"the rate {rate} is not positive")
        out = _floating(shape, dtype, device)
        return self._draw(ops.exponential, out, (float(rate),), out.dtype, _words(out))

    def integers(self, shape: Shape, low: int, high: int, *, dtype: DTypeLike = _INT64, device: Where = None) -> Array:
        """Returns integers in low, .., high - 1. Raises ValueError for an empty range, or if the type cannot hold it."""
        out = empty(shape, dtype=dtype, device=device)
        lowest, highest = _limits(out.dtype)
        if not low < high or low < lowest or high - 1 > highest or high - low >= 1 << 63:
            raise ValueError(f"no {out.dtype.name} from {low} to below {high}")
        return self._draw(ops.random, out, (low, high - low), _INT64, words=2)

    def bernoulli(self, shape: Shape, p: float = 0.5, *, dtype: DTypeLike = bool, device: Where = None) -> Array:
        """Returns 1 (True) with probability p, otherwise 0. Raises ValueError if p is not a probability."""
        if not 0 <= p <= 1:
            raise ValueError(f"{p} is not a probability")
        return self._draw(ops.bernoulli, empty(shape, dtype=dtype, device=device), (float(p),), _FLOAT32)


def _floating(shape, dtype, device) -> Array:
    if to_dtype(dtype).kind != "f":
        raise TypeError(f"random numbers have floating types, not {to_dtype(dtype).name}")
    return empty(shape, dtype=dtype, device=device)


def _words(out: Array) -> int:
    """Returns how many 32-bit words a uniform number uses: 53 bits in float64, 24 in other types."""
    return 2 if out.dtype.name == "float64" else 1


def _limits(dtype) -> tuple[int, int]:
    """Returns the range in which a type represents every integer."""
    if dtype.kind == "f":
        largest = 1 << {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype.name]
        return -largest, largest
    bits = 1 if dtype.kind == "b" else 8 * dtype.itemsize - (dtype.kind == "i")
    return (-(1 << bits) if dtype.kind == "i" else 0), (1 << bits) - 1


_generator = Generator()
seed = _generator.seed
uniform = _generator.uniform
normal = _generator.normal
exponential = _generator.exponential
integers = _generator.integers
bernoulli = _generator.bernoulli
