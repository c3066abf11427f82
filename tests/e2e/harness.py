"""Shared parts of the end-to-end tests: a daemon for each test, and client processes with PyTorch that report their progress."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = ROOT / "build/release/bin"
sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon, Gateway  # noqa: E402, F401


def wait_until(condition: Callable[[], bool], seconds: float) -> float:
    """Waits until `condition` holds. Returns the seconds; raises AssertionError after `seconds`."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.005)
    return time.monotonic() - began


def stop(pid: int) -> None:
    """Sends SIGSTOP and waits until all threads of the process have stopped: until then they may still finish work."""
    os.kill(pid, signal.SIGSTOP)

    def stopped() -> bool:
        stats = [path.read_text() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")]
        return all(stat.rsplit(")", 1)[1].split()[0] == "T" for stat in stats)

    wait_until(stopped, 10)


class Client:
    """A Python process that runs `code` with torch and `say`. hear() waits for a line that it says."""

    MODULE = "torch"
    PROLOGUE = "import sys, time, {}\ndef say(*words): print(*words, flush=True)\n"

    def __init__(self, code: str, env: dict[str, str]):
        self.process = subprocess.Popen([sys.executable, "-c", self.PROLOGUE.format(self.MODULE) + code], env=os.environ | env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def hear(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("the client ended: " + self.process.stderr.read()[-3000:])
        return line.rstrip("\n")

    def tell(self, line: str = "") -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def finish(self, seconds: float = 60) -> tuple[int, str, str]:
        """Returns the exit status, the rest of stdout, and stderr."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class LightClient(Client):
    """The same with the Python client instead of torch, for tests in which any client will do: it starts more than a second sooner."""

    MODULE = "xpud"

    def __init__(self, code: str, env: dict[str, str]):
        super().__init__(code, env | {"PYTHONPATH": str(BINARIES.parent / "lib")})


class DaemonTest(unittest.TestCase):
    """A fresh daemon for each test. Clients that the test starts are ended with it."""

    FLAGS: tuple[str, ...] = ()  # flags of the daemon

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        self.daemon = Daemon(BINARIES, pathlib.Path(folder.name, "log"), *self.FLAGS)
        self.addCleanup(self.daemon.close)
        self.env = {"XPUD_ADDRESS": str(self.daemon.address)}

    def client(self, code: str, kind: type[Client] = Client) -> Client:
        client = kind(code, self.env)
        self.addCleanup(lambda: client.process.poll() is None and client.kill())
        return client

    def light_client(self, code: str) -> Client:
        return self.client(code, LightClient)

    def memory_of(self, pid: int) -> int | None:
        """Returns the bytes that the session of a process holds; None if it has no session."""
        return next((s["memory_bytes"] for s in self.daemon.sessions() if s["pid"] == pid), None)
