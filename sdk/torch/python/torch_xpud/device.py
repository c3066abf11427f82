"""torch.xpud: devices, streams, memory and random state, with the names of torch.cuda."""

import os

import torch

from . import _C

__all__ = [
    "Event",
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
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
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
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


def _index(device=None, optional=True):
    """Returns the index of `device`: None (the current one), int, str or torch.device. Raises ValueError for a device of another type."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    if device.type != "xpud":
        raise ValueError(f"Expected an xpud device, but got: {device}")
    return current_device() if device.index is None else device.index


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
    """Properties of a device: name, kind ("cpu" or "gpu"), vendor, total_memory in bytes, compute_units."""

    def __init__(self, values):
        self.__dict__.update(values)

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


def synchronize(device=None):
    """Waits for all streams of a device. Raises the error of an earlier operator, if there is one."""
    torch._C._accelerator_synchronizeDevice(_index(device))


# ---- streams and events


class _OnXpud(type):
    """Metaclass of Stream and Event. torch.xpud.Stream(..) creates a torch.Stream on an xpud device, and isinstance accepts such streams."""

    def __instancecheck__(cls, value):
        return isinstance(value, cls.base) and value.device.type == "xpud"


class Stream(metaclass=_OnXpud):
    """An in-order queue of work on one device. priority: lower runs first; 0 is normal, -1 is high."""

    base = torch.Stream

    def __new__(cls, device=None, priority=0):
        return torch.Stream(device=torch.device("xpud", _index(device)), priority=priority)


class Event(metaclass=_OnXpud):
    """A point in a stream. Raises ValueError if `interprocess` is true."""

    base = torch.Event

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        if interprocess:
            raise ValueError("xpud has no interprocess events")
        return torch.Event(device="xpud", enable_timing=enable_timing)


def current_stream(device=None):
    return torch._C._accelerator_getStream(_index(device))


def default_stream(device=None):
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def set_stream(stream):
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Makes a stream and its device current within a `with` block. Does nothing for None."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is None:
            return None
        self._previous_device = current_device()
        self._previous_stream = torch._C._accelerator_getStream(self.stream.device_index)
        torch._C._accelerator_setStream(self.stream)
        return self.stream

    def __exit__(self, *exc):
        if self.stream is None:
            return
        torch._C._accelerator_setStream(self._previous_stream)
        torch._C._accelerator_setDeviceIndex(self._previous_device)


def stream(stream):
    """Returns a StreamContext, which makes a stream and its device current within a `with` block."""
    return StreamContext(stream)


def is_current_stream_capturing():
    """Returns False: xpud has no graphs that a program captures."""
    return False


# ---- memory


def memory_stats(device=None):
    return torch.accelerator.memory_stats(_index(device))


def memory_stats_as_nested_dict(device=None):
    """Returns memory_stats() as nested dicts: ["allocated_bytes"]["all"]["current"] is memory_stats()["allocated_bytes.all.current"]."""
    nested = {}
    for name, value in memory_stats(device).items():
        *groups, last = name.split(".")
        inner = nested
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return nested


def memory_summary(device=None, abbreviated=False):
    """Returns a table of the device's memory, as text. `abbreviated` changes nothing: the table is short."""
    rows = [(name, function(device) / 2**20) for name, function in (("allocated", memory_allocated), ("peak", max_memory_allocated),
                                                                    ("reserved", memory_reserved))]
    return "\n".join([f"memory of {get_device_name(device)} (MiB)"] + [f"  {name:<10} {value:10.1f}" for name, value in rows])


def memory_allocated(device=None):
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device=None):
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device=None):
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device=None):
    return torch.accelerator.max_memory_reserved(_index(device))


def reset_accumulated_memory_stats(device=None):
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def reset_peak_memory_stats(device=None):
    torch.accelerator.reset_peak_memory_stats(_index(device))


def mem_get_info(device=None):
    """Returns (free, total) bytes."""
    return torch.accelerator.get_memory_info(_index(device))


def device_memory_used(device=None):
    """Returns the bytes of the device's memory that all its clients use."""
    free, total = mem_get_info(device)
    return total - free


def empty_cache():
    """Does nothing: the daemon caches memory for all its clients."""


# ---- random state


def _generators():
    return tuple(_C.default_generator(i) for i in range(max(device_count(), 1)))


def __getattr__(name):
    if name == "default_generators":
        return _generators()
    if name == "_initialized":  # torch.utils.checkpoint saves the random state only if this is true
        return _C.is_connected()
    raise AttributeError(f"module 'torch.xpud' has no attribute '{name}'")


def manual_seed(seed):
    """Seeds the current device's generator."""
    _C.default_generator(current_device()).manual_seed(int(seed))


def manual_seed_all(seed):
    _C.manual_seed_all(int(seed) & 0xFFFFFFFFFFFFFFFF)


def seed():
    _C.default_generator(current_device()).seed()


def seed_all():
    _C.manual_seed_all(int.from_bytes(os.urandom(8), "little"))


def initial_seed():
    return _C.default_generator(current_device()).initial_seed()


def get_rng_state(device="xpud"):
    return _C.default_generator(_index(device)).get_state()


def set_rng_state(new_state, device="xpud"):
    _C.default_generator(_index(device)).set_state(new_state.cpu())


def get_rng_state_all():
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states):
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


# ---- automatic mixed precision


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation=True):
    return True


def is_tf32_supported():
    """Returns False: matrix products of float32 are computed in float32."""
    return False
