"""The cost of a network between client and daemon: the same work over shared memory and over xpud-gateway on loopback, in turns; copies also beside
a plain TCP connection."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading

import rows

BINARIES = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"])
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools/lib"))

from daemon import Daemon, Gateway  # noqa: E402
from network import Network, why_not  # noqa: E402

BYTES = 64 << 20
ROUND_TRIPS, COMMANDS = 200, 20_000


class Client:
    """Runs remote_client.py, which does one piece of work for each line that it reads. `within`: a command that runs it elsewhere."""

    def __init__(self, environment: dict[str, str], within: list[str] = ()):
        self._process = subprocess.Popen([*within, sys.executable, HERE / "remote_client.py"], env=os.environ | environment, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, work: str, amount: int) -> None:
        print(work, amount, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer == "done\n", f"{work} failed: {answer!r}"

    def close(self) -> None:
        self._process.communicate()


class Tcp:
    """A plain connection: sends BYTES, receives one byte."""

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self._here = socket.create_connection(listener.getsockname())
        self._there = listener.accept()[0]
        self._data = bytearray(BYTES)
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        target = memoryview(bytearray(BYTES))
        while True:
            got = 0
            while got < BYTES:
                count = self._there.recv_into(target[got:])
                if count == 0:
                    return
                got += count
            self._there.sendall(b"!")

    def copy(self) -> None:
        self._here.sendall(self._data)
        self._here.recv(1)


def compare(local: Client, remote: Client, work: str, amount: int, repeats: int) -> tuple[float, float]:
    """Returns the seconds over shared memory, and over the gateway."""
    for client in (local, remote):
        client.run(work, amount)
    times = rows.interleaved({"local": lambda: local.run(work, amount), "remote": lambda: remote.run(work, amount)}, 3 if rows.SMOKE else repeats)
    return times["local"], times["remote"]


def copies(remote: Client) -> None:
    tcp = Tcp()
    works = {"tcp": tcp.copy} | {name: lambda name=name: remote.run(name, BYTES) for name in ("upload", "download")}
    for work in works.values():
        work()
    times = rows.interleaved(works, 3 if rows.SMOKE else 21)
    for name in ("upload", "download"):
        rows.emit(f"{name} 64 MiB over the gateway", BYTES / times[name] / 1e9, "GB/s", "plain TCP", BYTES / times["tcp"] / 1e9, "ratio >= 0.8" if name == "upload" else "")


def beside_a_bare_stream(daemon: Daemon, gateway: Gateway) -> None:
    """From C++, beside a bare gRPC stream."""
    rows.begin_canary()
    rows.canary()
    costs = json.loads(subprocess.run([BINARIES / "remote_costs", daemon.address], env=os.environ | gateway.environment, check=True, capture_output=True, text=True).stdout)
    rows.canary()
    rows.emit("no-op there and back", costs["trip_us"], "us", "a bare gRPC stream", costs["bare_trip_us"], "excess <= 15")
    rows.emit("no-ops in a stream", 1 / costs["no_op_us"], "10^6/s", "over shared memory", 1 / costs["local_no_op_us"], "value >= 1")
    rows.emit("adds in a stream, each three commands", 1 / costs["op_us"], "10^6/s", "over shared memory", 1 / costs["local_op_us"])
    rows.emit("upload 64 MiB, from C++", costs["gb_s"], "GB/s", "plain TCP", costs["plain_gb_s"], "ratio >= 0.8")
    rows.emit("a bare gRPC stream of 64 MiB", costs["bare_gb_s"], "GB/s", "plain TCP", costs["plain_gb_s"])


def far_away(daemon: Daemon, local: Client, folder: pathlib.Path, rtt_ms: float) -> None:
    """MiniLM for one text behind a network; beside it, in the same turns, TCP's round trip for a byte."""
    if why_not():
        print(f"  (nothing behind a network: {why_not()})", flush=True)
        return
    network = Network(BINARIES, rtt_ms)
    gateway = Gateway(BINARIES, daemon, folder, Network.THERE, network.within("there"))
    echo = subprocess.Popen([*network.within("there"), sys.executable, HERE / "tcp_echo.py", Network.THERE], stdout=subprocess.PIPE, text=True)
    address = f"{Network.THERE}:{echo.stdout.readline().strip()}"
    remote = Client(gateway.environment | {"XPUD_BENCH_ECHO": address}, network.within("here"))
    try:
        works = {"local": lambda: local.run("minilm", 1), "remote": lambda: remote.run("minilm", 1), "trip": lambda: remote.run("tcp_trips", 1)}
        for work in works.values():
            work()
        times = rows.interleaved(works, 3 if rows.SMOKE else 41)
        rows.emit(f"MiniLM f32, 1 x 128 tokens, {rtt_ms} ms away", times["remote"] * 1e3, "ms", "over shared memory and two round trips", times["local"] * 1e3 + 2 * rtt_ms,
                  "ratio <= 1.05")
        rows.emit(f"a byte there and back, {rtt_ms} ms away", times["trip"] * 1e3, "ms", "the delay", rtt_ms)
    finally:
        remote.close()
        echo.kill(), echo.wait()
        gateway.close()
        network.close()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="xpud-bench-") as folder:
        daemon = Daemon(BINARIES, pathlib.Path(folder, "log"), "--device", "cpu")
        gateway = Gateway(BINARIES, daemon, pathlib.Path(folder))
        local, remote = Client({"XPUD_ADDRESS": str(daemon.address)}), Client(gateway.environment)
        try:
            times = compare(local, remote, "round_trips", ROUND_TRIPS, 21)
            rows.emit("a + b and its value", times[1] / ROUND_TRIPS * 1e6, "us", "over shared memory", times[0] / ROUND_TRIPS * 1e6)
            times = compare(local, remote, "commands", COMMANDS, 11)
            rows.emit("a + b in a stream", COMMANDS / times[1] / 1e6, "10^6/s", "over shared memory", COMMANDS / times[0] / 1e6)
            times = compare(local, remote, "minilm", 32, 15)
            rows.emit("MiniLM f32, 32 x 128 tokens", 32 / times[1], "sequences/s", "over shared memory", 32 / times[0], "ratio >= 0.95")
            copies(remote)
            beside_a_bare_stream(daemon, gateway)
            far_away(daemon, local, pathlib.Path(folder), 5)
        finally:
            local.close(), remote.close()
            gateway.close()
            daemon.close()


if __name__ == "__main__":
    main()
