"""The daemon as a socket-activated service, with this test in systemd's place: it creates the sockets, and starts a daemon when a client connects."""

import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

from harness import BINARIES, Client, wait_until

DOUBLE = "say((torch.ones(3, device='xpud') * 2).sum().item()); sys.stdin.readline()"
FIRST = 3  # first descriptor that is handed over


def listening(path: pathlib.Path, kind: int) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(str(path))
    made.listen()
    return made


def start(folder: pathlib.Path, sockets: list[tuple[str, socket.socket]], *options: str, environment: str = "LISTEN_PID=$$", log: str = "log") -> subprocess.Popen:
    """xpud with sockets from descriptor 3 on and their description, as systemd starts it."""
    names = ":".join(name for name, _ in sockets)
    moves = " ".join(f"{FIRST + i}<&{made.fileno()}" for i, (_, made) in enumerate(sockets))
    script = f'exec env {environment} LISTEN_FDS={len(sockets)} LISTEN_FDNAMES={names} "$@" {moves}'
    with (folder / log).open("ab") as out:
        return subprocess.Popen(["bash", "-c", script, "bash", BINARIES / "xpud", "--socket", folder / "xpud.sock", "--device", "cpu", *options], stdin=subprocess.DEVNULL,
                                stdout=out, stderr=out, pass_fds=[made.fileno() for _, made in sockets])


class Activator:
    def __init__(self, folder: pathlib.Path, sockets: list[tuple[str, socket.socket]], *options: str):
        self.started: list[subprocess.Popen] = []
        self._folder, self._sockets, self._options = folder, sockets, options
        self._wake, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._wake, *(made for _, made in self._sockets)], [], [])
            if self._wake in ready:
                return
            self.started.append(start(self._folder, self._sockets, *self._options))
            self.started[-1].wait()

    def close(self) -> None:
        os.write(self._end, b"1")
        for daemon in self.started:
            daemon.terminate()
        self._thread.join()
        for fd in (self._wake, self._end):
            os.close(fd)


