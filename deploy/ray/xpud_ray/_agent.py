"""The local socket of xpud-node-agent. The messages are those of deploy/agent/grants/grants.proto; a few fields need no generated code."""

import dataclasses
import os
import socket

import grpc

from ._parts import Part

DEFAULT_SOCKET = "/run/xpud-agent/agent.sock"
DEFAULT_LEASE = "60"  # seconds
CALL_SECONDS = 20.0
RETURN_SECONDS = 35.0  # the agent waits 30 s for the end of sessions


class AgentError(RuntimeError):
    """What the agent has said, or why it could not be asked. `code`: gRPC's."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Grant:
    id: str
    address: str  # what a worker has as XPUD_ADDRESS
    lease_seconds: float


# ---- Protocol Buffers: integers, texts, and messages as bytes

Field = int | str | bytes


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _message(*fields: tuple[int, Field]) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | 2) + _varint(len(data)) + data
    return out


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _fields(data: bytes) -> dict[int, int | bytes]:
    """The fields by number; a repeated one has its last value. Raises ValueError or IndexError for other bytes."""
    fields: dict[int, int | bytes] = {}
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        value, at = _read_varint(data, at)
        if tag & 7 == 2:
            fields[tag >> 3], at = data[at:at + value], at + value
        elif tag & 7 == 0:
            fields[tag >> 3] = value
        else:
            raise ValueError(f"field {tag >> 3} has the wire type {tag & 7}")
    return fields


def _grant_request(name: str, part: Part, lease_ms: int, until_caller_ends: bool) -> bytes:
    memory = [(2, part.memory_bytes)] if part.memory_bytes is not None else []
    labels = [(7, _message((1, "part"), (2, part.name)))] if part.name else []
    return _message((1, part.share), *memory, (3, part.class_), *((4, device) for device in part.devices), (5, lease_ms), (6, name), *labels,
                    (8, int(until_caller_ends)))


class Agent:
    """The agent at a socket. Thread-safe. Its methods raise AgentError."""

    def __init__(self, path: str, lease_seconds: float):
        """`lease_seconds`: 1 or more; a user whose longest lease is less has that refused."""
        self._path = path
        self._lease_ms = round(lease_seconds * 1000)
        self._channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)])

    @staticmethod
    def from_environment() -> "Agent":
        """Raises ValueError if XPUD_RAY_LEASE_SECONDS is no number from 1 to 3600."""
        lease = os.environ.get("XPUD_RAY_LEASE_SECONDS") or DEFAULT_LEASE
        try:
            seconds = float(lease)
        except ValueError:
            seconds = 0
        if not 1 <= seconds <= 3600:
            raise ValueError(f"XPUD_RAY_LEASE_SECONDS is {lease!r}; allowed: a number from 1 to 3600")
        return Agent(os.environ.get("XPUD_AGENT_SOCKET") or DEFAULT_SOCKET, seconds)

    def grant(self, name: str, part: Part) -> Grant:
        """A grant that ends with its lease, and at once with this process if the agent can watch it. The same name and part again return the same one."""
        try:
            fields = self._call("Grant", _grant_request(name, part, self._lease_ms, True), CALL_SECONDS)
        except AgentError as failure:
            if failure.code != grpc.StatusCode.FAILED_PRECONDITION:
                raise
            fields = self._call("Grant", _grant_request(name, part, self._lease_ms, False), CALL_SECONDS)  # Linux before 6.5, or another pid namespace
        return Grant(fields[1].decode(), fields[2].decode(), fields.get(3, 0) / 1000)

    def renew(self, grant: Grant) -> None:
        """Begins the lease anew."""
        self._call("Renew", _message((1, grant.id)), CALL_SECONDS)

    def return_(self, grant: Grant) -> None:
        """Returns when the grant's sessions have ended and their memory is free."""
        self._call("Return", _message((1, grant.id)), RETURN_SECONDS)

    def _call(self, method: str, request: bytes, seconds: float) -> dict[int, int | bytes]:
        try:
            return self._channel.unary_unary(f"/xpud.grants.v1.Grants/{method}", None, _fields)(request, timeout=seconds)
        except grpc.RpcError as failure:
            problem = self._problem() if failure.code() == grpc.StatusCode.UNAVAILABLE else None
            raise AgentError(failure.code(), problem or f"xpud-node-agent: {failure.details()}") from None

    def _problem(self) -> str | None:
        """Why the socket cannot be reached, or None if it can."""
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(5)
                probe.connect(self._path)
        except OSError as failure:
            return (f"no xpud-node-agent answers at {self._path} ({failure.strerror or failure}); start it (systemctl start xpud-node-agent) with this user "
                    "in `grants` of agent.yaml, or set XPUD_AGENT_SOCKET where `ray start` runs")
        return None
