"""Sessions with real daemons: several processes, forks, signals, threads, ends."""

import contextlib
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import xpud

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARIES = pathlib.Path(os.environ["XPUD_DAEMON"]).parent if os.environ.get("XPUD_DAEMON") else ROOT / "build/release/bin"
sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon, Gateway  # noqa: E402


class WithDaemon(unittest.TestCase):
    OPTIONS: tuple[str, ...] = ("--device", "cpu")

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-python-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.daemon = Daemon(BINARIES, self.folder / "log", *self.OPTIONS)
        self.addCleanup(self.daemon.close)

    def connect(self, **options) -> xpud.Session:
        session = xpud.connect(str(self.daemon.address), **options)
        self.addCleanup(session.close)
        return session

    def start(self, code: str, **options) -> subprocess.Popen:
        """Starts another Python process on the same daemon."""
        process = subprocess.Popen([sys.executable, "-u", "-c", code], env=os.environ | {"XPUD_ADDRESS": str(self.daemon.address)}, text=True,
                                   stdout=subprocess.PIPE, **options)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    @contextlib.contextmanager
    def stopped(self):
        """Stops the daemon meanwhile, so that clients wait."""
        os.kill(self.daemon.pid, signal.SIGSTOP)
        threads = pathlib.Path(f"/proc/{self.daemon.pid}/task")
        while any(thread.read_text().rpartition(")")[2].split()[0] != "T" for thread in threads.glob("*/stat")):
            time.sleep(0.001)
        try:
            yield
        finally:
            os.kill(self.daemon.pid, signal.SIGCONT)


class Devices(WithDaemon):
    OPTIONS = ("--device", "cpu", "--test-devices", "2")

    def test_arrays_go_from_one_to_the_other_without_the_host(self):
        first, second = self.connect().devices
        array = xpud.arange(1000, device=first).reshape(10, 100)
        for moved, expected in ((array.to_device(second), array), (array.T.to_device(second), array.T)):
            self.assertEqual(moved.device, second)
            array + 1  # the source may be used and freed at once
            self.assertEqual(moved.tolist(), expected.tolist())
        self.assertEqual([int(device.get("peer_bytes", 0)) for device in self.daemon.status()["devices"]], [0, 2 * array.nbytes])
        with self.assertRaisesRegex(TypeError, "must be an array"):
            array._copy_from(3)
        with self.assertRaisesRegex(ValueError, "of one size"):
            array._copy_from(array[1:])


