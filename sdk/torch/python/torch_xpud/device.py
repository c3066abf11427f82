"""torch.xpud: devices, streams, memory and random state, with the names of torch.cuda."""

import torch

from . import _C, memory, random, ranges, streams  # noqa: F401  torch.xpud.memory
from ._C import InvalidIndexError
from .index import index_of as _index
from .memory import (device_memory_used, empty_cache, get_per_process_memory_fraction, max_memory_allocated, max_memory_reserved,
                     mem_get_info, memory_allocated, memory_reserved, memory_snapshot, memory_stats, memory_stats_as_nested_dict,
                     memory_summary, reset_accumulated_memory_stats, reset_peak_memory_stats, set_per_process_memory_fraction)
from .random import (get_rng_state, get_rng_state_all, initial_seed, manual_seed, manual_seed_all, seed, seed_all, set_rng_state, set_rng_state_all)
from .ranges import range_pop, range_push
from .streams import Event, Stream, StreamContext, current_stream, default_stream, is_current_stream_capturing, set_stream, stream

__all__ = [
    "Event",
    "InvalidIndexError",
    "Stream",
    "StreamContext",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "fallback_counts",
    "set_nice",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "range_pop",
    "range_push",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


# ---- devices


def is_available():
    return device_count() > 0


def device_count():
    """Returns the number of devices. Returns 0, with a warning that gives the reason, if no daemon can be reached."""
    return torch._C._accelerator_hooks_device_count()


def is_initialized():
    return _C.is_connected()


def init():
    _C.connect()


def _lazy_init():
    _C.connect()


def _is_in_bad_fork():
    return _C.is_in_bad_fork()


def current_device():
    return torch._C._accelerator_getDeviceIndex()


def set_device(device):
    index = _index(device)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(index)


class device:  # noqa: N801  named as in torch.cuda
    """Makes a device current within a `with` block."""

    def __init__(self, device):
        self.idx = _index(device)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = torch._C._accelerator_exchangeDevice(self.idx)
        return self

    def __exit__(self, *exc):
        torch._C._accelerator_maybeExchangeDevice(self.prev_idx)
        return False


class device_of(device):  # noqa: N801
    """Makes a tensor's device current. Does nothing for a tensor that is not on xpud."""

    def __init__(self, tensor):
        self.idx = tensor.get_device() if tensor.device.type == "xpud" else -1
        self.prev_idx = -1


class DeviceProperties:
    """Properties of a device: name, kind ("cpu" or "gpu"), vendor, total_memory in bytes, compute_units, pci_address (empty: not known).

    Where the address is known, pci_domain_id, pci_bus_id and pci_device_id are its numbers, as torch.cuda has them.
    """

    def __init__(self, values):
        self.__dict__.update(values)
        if self.pci_address:
            self.pci_domain_id, self.pci_bus_id, self.pci_device_id = (int(part, 16) for part in self.pci_address.partition(".")[0].split(":"))

    @property
    def multi_processor_count(self):
        """The name that torch.cuda and Inductor have for compute_units."""
        return self.compute_units

    def __repr__(self):
        return "DeviceProperties(" + ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items()) + ")"


def _known_index(device):
    """Returns the index of `device`. Raises AssertionError if there is no such device, as torch.cuda does."""
    index = _index(device)
    if not 0 <= index < device_count():
        raise AssertionError("Invalid device id")
    return index


def get_device_properties(device=None):
    """Returns the DeviceProperties of a device. Raises AssertionError if there is no such device."""
    return DeviceProperties(_C.device_properties(_known_index(device)))


def get_device_name(device=None):
    return get_device_properties(device).name


def get_device_capability(device=None):
    """Returns the properties of a device as a dict, as torch.xpu does. torch.cuda has a pair of numbers, which xpud's devices do not have."""
    return dict(vars(get_device_properties(device)))


def can_device_access_peer(device, peer_device):
    """Returns False: devices share no memory. Raises AssertionError if there is no such device."""
    _known_index(device)
    _known_index(peer_device)
    return False


def get_arch_list():
    """Returns []: the daemon compiles kernels for the device that it finds."""
    return []


def get_gencode_flags():
    """Returns "": no kernel is compiled before it runs."""
    return ""


def address():
    """Returns the address of this process's daemon: a socket's path, or HOST:PORT. Returns "" for the null device."""
    return _C.address()


def fallback_counts():
    """Returns how often each operator without a device kernel ran on the CPU in this process: {"aten::sort.stable": 2}."""
    return _C.fallback_counts()


def set_nice(nice):
    """Lowers this process among those of its user or claim, from now on: 0 (as it begins, or $XPUD_NICE) to 19, each a fifth less of
    the device's time beside the others. Raises ValueError for another number, and for one below the present nice."""
    _C.set_nice(nice)


def synchronize(device=None):
    """Waits for all streams of a device. Raises the error of an earlier operator, if there is one."""
    torch._C._accelerator_synchronizeDevice(_index(device))


# ---- random state


def _generators():
    return tuple(_C.default_generator(i) for i in range(max(device_count(), 1)))


def __getattr__(name):
    if name == "default_generators":
        return _generators()
    if name == "_initialized":  # torch.utils.checkpoint saves the random state only if this is true
        return _C.is_connected()
    raise AttributeError(f"module 'torch.xpud' has no attribute '{name}'")


# ---- automatic mixed precision


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation=True):
    return True


def is_tf32_supported():
    """Returns False: matrix products of float32 are computed in float32."""
    return False
