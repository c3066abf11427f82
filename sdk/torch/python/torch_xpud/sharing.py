"""Exchange of xpud tensors with other libraries (DLPack) and other processes (multiprocessing)."""

import functools
import sys
import threading
import warnings
from multiprocessing.reduction import ForkingPickler

import torch
from torch.overrides import has_torch_function_unary

# ---- DLPack


def _is_on_xpud(tensor):
    """Returns False for tensor subclasses too: PyTorch's methods pass them to __torch_function__, which calls again with plain tensors."""
    return not has_torch_function_unary(tensor) and tensor.device.type == "xpud"


def _wrap_dlpack_device(original):
    @functools.wraps(original)
    def __dlpack_device__(self):
        if not _is_on_xpud(self):
            return original(self)
        return torch.utils.dlpack.DLDeviceType.kDLExtDev, self.device.index

    return __dlpack_device__


def _wrap_dlpack(original):
    # NumPy accepts any capsule and only then fails with "Unsupported device in DLTensor." This gives a better error. NumPy is recognised by its
    # arguments: dl_device=None and no stream. torch.from_dlpack omits arguments that are None; libraries with devices pass a stream.
    @functools.wraps(original)
    def __dlpack__(self, **kwargs):
        if kwargs.get("dl_device", ...) is None and "stream" not in kwargs and _is_on_xpud(self):
            raise BufferError(f"The memory of this tensor is on {self.device}, which NumPy cannot read; use x.cpu(), or numpy.from_dlpack(x, device='cpu')")
        return original(self, **kwargs)

    return __dlpack__


# ---- multiprocessing


def _fail(message):
    """Raises RuntimeError. Called in the process that unpickles."""
    raise RuntimeError(message)


def _feeds_a_queue():
    """Returns whether this is the thread that pickles for a multiprocessing.Queue. It drops objects that it cannot pickle.

    Returns False for queues that report errors in their own way, such as those of concurrent.futures.
    """
    from multiprocessing.queues import Queue  # imported here, not at `import torch`

    thread = threading.current_thread()
    return getattr(thread, "_target", None) is Queue._feed and Queue._on_queue_feeder_error in thread._args


def _refuse(kind, device):
    message = (
        f"A {kind} on {device} cannot be sent to another process: xpud memory is not shared between processes yet. "
        "Send it as x.cpu() and move it to the device where it is received; in a DataLoader, return CPU tensors and move the batch in the main process."
    )
    if not _feeds_a_queue():
        raise RuntimeError(message)
    # The queue would drop the object, and its reader would wait forever. Send an object that raises in the reader instead.
    try:
        warnings.warn(f"{message} The queue's reader gets this error.", stacklevel=2)
    except Warning as warning:  # with -W error; nothing in this thread would catch it
        print(f"{type(warning).__name__}: {warning}", file=sys.stderr)
    return _fail, (message,)


def _guard(kind, reduce):
    @functools.wraps(reduce)
    def reduce_if_shareable(value):
        return _refuse(kind, value.device) if value.device.type == "xpud" else reduce(value)

    return reduce_if_shareable


def install():
    torch.Tensor.__dlpack_device__ = _wrap_dlpack_device(torch.Tensor.__dlpack_device__)
    torch.Tensor.__dlpack__ = _wrap_dlpack(torch.Tensor.__dlpack__)
    reducers = ForkingPickler._extra_reducers  # PyTorch's own, for tensors of other devices
    for kind, types in {"tensor": (torch.Tensor, torch.nn.Parameter), "storage": (torch.UntypedStorage,)}.items():
        for each in types:
            ForkingPickler.register(each, _guard(kind, reducers[each]))