class Sessions(WithDaemon):
    def test_a_session_says_where_it_is_and_what_it_has(self):
        session = self.connect(client_name="named")
        self.assertEqual((session.address, session.started_daemon, session.closed), (str(self.daemon.address), False, False))
        described = self.daemon.devices()[0]
        device = session.devices[0]
        self.assertEqual((device.name, device.index, device.kind, device.vendor), (described["name"], 0, "cpu", "cpu"))
        self.assertGreater(min(device.total_memory, device.compute_units), 0)
        self.assertEqual(device.pci_address, "", "a CPU is not on PCI")
        self.assertEqual([each["client_name"] for each in self.daemon.sessions()], ["named"])
        self.assertRegex(repr(session), r"^<xpud session at .*xpud\.sock, 1 devices>$")

    def test_with_chooses_where_arrays_go_and_closes(self):
        with self.connect() as session:
            array = xpud.ones(3)
            self.assertEqual(array.device, session.devices[0])
            with self.connect() as other:
                inner = xpud.ones(3)
                self.assertEqual(inner.device, other.devices[0])
                self.assertNotEqual(array.device, inner.device)
                with session.devices[0]:
                    self.assertEqual(xpud.default_device(), session.devices[0])
                with self.assertRaisesRegex(ValueError, "different devices, or in different sessions"):
                    array + inner
                self.assertEqual((array + inner.to_device(array.device)).tolist(), [2, 2, 2])
            self.assertEqual(xpud.default_device(), session.devices[0])
        self.assertTrue(session.closed)
        with self.connect() as ended:
            ended.close()  # `with` closes it again
        first, second = self.connect(), self.connect()
        first.__enter__(), second.__enter__()
        with self.assertRaisesRegex(RuntimeError, "nested"):
            first.__exit__(None, None, None)
        second.__exit__(None, None, None), first.__exit__(None, None, None)
        for call in (lambda: array + 1, array.numpy, session.check, lambda: session.address, lambda: xpud.zeros(2, device=array.device), array.device.synchronize):
            with self.assertRaisesRegex(xpud.ConnectionError, "closed"):
                call()
        self.assertIn("the session was closed", repr(array))

    def test_closing_frees_what_arrays_hold(self):
        session = self.connect()
        arrays = [xpud.zeros(1 << 20, device=session) for _ in range(4)]
        session.synchronize()
        self.assertEqual(self.daemon.sessions()[0]["memory_bytes"], 16 << 20)
        session.close()
        deadline = time.monotonic() + 10
        while self.daemon.sessions() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(self.daemon.sessions(), [])
        self.assertEqual(len(arrays), 4)

    def test_memory_is_counted(self):
        session = self.connect()
        device = session.devices[0]
        array = xpud.zeros(1000, device=device)
        self.assertEqual(device.memory_stats(), {"buffers": 1, "allocated_bytes": 4000, "peak_allocated_bytes": 4000})
        view = array[10:]
        del array
        self.assertEqual(device.memory_stats()["buffers"], 1)
        del view
        self.assertEqual(device.memory_stats(), {"buffers": 0, "allocated_bytes": 0, "peak_allocated_bytes": 4000})
        device.reset_peak_memory()
        self.assertEqual(device.memory_stats()["peak_allocated_bytes"], 0)

    def test_repr_reads_what_it_shows(self):
        array = xpud.arange(4_000_000, device=self.connect()).reshape(2000, 2000)
        self.assertIn("3999999", repr(array))
        self.assertLess(self.daemon.sessions()[0]["downloaded_bytes"], 10_000)

    def test_no_room_is_a_memory_error(self):
        device = self.connect().devices[0]
        with self.assertRaisesRegex(xpud.OutOfMemoryError, "XPUD out of memory. Tried to allocate") as caught:
            xpud.empty(device.total_memory * 4, dtype="uint8", device=device)
        self.assertIsInstance(caught.exception, MemoryError)
        self.assertEqual(xpud.ones(2, device=device).tolist(), [1, 1], "the session goes on")

    def test_nobody_at_the_address(self):
        with self.assertRaisesRegex(xpud.ConnectionError, "no xpud daemon") as caught:
            xpud.connect(str(self.folder / "nothing.sock"))
        self.assertIsInstance(caught.exception, ConnectionError)
        with self.assertRaises(ValueError):
            xpud.connect("/" + "x" * 200)

    def test_over_the_network(self):
        gateway = Gateway(BINARIES, self.daemon, self.folder)
        self.addCleanup(gateway.close)
        os.environ |= {"XPUD_CONNECT": str(BINARIES / "xpud-connect"), "XPUD_TOKEN_FILE": gateway.environment["XPUD_TOKEN_FILE"]}
        self.addCleanup(os.environ.pop, "XPUD_CONNECT")
        self.addCleanup(os.environ.pop, "XPUD_TOKEN_FILE")
        with xpud.connect(gateway.environment["XPUD_ADDRESS"]):
            array = xpud.arange(100_000)
            self.assertEqual((array * 2).sum().item(), 99_999 * 100_000)
            host = xpud.empty_host(1000, "int64")
            array[:1000].numpy(out=host)
            self.assertEqual(host[999], 999)


class Shares(WithDaemon):
    RECEIVER = """
        import pickle, sys, xpud
        array = xpud.attach(pickle.loads(bytes.fromhex(input())))
        print(array.dtype.name, array.tolist())
        array += 1
        xpud.synchronize()
        print("added")
        input()
    """

    def receiver(self):
        other = self.start(textwrap.dedent(self.RECEIVER), stdin=subprocess.PIPE)
        self.addCleanup(other.stdin.close)
        return other

    def test_two_processes_write_the_same_memory(self):
        array = xpud.arange(12, device=self.connect(), dtype="int32").reshape(3, 4)
        other = self.receiver()
        print(pickle.dumps(xpud.share(array.T[1:])).hex(), file=other.stdin, flush=True)
        self.assertEqual(other.stdout.readline(), "int32 [[1, 5, 9], [2, 6, 10], [3, 7, 11]]\n")
        self.assertEqual(other.stdout.readline(), "added\n")
        self.assertEqual(array.tolist(), [[0, 2, 3, 4], [4, 6, 7, 8], [8, 10, 11, 12]])

    def test_memory_outlives_its_sender(self):
        sender = self.start("import pickle, xpud; a = xpud.full((5,), 2.5); print(pickle.dumps(xpud.share(a)).hex()); input()", stdin=subprocess.PIPE)
        self.addCleanup(sender.stdin.close)
        ticket = pickle.loads(bytes.fromhex(sender.stdout.readline()))
        sender.kill()
        sender.wait()
        session = self.connect()
        self.assertEqual(xpud.attach(ticket, session).tolist(), [2.5] * 5)
        with self.assertRaisesRegex(RuntimeError, "its ticket is unknown or was taken"):
            xpud.attach(ticket, session)

    def test_what_cannot_be_shared_is_refused(self):
        with self.assertRaises(ValueError):
            xpud.share(xpud.zeros(0, device=self.connect()))
        with self.assertRaises(TypeError):
            xpud.share([1, 2])


