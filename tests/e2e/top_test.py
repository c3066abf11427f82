"""xpuctl top on a terminal: its keys, and the state of the terminal afterwards."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from harness import BINARIES, DaemonTest, wait_until

LEAVES = "\x1b[?1049l"
IDLE = "x = xpud.ones(4); x.numpy(); say('ready'); sys.stdin.readline(); x.numpy()"


class Top:
    """xpuctl top on a terminal of its own."""

    def __init__(self, *arguments: str):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 160, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([BINARIES / "xpuctl", *arguments], stdin=self.slave, stdout=self.slave, stderr=subprocess.PIPE,
                                        env=os.environ | {"TERM": "xterm"}, start_new_session=True, text=True)
        self.text = ""

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        for fd in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(fd)

    def read(self, seconds: float) -> str:
        """Returns everything drawn so far."""
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0 and select.select([self.master], [], [], rest)[0]:
            try:
                self.text += os.read(self.master, 65536).decode(errors="replace")
            except OSError:
                break
        return self.text

    def screen(self) -> str:
        """Returns the last complete picture."""
        return self.text.split("\x1b[H")[-2 if self.text.count("\x1b[H") > 1 else -1]

    def await_text(self, pattern: str) -> None:
        """Waits for text in a picture that is drawn from now on."""
        self.text = ""
        wait_until(lambda: re.search(pattern, self.read(0.05)), 10)

    def press(self, keys: str, pattern: str | None = None) -> None:
        os.write(self.master, keys.encode())
        if pattern is not None:
            self.await_text(pattern)

    def finish(self) -> int:
        wait_until(lambda: self.read(0.05) is not None and self.process.poll() is not None, 15)  # it blocks while nobody reads
        self.read(0.2)
        return self.process.returncode


class TopOnATerminal(DaemonTest):
    FLAGS = ("--device", "cpu")

    def top(self, *arguments: str) -> Top:
        top = Top("--address", str(self.daemon.address), "top", "--interval", "0.1", *arguments)
        self.addCleanup(top.close)
        top.await_text("device 0")
        return top

    def check_restored(self, top: Top) -> None:
        self.assertIn(LEAVES, top.text)
        self.assertEqual(termios.tcgetattr(top.slave), top.before)

    def test_each_way_out_leaves_the_terminal_as_it_was(self):
        for way in ("q", "\x03", signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            top = self.top()
            self.assertNotEqual(termios.tcgetattr(top.slave), top.before, "it takes single keys")
            top.press(way) if isinstance(way, str) else top.process.send_signal(way)
            self.assertEqual(top.finish(), 0, way)
            self.check_restored(top)

    def test_the_end_of_the_daemon_is_said_on_a_terminal_as_it_was(self):
        top = self.top()
        self.daemon.kill()
        self.assertNotEqual(top.finish(), 0)
        self.check_restored(top)
        self.assertIn("xpuctl: ", top.process.stderr.read())

    def test_a_session_is_killed_once_that_is_confirmed(self):
        client, other = (self.light_client(IDLE) for _ in range(2))
        client.hear(), other.hear()
        first, second = (session["id"] for session in self.daemon.sessions())
        top = self.top()
        top.press("a", "sorted by age")
        top.press("k", rf"close session {first} of .*\? y or n")
        top.press("n", "nothing was killed")
        self.assertEqual(len(self.daemon.sessions()), 2)
        top.press("\x1b[B")
        top.press("k", rf"close session {second} of ")
        top.press("y", f"session {second} closed")
        self.assertEqual([session["id"] for session in self.daemon.sessions()], [first])
        top.press("q")
        self.assertEqual(top.finish(), 0)

    def test_pause_holds_the_picture_and_help_explains_the_keys(self):
        top = self.top()
        top.press("p", "PAUSED")
        client = self.light_client(IDLE)
        client.hear()
        top.text = ""
        self.assertNotIn("1 session,", top.read(0.6))
        top.press("p", "1 session,")
        top.press("?", "kill the selected session")
        top.press("\x1b", "SESSION")

    def test_without_a_terminal_one_picture_follows_another(self):
        answer = subprocess.run([BINARIES / "xpuctl", "--address", self.daemon.address, "top", "--interval", "0.05", "-n", "2"], capture_output=True, text=True, timeout=30)
        self.assertEqual((answer.returncode, answer.stdout.count("device 0"), "\x1b" in answer.stdout), (0, 2, False))


if __name__ == "__main__":
    unittest.main()
