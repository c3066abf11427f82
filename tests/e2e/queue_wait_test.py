"""How long clients wait for their turn, and the totals of tenants, with real clients that share a device."""

import pathlib
import socket
import stat
import subprocess
import tempfile
import time
import unittest

from harness import BINARIES, DaemonTest, wait_until
from metrics import series

RUNS_ALONE = True  # it measures how long clients wait for each other

FRESH = 0.6  # seconds after which a scrape is a new one
# Reads after each step, so that at most one command is queued.
LOOP = "x = xpud.random.uniform((256, 256)); x.numpy(); say('ready'); sys.stdin.readline()\nwhile True: (x @ x).sum().item()"


class QueueWait(DaemonTest):
    FLAGS = ("--device", "cpu")

    def waiting(self, seconds: float = 1.5) -> dict[int, float]:
        """Returns, by pid, the part of the time in which each client waited."""
        before = self.daemon.status()
        time.sleep(seconds)
        after = self.daemon.status()
        passed = after["time_ns"] - before["time_ns"]
        start = {session["id"]: session["queue_wait_ns"] for session in before["sessions"]}
        return {session["pid"]: (session["queue_wait_ns"] - start.get(session["id"], 0)) / passed for session in after["sessions"]}

    def test_is_the_time_that_others_are_served(self):
        clients = [self.light_client(LOOP) for _ in range(4)]
        for client in clients:
            client.hear()
        first, *others = clients
        first.tell()
        alone = self.waiting()
        self.assertLess(alone.pop(first.process.pid), 0.15, "it had the device for itself")
        self.assertLess(max(alone.values()), 0.01, "they asked for nothing")
        for client in others:
            client.tell()
        for part in self.waiting().values():
            self.assertGreater(part, 0.2)
            self.assertLessEqual(part, 1.01)

    def test_what_a_tenants_sessions_did_stays_when_they_end(self):
        client = self.light_client("x = xpud.random.uniform((64, 64))\nfor _ in range(50): x = x * 1.01\nx.numpy(); say('done'); sys.stdin.readline()")
        client.hear()
        tenant, = self.daemon.status()["tenants"]
        session, = self.daemon.sessions()
        self.assertEqual(tenant["tenant"], session["tenant"])
        self.assertEqual((tenant["sessions"], tenant["sessions_opened"]), (1, 1))
        for field in ("busy_ns", "queue_wait_ns", "commands_completed", "downloaded_bytes", "memory_bytes"):
            self.assertEqual(tenant[field], session[field], field)
        self.assertGreater(tenant["commands_completed"], 50)
        client.tell()
        client.finish()
        wait_until(lambda: not self.daemon.sessions(), 5)
        after, = self.daemon.status()["tenants"]
        self.assertEqual((after["sessions"], after["sessions_opened"], after["memory_bytes"]), (0, 1, 0))
        for field in ("busy_ns", "commands_completed", "downloaded_bytes"):
            self.assertGreaterEqual(after[field], tenant[field], field)


class MetricsAtASocket(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "metrics.sock"

    def start(self, metrics: str) -> subprocess.Popen:
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen([BINARIES / "xpud", "--socket", self.folder / "xpud.sock", "--metrics-listen", metrics], stderr=log)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def scrape(self) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(self.path))
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := client.recv(65536):
                answer += part
        return answer.decode()

    def test_are_served_while_the_daemon_is_there(self):
        process = self.start(f"unix:{self.path}")
        wait_until(lambda: "serving" in (self.folder / "log").read_text(), 10)
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o660)
        self.assertEqual(series(self.scrape(), "xpud_drained"), [({}, 0)])
        subprocess.run([BINARIES / "xpuctl", "--address", self.folder / "xpud.sock", "drain"], check=True, capture_output=True, timeout=30)
        time.sleep(FRESH)
        self.assertEqual(series(self.scrape(), "xpud_drained"), [({}, 1)])
        process.terminate()
        self.assertEqual(process.wait(10), 0)
        self.assertFalse(self.path.exists())

    def test_are_refused_where_the_confined_daemon_can_make_none(self):
        self.assertEqual(self.start("unix:/tmp/elsewhere/metrics.sock").wait(10), 2)
        self.assertIn("has to lie where --socket does", (self.folder / "log").read_text())


if __name__ == "__main__":
    unittest.main()
