"""Metrics over HTTP from a real daemon: their values with real clients, and readers that send bad requests."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from harness import BINARIES, DaemonTest, stop, wait_until
from metrics import address_of, names, scrape, series

FRESH = 0.6  # seconds after which a scrape is a new one
MOST_TIME = 10  # seconds that a connection may take
WORK = "x = xpud.random.uniform((256, 256))\nfor _ in range(100): x = (x * 1.5) - x / 2\nx.numpy(); say('done'); sys.stdin.readline()"


def descriptors(pid: int) -> list[str]:
    """Returns what the descriptors refer to; those that are closed meanwhile are left out."""
    found = []
    for path in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(path.readlink()))
    return found


def tcp_sockets(pid: int) -> int:
    inodes = {match[1] for name in descriptors(pid) if (match := re.match(r"socket:\[(\d+)\]", name))}
    tables = [pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    return len(inodes & {line.split()[9] for table in tables for line in table})


class WithoutMetrics(DaemonTest):
    def test_a_daemon_that_is_not_told_to_serves_none(self):
        self.assertEqual(tcp_sockets(self.daemon.pid), 0)


class Metrics(DaemonTest):
    FLAGS = ("--metrics-listen", "0")

    def scrape_anew(self) -> str:
        time.sleep(FRESH)
        return scrape(self.daemon)

    def connect(self, request: bytes = b"") -> socket.socket:
        connection = socket.create_connection(address_of(self.daemon), timeout=MOST_TIME + 5)
        self.addCleanup(connection.close)
        connection.sendall(request)
        return connection

    def answer(self, request: bytes) -> str:
        connection, answer = self.connect(request), b""
        while part := connection.recv(65536):
            answer += part
        return answer.decode()

    def seconds_of_a_scrape(self) -> float:
        began = time.monotonic()
        self.assertIn("xpud_sessions", scrape(self.daemon))
        return time.monotonic() - began

    def test_are_served_on_loopback_by_a_confined_daemon(self):
        self.assertEqual(address_of(self.daemon)[0], "127.0.0.1")
        self.assertEqual(tcp_sockets(self.daemon.pid), 1)
        self.assertIn("seccomp=on", self.daemon.log.read_text())
        scrape(self.daemon)

    def test_charge_work_to_the_client_that_does_it_while_it_is_there(self):
        busy, idle = self.light_client(WORK), self.light_client("x = xpud.ones(4); x.numpy(); say('done'); sys.stdin.readline()")
        busy.hear(), idle.hear()
        text = self.scrape_anew()
        of = {int(labels["pid"]): {name: next(value for other, value in series(text, f"xpud_client_{name}") if other == labels)
                                   for name in ("device_seconds_total", "commands_total", "memory_bytes", "downloaded_bytes_total")}
              for labels, _ in series(text, "xpud_client_commands_total")}
        self.assertEqual(set(of), {busy.process.pid, idle.process.pid})
        self.assertGreater(of[busy.process.pid]["commands_total"], 300)
        self.assertLess(of[idle.process.pid]["commands_total"], 20)
        for session in self.daemon.sessions():
            self.assertAlmostEqual(of[session["pid"]]["device_seconds_total"], session["busy_ns"] / 1e9, delta=1e-8)
        self.assertGreaterEqual(of[busy.process.pid]["memory_bytes"], 256 * 256 * 4)
        self.assertEqual(of[busy.process.pid]["downloaded_bytes_total"], 256 * 256 * 4)
        self.assertGreater(series(text, "xpud_device_busy_seconds_total")[0][1], 0)
        for name in ("xpud_command_queue_wait_seconds", "xpud_command_latency_seconds", "xpud_command_duration_seconds"):
            (labels, count), = series(text, f"{name}_count")
            self.assertGreaterEqual(count, of[busy.process.pid]["commands_total"], name)
            self.assertEqual(next(value for other, value in series(text, f"{name}_bucket") if other == labels | {"le": "+Inf"}), count)
        (_, compiling), = series(text, "xpud_kernel_compile_duration_seconds_sum")
        total, = (value for _, value in series(text, "xpud_command_duration_seconds_sum"))
        busy_seconds = sum(values["device_seconds_total"] for values in of.values())
        self.assertTrue(busy_seconds / 2 < total < 2 * busy_seconds + 2 * compiling, (total, busy_seconds, compiling))  # commands wait for kernels
        for client in (busy, idle):
            client.tell()
            client.finish()
        wait_until(lambda: not series(scrape(self.daemon), "xpud_client_commands_total"), 5)
        self.assertEqual(series(scrape(self.daemon), "xpud_sessions_opened_total"), [({}, 2)])

    def test_of_names_that_are_hostile_stay_one_series(self):
        client = self.light_client("import os\nos.environ['XPUD_CLIENT_NAME'] = 'a\"} 1\\nxpud_sessions 99\\\\'\nx = xpud.ones(1); x.numpy()\n"
                             "say('done'); sys.stdin.readline()")
        client.hear()
        text = self.scrape_anew()
        self.assertEqual(series(text, "xpud_sessions"), [({}, 1)])
        self.assertEqual([labels["client"] for labels, _ in series(text, "xpud_client_queues")], ['a\\"} 1?xpud_sessions 99\\\\'])

    def test_counters_only_grow(self):
        client = self.light_client("x = xpud.random.uniform((64, 64)); say('done')\nwhile True: x = x * 1.01 - x / 100; x.sum().item()")
        client.hear()
        before = self.scrape_anew()
        after = self.scrape_anew()
        for name in sorted(name for name in names(before) if name.endswith("_total")):
            for labels, value in series(before, name):
                self.assertGreaterEqual(next(v for other, v in series(after, name) if other == labels), value, name)
        self.assertGreater(series(after, "xpud_client_commands_total"), series(before, "xpud_client_commands_total"))

    def test_are_asked_of_the_lanes_once_in_a_while_however_many_ask(self):
        scrape(self.daemon)
        self.scrape_anew()
        self.assertEqual(len({scrape(self.daemon) for _ in range(10)}), 1, "a snapshot for each scrape")
        self.assertNotEqual(scrape(self.daemon), self.scrape_anew())

    def test_come_as_openmetrics_to_who_asks_for_that(self):
        text = scrape(self.daemon, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        self.assertTrue(text.endswith("# EOF\n"))
        self.assertIn("xpud_sessions_opened", names(text))

    def test_requests_that_are_wrong_are_told_so(self):
        for request, status in ((b"GET /other HTTP/1.1\r\n\r\n", "404"), (b"POST /metrics HTTP/1.1\r\n\r\n", "405"), (b"\x16\x03\x01\r\n\r\n", "400"),
                                (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000, "431")):
            self.assertTrue(self.answer(request).startswith(f"HTTP/1.1 {status} "), request[:40])
        self.assertEqual(self.answer(b"HEAD /metrics HTTP/1.1\r\n\r\n").partition("\r\n\r\n")[2], "")

    def test_nobody_waits_for_those_who_do_not_ask_or_do_not_read(self):
        clients = [subprocess.Popen([BINARIES / "bench_ring", "--idle"], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(60)]
        for client in clients:
            self.addCleanup(client.communicate)
            client.stdout.readline()
        self.assertGreater(len(self.scrape_anew()), 50_000)
        threads_before = len(list(pathlib.Path(f"/proc/{self.daemon.pid}/task").iterdir()))
        for _ in range(50):
            self.connect(b"GET /metr")
        for _ in range(50):
            slow = socket.socket()
            self.addCleanup(slow.close)
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            slow.connect(address_of(self.daemon))
            slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        self.assertLess(max(self.seconds_of_a_scrape() for _ in range(5)), MOST_TIME / 2)
        self.assertEqual(len(list(pathlib.Path(f"/proc/{self.daemon.pid}/task").iterdir())), threads_before)
        self.assertLessEqual(tcp_sockets(self.daemon.pid), 1 + 32)

    def test_a_connection_has_so_much_time(self):
        began, silent = time.monotonic(), self.connect(b"GET /metrics HTTP/1.1\r\n")
        self.assertEqual(silent.recv(1), b"")
        self.assertGreater(time.monotonic() - began, MOST_TIME - 1)


class OfAnExecutor(DaemonTest):
    FLAGS = ("--device", "cpu", "--executor", "process", "--metrics-listen", "0")

    def values(self) -> tuple[float, float]:
        text = scrape(self.daemon)
        return tuple(series(text, f"xpud_device_{name}")[0][1] for name in ("executor_up", "executors_replaced_total"))

    def test_metrics_say_that_it_was_lost_and_replaced(self):
        self.assertEqual(self.values(), (1, 0))
        os.kill(self.daemon.devices()[0]["executor_pid"], signal.SIGKILL)
        wait_until(lambda: self.values() == (1, 1), 10)

    def test_a_daemon_whose_executor_is_lost_serves_metrics_on(self):
        stop(self.daemon.devices()[0]["executor_pid"])  # the daemon will notice that it does not answer
        client = self.light_client("x = xpud.ones(4); x.numpy(); say('done')")
        self.assertIn("xpud_sessions", scrape(self.daemon))
        client.hear()
        wait_until(lambda: self.values() == (1, 1), 20)


class Addresses(unittest.TestCase):
    def test_that_are_none_or_taken_end_the_start_with_a_sentence(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for text, status, reason in (("example.org:9464", 2, "not an address for metrics"), (address, 1, f"cannot serve metrics at {address}")):
                with self.subTest(text), tempfile.TemporaryDirectory(prefix="xpud-e2e-") as folder:
                    daemon = subprocess.run([BINARIES / "xpud", "--socket", f"{folder}/xpud.sock", "--device", "cpu", "--metrics-listen", text],
                                            capture_output=True, text=True, timeout=30)
                    self.assertEqual(daemon.returncode, status)
                    self.assertIn(reason, daemon.stderr)


if __name__ == "__main__":
    unittest.main()
