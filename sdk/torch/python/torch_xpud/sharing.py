"""Exchange of xpud tensors with other libraries (DLPack) and other processes (multiprocessing)."""

import functools
import sys
import threading
import warnings
from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing import reductions
from torch.overrides import has_torch_function_unary

from . import _C

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
#
# Storages are sent by reference: as a ticket, with which another process gets the same memory. Tensors and parameters are made of theirs by PyTorch's
# own functions. Each pickle takes a ticket for each storage in it, and each ticket is for one unpickling.


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


def _refuse(message):
    """Has the reader of a queue fail, too: the queue would drop the object, and its reader would wait forever."""
    try:
        warnings.warn(f"{message} The queue's reader gets this error.", stacklevel=2)
    except Warning as warning:  # with -W error; nothing in this thread would catch it
        print(f"{type(warning).__name__}: {warning}", file=sys.stderr)
    return _fail, (message,)


def _key(memory):
    return "xpud", memory


def _rebuild_storage(ticket, size):
    """Returns the storage of a ticket: if this process has the memory already, as it is."""
    torch.device("xpud")  # beside another accelerator: the first use of xpud
    key = _key(ticket[2])
    storage = reductions.storage_from_cache(torch.UntypedStorage, key)
    if storage is not None:
        _C.return_ticket(ticket)
        return storage
    storage = _C.attach_storage(ticket, size)
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return storage


def _rebuild_empty_storage(device):
    return torch.UntypedStorage(0, device=device)


def _wrap_reduce_storage(original):
    @functools.wraps(original)
    def reduce_storage(storage):
        if storage.device.type != "xpud":
            return original(storage)
        if storage.nbytes() == 0:
            return _rebuild_empty_storage, (str(storage.device),)
        try:
            ticket = _C.share_storage(storage)
        except Exception as error:
            if not _feeds_a_queue():
                raise
            return _refuse(f"A tensor on {storage.device} cannot be sent to another process: {error}")
        reductions.shared_cache[_key(ticket[2])] = reductions.StorageWeakRef(storage)
        return _rebuild_storage, (ticket, storage.nbytes())

    return reduce_storage


def _wrap_is_shared(original):
    @functools.wraps(original)
    def is_shared(self):
        return self.device.type == "xpud" or original(self)

    return is_shared


def install():
    torch.Tensor.__dlpack_device__ = _wrap_dlpack_device(torch.Tensor.__dlpack_device__)
    torch.Tensor.__dlpack__ = _wrap_dlpack(torch.Tensor.__dlpack__)
    torch.UntypedStorage.is_shared = _wrap_is_shared(torch.UntypedStorage.is_shared)
    ForkingPickler.register(torch.UntypedStorage, _wrap_reduce_storage(ForkingPickler._extra_reducers[torch.UntypedStorage]))
