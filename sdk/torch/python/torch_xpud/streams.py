"""torch.xpud.streams: streams and events."""

import torch

from .index import index_of



class _OnXpud(type):
    """Metaclass of Stream and Event. torch.xpud.Stream(..) creates a torch.Stream on an xpud device, and isinstance accepts such streams."""

    def __instancecheck__(cls, value):
        return isinstance(value, cls.base) and value.device.type == "xpud"


class Stream(metaclass=_OnXpud):
    """An in-order queue of work on one device. priority is kept and has no effect: an operator sets whose work goes first."""

    base = torch.Stream

    def __new__(cls, device=None, priority=0):
        return torch.Stream(device=torch.device("xpud", index_of(device)), priority=priority)


class Event(metaclass=_OnXpud):
    """A point in a stream. Raises ValueError if `interprocess` is true."""

    base = torch.Event

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        if interprocess:
            raise ValueError("xpud has no interprocess events")
        return torch.Event(device="xpud", enable_timing=enable_timing)


def current_stream(device=None):
    return torch._C._accelerator_getStream(index_of(device))


def default_stream(device=None):
    return torch.Stream(stream_id=0, device_index=index_of(device), device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


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
        self._previous_device = torch._C._accelerator_getDeviceIndex()
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