class Ends(WithDaemon):
    def test_a_killed_daemon_is_a_connection_error(self):
        session = self.connect()
        array = xpud.ones(1000, device=session)
        self.assertEqual(array.sum().item(), 1000)
        self.daemon.kill()
        for call in (lambda: (array + 1).numpy(), session.synchronize, lambda: xpud.asarray([1.0] * 10, device=session).numpy(), session.check):
            with self.assertRaises(xpud.ConnectionError):
                call()
        self.assertRegex(repr(array), "^Array\\(<.*daemon")
        with self.assertRaises(xpud.ConnectionError):
            self.connect()

    def test_another_process_shares_the_device_and_its_death_is_its_own(self):
        code = "import xpud; a = xpud.full((1000,), 3); print(a.sum().item()); input()"
        other = self.start(code, stdin=subprocess.PIPE)
        self.addCleanup(other.stdin.close)
        session = self.connect()
        array = xpud.ones(10, device=session)
        self.assertEqual(other.stdout.readline(), "3000\n")
        self.assertEqual(len(self.daemon.sessions()), 2)
        other.kill()
        other.wait()
        for _ in range(100):
            array = array + 1
        self.assertEqual(array.tolist(), [101] * 10)

    def test_a_forked_child_connects_anew(self):
        code = """
import os, xpud
array = xpud.arange(3)
session = xpud.default_session()
child = os.fork()
if child == 0:
    try:
        array.numpy()
        os._exit(1)
    except RuntimeError as error:
        assert "fork" in str(error), error
    del array
    ours = xpud.arange(4) + 1
    assert ours.tolist() == [1, 2, 3, 4] and xpud.default_session() is not session
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print((array * 2).tolist())
"""
        self.assertEqual(self.start(code).stdout.read(), "[0, 2, 4]\n")

    def test_a_wait_ends_with_ctrl_c(self):
        code = """
import time, xpud
array = xpud.arange(3)
array.numpy()
print("ready", flush=True)
began = time.monotonic()
try:
    input()
    (array + 1).numpy()
except KeyboardInterrupt:
    print("interrupted", flush=True)
input()
print((array + 2).tolist())
"""
        client = self.start(code, stdin=subprocess.PIPE)
        self.addCleanup(client.stdin.close)
        self.assertEqual(client.stdout.readline(), "ready\n")
        with self.stopped():
            client.stdin.write("\n")
            client.stdin.flush()
            time.sleep(0.5)  # by now it waits for the daemon
            client.send_signal(signal.SIGINT)
            self.assertEqual(client.stdout.readline(), "interrupted\n")
        client.stdin.write("\n")
        client.stdin.flush()
        self.assertEqual(client.stdout.readline(), "[2, 3, 4]\n", "the session goes on")


class UnreadErrors(WithDaemon):
    def test_are_printed_when_the_program_ends_or_the_session_is_closed(self):
        bad = "import xpud\nx = xpud.take(xpud.arange(4), [9])\n"
        for rest, printed in (("", True), ("xpud.default_session().close()", True), ("try: x.numpy()\nexcept IndexError: pass", False)):
            client = self.start(bad + rest, stderr=subprocess.PIPE)
            error = client.communicate(timeout=60)[1]
            self.assertEqual(client.returncode, 0, error)
            self.assertEqual(error.count("the program ended with an error that it did not read: index 9 is out of range"), int(printed), error)
            self.assertEqual(error == "", not printed)


class Threads(WithDaemon):
    def test_python_runs_while_a_thread_waits(self):
        array = xpud.ones(10, device=self.connect())
        array.numpy()
        values = []
        thread = threading.Thread(target=lambda: values.append((array + 1).tolist()))
        with self.stopped():
            thread.start()
            began, turns = time.monotonic(), 0
            while time.monotonic() - began < 0.5:
                time.sleep(0.001)
                turns += 1
            self.assertEqual(values, [])
        thread.join()
        self.assertGreater(turns, 50)
        self.assertEqual(values, [[2] * 10])

    def test_python_runs_while_a_thread_waits_for_room(self):
        """Sends more commands than the ring holds: the sending thread waits without the interpreter lock."""
        array = xpud.zeros(8, device=self.connect())
        array.numpy()

        def work():
            nonlocal array
            for _ in range(20_000):
                array += 1

        thread = threading.Thread(target=work)
        with self.stopped():
            thread.start()
            time.sleep(0.5)
            self.assertTrue(thread.is_alive())
            turns, until = 0, time.monotonic() + 60
            while turns < 50 and time.monotonic() < until:
                time.sleep(0.001)
                turns += 1
            self.assertTrue(thread.is_alive())  # it has waited all the time
        thread.join()
        self.assertEqual(turns, 50)
        self.assertEqual(array.tolist(), [20_000] * 8)

    def test_threads_compute_side_by_side(self):
        device = self.connect().devices[0]
        totals = {}

        def work(number: int):
            array = xpud.full((100,), float(number), device=device)
            for _ in range(200):
                array = array + number
            totals[number] = array.sum().item()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(totals, {number: 100.0 * number * 201 for number in range(8)})


if __name__ == "__main__":
    unittest.main()
