"""The daemon as a systemd service, with this test in systemd's place: its messages to $NOTIFY_SOCKET, its watchdog, and its log in the journal."""

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from unittest import mock

from harness import BINARIES, Daemon, DaemonTest, wait_until

RUNS_ALONE = True  # it measures signs of life in time

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
ALL_THREADS = 0x40000000  # __WALL for waitpid, which by default does not wait for single threads
WATCHDOG = 0.6  # seconds


@contextlib.contextmanager
def stopped_thread(pid: int, name: str):
    """Stops one thread of a process while the others run, like a hang."""
    thread = next(int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().strip() == name)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(PTRACE_ATTACH, thread, None, None) != 0:
        raise unittest.SkipTest(f"this process may not stop threads of its children: {os.strerror(ctypes.get_errno())}")
    os.waitpid(thread, ALL_THREADS)
    try:
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, thread, None, None)


class Manager:
    """Receives the daemon's notifications."""

    def __init__(self, address: str):
        self.told: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)

    def hear(self, seconds: float = 0) -> list[str]:
        """Returns all lines that arrive within that time."""
        heard, until = [], time.monotonic() + seconds
        while True:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            try:
                heard += self._socket.recv(4096).decode().split("\n")
            except TimeoutError:
                self.told += heard
                return heard

    def hears(self, line: str) -> bool:
        self.hear(0.01)
        return line in self.told

    def close(self) -> None:
        self._socket.close()


class ManagedTest(DaemonTest):
    ABSTRACT = False
    VARIABLES: dict[str, str] = {}

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        name = self.name = f"{folder.name}/notify"
        self.manager = Manager("\0" + name if self.ABSTRACT else name)
        self.addCleanup(self.manager.close)
        with mock.patch.dict(os.environ, {"NOTIFY_SOCKET": "@" + name if self.ABSTRACT else name} | self.VARIABLES):
            super().setUp()


class Notified(ManagedTest):
    def test_the_daemon_says_when_it_serves_and_when_it_ends(self):
        told = self.manager.hear(1)
        self.assertEqual(told[:2], ["STATUS=Opening devices", "READY=1"])
        self.assertIn(f"STATUS=Serving 1 device at {self.daemon.address}", told)
        self.assertNotIn("WATCHDOG=1", told, "nobody asked for it")
        os.kill(self.daemon.pid, signal.SIGTERM)
        wait_until(lambda: self.manager.hears("STOPPING=1"), 5)

    def test_a_daemon_that_a_client_starts_in_the_background_says_nothing_to_the_clients_manager(self):
        self.manager.hear(0.5)
        ready, ready_child = os.pipe()
        with tempfile.TemporaryDirectory(prefix="xpud-e2e-") as folder, os.fdopen(ready, "rb") as pipe:
            subprocess.run([BINARIES / "xpud", "--socket", f"{folder}/xpud.sock", "--device", "cpu", "--background", "--exit-when-idle", "0",
                            "--ready-fd", str(ready_child)], env=os.environ | {"NOTIFY_SOCKET": self.name}, pass_fds=[ready_child],
                           stderr=subprocess.DEVNULL, check=True, timeout=30)
            os.close(ready_child)
            self.assertEqual(pipe.read(1), b"1")
            wait_until(lambda: not pathlib.Path(folder, "xpud.sock").exists(), 10)
        self.assertEqual(self.manager.hear(0.2), [])

    def test_no_other_process_tells_in_the_daemons_name(self):
        self.assertNotIn("NOTIFY_SOCKET", self.environment_of_a_child())

    def environment_of_a_child(self) -> str:
        with mock.patch.dict(os.environ, {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1"}):
            daemon = Daemon(BINARIES, pathlib.Path(self.daemon.log.parent, "other"), "--device", "cpu", "--executor", "process")
        self.addCleanup(daemon.close)
        self.assertIn("cannot connect to NOTIFY_SOCKET /nowhere", daemon.log.read_text())
        executor = daemon.devices()[0]["executor_pid"]
        return pathlib.Path(f"/proc/{executor}/environ").read_text()


class NotifiedAtAnAbstractSocket(ManagedTest):
    ABSTRACT = True

    def test_the_daemon_says_when_it_serves_and_when_it_ends(self):
        wait_until(lambda: self.manager.hears("READY=1"), 5)
        os.kill(self.daemon.pid, signal.SIGTERM)
        wait_until(lambda: self.manager.hears("STOPPING=1"), 5)


class Watched(ManagedTest):
    VARIABLES = {"WATCHDOG_USEC": str(int(WATCHDOG * 1e6))}

    def signs_in(self, seconds: float) -> int:
        return self.manager.hear(seconds).count("WATCHDOG=1")

    def test_signs_of_life_come_in_time_also_from_a_lane_that_sleeps_or_works(self):
        wait_until(lambda: self.manager.hears("WATCHDOG=1"), 5)
        self.assertGreaterEqual(self.signs_in(5 * WATCHDOG), 10)
        client = self.light_client("x = xpud.random.uniform((256, 256)); say('ready')\nwhile True: x = (x @ x) * 0.01")
        client.hear()
        self.assertGreaterEqual(self.signs_in(5 * WATCHDOG), 5)

    def test_signs_of_life_stop_while_a_lane_hangs(self):
        wait_until(lambda: self.manager.hears("WATCHDOG=1"), 5)
        with stopped_thread(self.daemon.pid, "xpud-lane-0"):
            self.signs_in(WATCHDOG)  # the one in flight
            self.assertEqual(self.signs_in(3 * WATCHDOG), 0)
        wait_until(lambda: self.manager.hear(0.05).count("WATCHDOG=1") > 0, 5)


class Logged(unittest.TestCase):
    def log_of_a_daemon(self, journal: str) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="xpud-e2e-") as folder:
            log = pathlib.Path(folder, "log")
            log.touch()
            info = log.stat()
            with mock.patch.dict(os.environ, {"JOURNAL_STREAM": journal.format(device=info.st_dev, inode=info.st_ino), "NOTIFY_SOCKET": "nonsense"}):
                daemon = Daemon(BINARIES, log, "--device", "cpu")
            daemon.close()
            return log.read_text().splitlines()

    def test_in_a_journal_lines_begin_with_their_priority(self):
        lines = self.log_of_a_daemon("{device}:{inode}")
        self.assertTrue(any(line.startswith("<6>info serving ") for line in lines), lines)
        self.assertTrue(any(line.startswith("<4>warning service_manager ") for line in lines), lines)
        self.assertEqual([line for line in lines if not re.match(r"<[2-7]>\w+ ", line)], [])

    def test_elsewhere_with_their_time(self):
        for line in self.log_of_a_daemon("{device}:1"):
            self.assertRegex(line, r"^\d{4}-\d\d-\d\dT[\d:.]+ \w+ ")


if __name__ == "__main__":
    unittest.main()
