"""Memory that arrays of several processes share."""

from __future__ import annotations

import dataclasses
import typing

import xpud

from . import _xpud
from ._array import Array

if typing.TYPE_CHECKING:
    from ._session import Session


@dataclasses.dataclass(frozen=True)
class Ticket:
    """Names an array's memory to one other process of the same user or claim. Can be pickled and sent in any way; whoever has it can take the memory."""

    memory: tuple[int, int, int, int, int]
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    offset: int


def share(array: Array) -> Ticket:
    """Returns a ticket with which attach() gives another process an array of the same memory, once.

    Both then read and write the same memory, which lives until its last array. What was computed before is complete for the other process; later order is
    for the processes to arrange, with synchronize(). A ticket that nobody takes keeps the memory, until 60 s after this session's end.
    Raises ValueError for an array without bytes, RuntimeError if 4,096 tickets of this user wait to be taken, and NotImplementedError if the daemon is
    too old.
    """
    return Ticket(_xpud.share(array), array.dtype.name, array.shape, array._strides, array._offset)


def attach(ticket: Ticket, session: Session | None = None) -> Array:
    """Returns an array of the memory that a ticket names, as a view like the array that was shared. `session`: the default one.

    Raises RuntimeError if the ticket is unknown, was taken, or has ended, or is of another user or device, and xpud.OutOfMemoryError if this session's own
    quota does not allow it.
    """
    session = xpud.default_session() if session is None else session
    whole = _xpud.attach(session.devices[0], ticket.memory, xpud.dtype(ticket.dtype))
    return whole._view(ticket.shape, ticket.strides, ticket.offset)
