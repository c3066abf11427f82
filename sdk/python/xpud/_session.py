"""Sessions with a daemon, and its devices."""

from __future__ import annotations

import atexit
import contextvars
import os
import sys
import typing

from . import _xpud


class Device(_xpud.Device):
    """A device of a session. As a context manager, it is the default device of new arrays."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name that Level Zero reports."""
        return self._description()[0]

    @property
    def kind(self) -> str:
        """"cpu" or "gpu"."""
        return self._description()[1]

    @property
    def vendor(self) -> str:
        """The driver's back end: "cpu", "cuda" or "intel"."""
        return self._description()[2]

    @property
    def total_memory(self) -> int:
        """Memory in bytes."""
        return self._description()[3]

    @property
    def compute_units(self) -> int:
        """Number of cores or multiprocessors."""
        return self._description()[4]

    @property
    def pci_address(self) -> str:
        """Where the device is on PCI: "0000:17:00.0"; empty if it is not on PCI, or its driver does not say."""
        return self._description()[5]

    def synchronize(self) -> None:
        """Waits until all work of the device is done.

        Raises errors since the last wait: IndexError (an index out of range), xpud.OutOfMemoryError, xpud.ConnectionError (the daemon is gone),
        RuntimeError.
        """
        self._synchronize()

    def memory_stats(self) -> dict[str, int]:
        """Returns this session's memory on the device: buffers, allocated_bytes, peak_allocated_bytes (since reset_peak_memory)."""
        return self._memory()

    def reset_peak_memory(self) -> None:
        """Sets peak_allocated_bytes to allocated_bytes."""
        self._reset_peak()

    def __enter__(self) -> Device:
        _enter(self, self)
        return self

    def __exit__(self, *_) -> None:
        _leave(self)

    def __repr__(self) -> str:
        return f"<xpud device {self.index}: {self.name} ({self.kind})>"

    def __reduce__(self):
        raise TypeError("a device belongs to this process's session")


class Session(_xpud.Session):
    """A connection to a daemon. As a context manager, it makes its first device the default of new arrays, and closes at the end."""

    __slots__ = ()

    def synchronize(self) -> None:
        """Waits for every device. Errors as for Device.synchronize."""
        for device in self.devices:
            device.synchronize()

    def set_nice(self, nice: int) -> None:
        """Lowers this session among those of the same user or claim, from now on: 0 (as it begins, or $XPUD_NICE) to 19, each a fifth
        less of a device's time beside the others. Raises ValueError for another number, and for one below the present nice."""
        self._set_nice(nice)

    def close(self) -> None:
        """Frees the memory of the session's arrays, which become unusable, and disconnects."""
        self._close()

    def check(self) -> None:
        """Raises xpud.ConnectionError if the session was closed or its daemon is gone, RuntimeError in a forked child."""
        self._check()

    def __enter__(self) -> Session:
        devices = self.devices
        _enter(self, devices[0] if devices else None)
        return self

    def __exit__(self, *_) -> None:
        self.close()
        _leave(self)

    def __repr__(self) -> str:
        return "<closed xpud session>" if self.closed else f"<xpud session at {self.address}, {len(self.devices)} devices>"

    def __reduce__(self):
        raise TypeError("a session belongs to this process")


class _Entered(typing.NamedTuple):
    """A `with` block: its owner, the device that it selects, and the enclosing block."""
    owner: Device | Session
    device: Device | None
    outer: _Entered | None


_chosen: contextvars.ContextVar[_Entered | None] = contextvars.ContextVar("xpud_device", default=None)
_default: Session | None = None


def _enter(owner: Device | Session, device: Device | None) -> None:
    _chosen.set(_Entered(owner, device, _chosen.get()))


def _leave(owner: Device | Session) -> None:
    entered = _chosen.get()
    if entered is None or entered.owner is not owner:
        raise RuntimeError("`with` blocks of devices and sessions must be nested")
    _chosen.set(entered.outer)


def connect(address: str | None = None, *, client_name: str | None = None, timeout: float = 10.0, start_daemon: bool = True) -> Session:
    """Opens a session with a daemon.

    address: path of a unix socket, or HOST:PORT of an xpud-gateway. None: $XPUD_ADDRESS, the system's daemon, or the user's daemon, which is started if
    there is none, unless start_daemon is False. client_name: the process's name in `xpuctl`; default: the program's name.
    timeout: seconds to wait for the daemon's answer, and for its start.

    Raises xpud.ConnectionError if no daemon answers or it refuses, PermissionError if this user may not use it, ValueError for an invalid address.
    """
    name = os.path.basename(sys.argv[0]) if client_name is None and sys.argv and sys.argv[0] not in ("", "-c", "-m") else client_name
    return Session(address or "", name or "", float(timeout), start_daemon)


def default_session() -> Session:
    """Returns the default session. Created at the first use, and again after it was closed or the process forked."""
    global _default
    if _default is None or _default.closed:
        _default = connect()
    return _default


def default_device() -> Device:
    """Returns the device for new arrays: that of the innermost `with`, otherwise the first device of the default session.

    Raises xpud.ConnectionError if there is no daemon, and RuntimeError if it has no device for this process.
    """
    entered = _chosen.get()
    if entered is not None and entered.device is not None:
        return entered.device
    devices = default_session().devices
    if not devices:
        raise RuntimeError(f"no device is visible: XPUD_VISIBLE_DEVICES is {os.environ.get('XPUD_VISIBLE_DEVICES')!r}")
    return devices[0]


def device_of(given: Device | Session | int | None) -> Device:
    """Converts an argument `device`: a Device, a Session (its first device), a number in the default session, or None (default_device)."""
    if isinstance(given, Device):
        return given
    if given is None:
        return default_device()
    devices = given.devices if isinstance(given, Session) else default_session().devices
    index = 0 if isinstance(given, Session) else given
    if not isinstance(index, int):
        raise TypeError(f"expected an xpud.Device, got {given!r}")
    if not 0 <= index < len(devices):
        raise IndexError(f"no device {index}; there are {len(devices)}")
    return devices[index]


def synchronize(device: Device | Session | int | None = None) -> None:
    """Waits until all work of a device is done. None means the default device of new arrays. Raises as Device.synchronize does."""
    if isinstance(device, Session):
        device.synchronize()
    else:
        device_of(device).synchronize()


def _forget() -> None:
    """Called in a forked child: forgets the parent's session."""
    global _default
    _default = None
    _chosen.set(None)


def _report_unread_error() -> None:
    """Called when the program ends: an error that no call has raised is printed. Sessions of `with` blocks have done so when they were closed."""
    if _default is not None and not _default.closed:
        _default._report_unread_error()


os.register_at_fork(after_in_child=_forget)
atexit.register(_report_unread_error)
