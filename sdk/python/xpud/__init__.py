"""Arrays on devices that an xpud daemon owns.

    import numpy, xpud
    a = xpud.asarray(numpy.ones((2, 3), numpy.float32))     # uploads; connects to a daemon, or starts one
    b = (a * 2).sum(axis=1)                                 # computed on the device, asynchronously
    b.numpy()                                               # waits and downloads

Names and behaviour follow the array API standard where it defines them, otherwise NumPy. All elementwise ops and reductions of the daemon's op
table are available, also under ATen's names (xpud.ops). An error of an op is raised when a value is read, or by xpud.synchronize(). All functions
are thread-safe. After a fork, a child gets a new connection and cannot use its parent's arrays.
"""

from . import _types  # imported first, because the op table refers to types
from . import _session, _table, _xpud
from ._array import Array
from ._xpud import ConnectionError, OutOfMemoryError

_xpud.register(Array, _session.Device)

from . import ops, random  # noqa: E402: they make arrays
from ._creation import (arange, asarray, empty, empty_host, empty_like, from_dlpack, full, full_like, ones, ones_like, zeros,  # noqa: E402
                        zeros_like)
from ._functions import (argsort, astype, broadcast_to, clip, concat, concatenate, cumprod, cumsum, cumulative_prod, cumulative_sum,  # noqa: E402
                         einsum, embedding, expand_dims, flip, gelu, isfinite, layer_norm, linear,
                         log_softmax, matmul, matrix_transpose, nll_loss, nonzero, permute_dims, positive, reshape,
                         scaled_dot_product_attention, softmax, sort, square, squeeze, stack, std, take, take_along_axis,
                         topk, var, vector_norm, where)
from ._safetensors import load_safetensors  # noqa: E402
from ._sharing import Ticket, attach, share  # noqa: E402
from ._session import Device, Session, connect, default_device, default_session, synchronize  # noqa: E402
from ._types import DType, dtype, result_type  # noqa: E402

__version__ = _xpud.version

globals().update(_types.BY_NAME)  # xpud.float32 and other types


def _as_method(op, name: str):
    def method(self, *arguments, **options):
        return op(self, *arguments, **options)

    method.__name__, method.__qualname__, method.__doc__ = name, f"Array.{name}", op.__doc__
    return method


for _name, _row in _table.exported(set(globals())).items():
    globals()[_name] = _row["op"]
    if _row["family"] == "reduce" and not hasattr(Array, _name):
        setattr(Array, _name, _as_method(_row["op"], _name))
del _name, _row
__all__ = sorted(name for name in globals() if not name.startswith("_"))
