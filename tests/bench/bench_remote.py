"""What a network between client and daemon costs: the same work over shared memory and over xpud-gateway on loopback, in turns; copies
also beside a plain TCP connection."""

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

BYTES = 64 << 20
ROUND_TRIPS, COMMANDS = 200, 20_000


class Client:
    """remote_client.py, which does one piece of work for each line that it reads."""

    def __init__(self, environment: dict[str, str]):
        self._process = subprocess.Popen([sys.executable, HERE / "remote_client.py"], env=os.environ | environment, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, work: str, amount: int) -> None:
        print(work, amount, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer == "done\n", f"{work} failed: {answer!r}"

    def close(self) -> None:
        self._process.communicate()


class Tcp:
    """A plain connection: BYTES there, and one byte back."""

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
    """Seconds over shared memory, and over the gateway."""
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
            times = compare(local, remote, "minilm", 32, 7)
            rows.emit("MiniLM f32, 32 x 128 tokens", 32 / times[1], "sequences/s", "over shared memory", 32 / times[0], "ratio >= 0.95")
            copies(remote)
        finally:
            local.close(), remote.close()
            gateway.close()
            daemon.close()


if __name__ == "__main__":
    main()
