"""Sessions with a daemon, and its devices."""

from __future__ import annotations

import contextvars
import os
import sys
import typing

from . import _xpud


class Device(_xpud.Device):
    """A device of a session. In a `with` it is where new arrays go."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """As Level Zero names it."""
        return self._description()[0]

    @property
    def kind(self) -> str:
        """"cpu" or "gpu"."""
        return self._description()[1]

    @property
    def vendor(self) -> str:
        """The driver: "cpu", "cuda" or "intel"."""
        return self._description()[2]

    @property
    def total_memory(self) -> int:
        """In bytes."""
        return self._description()[3]

    @property
    def compute_units(self) -> int:
        """Cores, or what the device calls so."""
        return self._description()[4]

    def synchronize(self) -> None:
        """Waits until all that was asked of the device is done.

        Raises what went wrong since the last wait: IndexError (an index out of range), xpud.OutOfMemoryError, xpud.ConnectionError
        (the daemon is gone), RuntimeError.
        """
        self._synchronize()

    def memory_stats(self) -> dict[str, int]:
        """What this session holds there: buffers, allocated_bytes, peak_allocated_bytes (since reset_peak_memory)."""
        return self._memory()

    def reset_peak_memory(self) -> None:
        """The peak begins again at what is held now."""
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
    """One connection to a daemon. In a `with`, new arrays go to its first device, and it is closed on the way out."""

    __slots__ = ()

    def synchronize(self) -> None:
        """Waits for every device. Errors: as Device.synchronize."""
        for device in self.devices:
            device.synchronize()

    def close(self) -> None:
        """Frees the memory of the session's arrays, which cannot be used afterwards, and leaves the daemon."""
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
    """A `with`: whose, the device that it chose, and the one around it."""
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
        raise RuntimeError("`with` blocks of devices and sessions end in the order in which they began, reversed")
    _chosen.set(entered.outer)


def connect(address: str | None = None, *, client_name: str | None = None, timeout: float = 10.0, start_daemon: bool = True) -> Session:
    """A session with a daemon.

    address: a unix socket's path, or HOST:PORT of an xpud-gateway. None: $XPUD_ADDRESS, the system's daemon, the user's daemon; where
    none answers one is started, unless start_daemon is False. client_name: what `xpuctl` calls this process, else the program's name.
    timeout: seconds for the daemon to answer, and for it to start.

    xpud.ConnectionError: no daemon answers, or it refuses. PermissionError: this user may not use it. ValueError: no such address.
    """
    name = os.path.basename(sys.argv[0]) if client_name is None and sys.argv and sys.argv[0] not in ("", "-c", "-m") else client_name
    return Session(address or "", name or "", float(timeout), start_daemon)


def default_session() -> Session:
    """The session that is used where none is named; made at first use, again after it was closed or the process forked."""
    global _default
    if _default is None or _default.closed:
        _default = connect()
    return _default


def default_device() -> Device:
    """Where new arrays go: the device of the innermost `with`, else the first of the default session.

    xpud.ConnectionError: there is no daemon. RuntimeError: it has no device for this process.
    """
    entered = _chosen.get()
    if entered is not None and entered.device is not None:
        return entered.device
    devices = default_session().devices
    if not devices:
        raise RuntimeError(f"no device is visible: XPUD_VISIBLE_DEVICES is {os.environ.get('XPUD_VISIBLE_DEVICES')!r}")
    return devices[0]


def device_of(given: Device | Session | int | None) -> Device:
    """What functions take as `device`: a Device, a Session (its first), a number in the default session, None (default_device)."""
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
    """Waits until all that was asked of a device is done. None: of the device that new arrays go to. Errors: as Device.synchronize."""
    if isinstance(device, Session):
        device.synchronize()
    else:
        device_of(device).synchronize()


def _forget() -> None:
    """In a forked child: the parent's session is not ours."""
    global _default
    _default = None
    _chosen.set(None)


os.register_at_fork(after_in_child=_forget)