class Base(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.address = self.folder / "xpud.sock"

    def sockets(self) -> list[tuple[str, socket.socket]]:
        made = [("clients", listening(self.address, socket.SOCK_SEQPACKET)), ("control", listening(self.folder / "control.sock", socket.SOCK_STREAM))]
        for _, each in made:
            self.addCleanup(each.close)
        return made

    def activate(self, *options: str) -> Activator:
        activator = Activator(self.folder, self.sockets(), *options)
        self.addCleanup(activator.close)
        return activator

    def status(self) -> dict:
        answer = subprocess.run([BINARIES / "xpuctl", "--address", self.address, "status", "-o", "json"], check=True, capture_output=True, text=True, timeout=30)
        return json.loads(answer.stdout)

    def double(self) -> Client:
        client = Client(DOUBLE, {"XPUD_ADDRESS": str(self.address)})
        self.addCleanup(client.kill)
        self.assertEqual(client.hear(), "6.0")
        return client

    def log(self) -> str:
        return (self.folder / "log").read_text()


class Activated(Base):
    def test_the_first_client_starts_a_daemon_and_xpuctl_finds_it(self):
        activator = self.activate()
        self.assertEqual(activator.started, [])
        self.double()
        status = self.status()
        self.assertEqual(len(status["sessions"]), 1)
        self.assertEqual([daemon.pid for daemon in activator.started], [status["daemon"]["pid"]])

    def test_xpuctl_starts_one_too(self):
        self.activate()
        self.assertFalse(self.status()["daemon"].get("private_daemon"))

    def test_an_idle_daemon_goes_and_the_next_client_starts_another_at_the_same_sockets(self):
        activator = self.activate("--exit-when-idle", "0")
        files = [(self.folder / name).stat().st_ino for name in ("xpud.sock", "control.sock")]
        self.double().finish()
        wait_until(lambda: activator.started[0].poll() is not None, 10)
        self.assertEqual(activator.started[0].returncode, 0)
        self.assertEqual([(self.folder / name).stat().st_ino for name in ("xpud.sock", "control.sock")], files)
        self.double()
        self.assertEqual(len(activator.started), 2)

    def test_a_daemon_that_is_ended_leaves_the_sockets(self):
        activator = self.activate()
        self.status()
        os.kill(activator.started[0].pid, signal.SIGTERM)
        wait_until(lambda: activator.started[0].poll() is not None, 10)
        self.assertTrue(self.address.is_socket() and (self.folder / "control.sock").is_socket())
        self.double()

    def test_its_children_have_neither_the_sockets_nor_the_variables(self):
        self.activate("--executor", "process")
        executor = pathlib.Path("/proc", str(self.status()["devices"][0]["executor_pid"]))
        self.assertNotIn("LISTEN_", (executor / "environ").read_text())
        listeners = {line.split()[6] for line in pathlib.Path("/proc/net/unix").read_text().splitlines() if str(self.folder) in line}
        held = {os.readlink(fd) for fd in (executor / "fd").iterdir()}
        self.assertTrue(listeners)
        self.assertEqual(held & {f"socket:[{inode}]" for inode in listeners}, set())


class NotTaken(Base):
    def refusal(self, *sockets: tuple[str, socket.socket]) -> str:
        for _, made in sockets:
            self.addCleanup(made.close)
        daemon = start(self.folder, list(sockets))
        self.addCleanup(daemon.kill)
        self.assertEqual(daemon.wait(10), 1)
        return self.log()

    def test_an_internet_socket(self):
        made = socket.create_server(("127.0.0.1", 0))
        log = self.refusal(("clients", made))
        self.assertIn('hands over socket 3, "clients", ', log)
        self.assertIn(f"which is an internet stream socket that listens; it must be a unix seqpacket socket that listens at {self.address}", log)

    def test_a_socket_of_another_type(self):
        self.assertIn(f"which is a unix stream socket that listens at {self.address}; it must be a unix seqpacket", self.refusal(("clients", listening(self.address, socket.SOCK_STREAM))))

    def test_one_that_does_not_listen(self):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.bind(str(self.address))
        self.assertIn("that does not listen", self.refusal(("clients", made)))

    def test_one_at_another_place(self):
        log = self.refusal(("control", listening(self.folder / "elsewhere", socket.SOCK_STREAM)))
        self.assertIn(f"listens at {self.folder}/elsewhere; it must be a unix stream socket that listens at {self.folder}/control.sock", log)

    def test_a_name_that_nobody_knows(self):
        self.assertRegex(self.refusal(("web", listening(self.address, socket.SOCK_SEQPACKET))), "web.*clients.*control")

    def test_two_of_a_name(self):
        clients = [("clients", made) for _, made in [self.sockets()[0]]]
        self.assertIn("socket 4", self.refusal(*clients, *clients))

    def test_what_is_no_socket(self):
        with open("/dev/null", "rb") as file:
            self.assertIn("which is no socket", self.refusal(("clients", file)))

    def test_those_that_are_meant_for_another_process(self):
        daemon = start(self.folder, self.sockets(), environment="LISTEN_PID=1")
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        wait_until(lambda: "serving" in self.log(), 10)
        self.double()
        daemon.terminate()
        daemon.wait(10)
        self.assertFalse(self.address.exists(), "a socket of its own, the daemon removes")


class BySystemd(Base):
    def test_systemds_own_activator_hands_over_what_the_daemon_takes(self):
        program = shutil.which("systemd-socket-activate")
        if not program:
            self.skipTest("systemd-socket-activate is not installed")
        with (self.folder / "log").open("wb") as out:
            activator = subprocess.Popen([program, "--seqpacket", "--fdname=clients", f"--listen={self.address}", BINARIES / "xpud", "--socket", self.address, "--device", "cpu"],
                                         stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.addCleanup(activator.wait)
        self.addCleanup(activator.terminate)
        wait_until(self.address.exists, 10)
        inode = self.address.stat().st_ino
        self.double()
        self.assertEqual(self.status()["daemon"]["pid"], activator.pid)
        activator.terminate()
        activator.wait(10)
        self.assertEqual(self.address.stat().st_ino, inode)


if __name__ == "__main__":
    unittest.main()
