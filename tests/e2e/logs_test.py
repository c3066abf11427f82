"""The daemon's log, as xpuctl shows it."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from harness import BINARIES, Daemon, DaemonTest, wait_until

EXIT_ERROR = 1
IN_ONE_ANSWER = 64  # lines
CLIENTS = 1000  # their lines are more than a pipe holds


class Logs(DaemonTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        self.config = pathlib.Path(folder.name, "xpud.yaml")
        self.config.touch()
        self.FLAGS = ("--device", "cpu", "--log-level", "debug", "--config", str(self.config))
        super().setUp()

    def lines(self, *options: str) -> list[dict]:
        return json.loads(self.daemon.ask("logs", "-o", "json", *options))["lines"]

    def test_say_what_the_daemon_wrote(self):
        lines = self.lines()
        self.assertEqual([line["sequence"] for line in lines], list(range(1, len(lines) + 1)))
        written = [line.split(" ", 2)[2] for line in self.daemon.log.read_text().splitlines()]
        self.assertEqual([line["text"] for line in lines], written[:len(lines)])
        self.assertTrue(any(line["text"].startswith("serving ") and line["level"] == "info" for line in lines))
        table = self.daemon.ask("logs").splitlines()
        self.assertRegex(table[-1], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  info ")
        self.assertEqual(len(self.daemon.ask("logs", "-n", "2").splitlines()), 2)
        self.assertEqual(self.lines("-n", "2"), lines[-2:])

    def test_are_filtered_by_level(self):
        self.daemon.ask("drain")
        self.assertNotEqual(self.lines("--level", "info"), [])
        self.assertEqual(self.lines("--level", "error"), [])
        wrong = subprocess.run([BINARIES / "xpuctl", "--address", self.daemon.address, "logs", "--level", "loud"], capture_output=True, text=True, timeout=30)
        self.assertEqual((wrong.returncode, wrong.stdout), (EXIT_ERROR, ""))
        self.assertIn("no log level 'loud'", wrong.stderr)

    def reload(self, text: str) -> None:
        """Makes the daemon log a line: of level info, or error if the text is not a configuration."""
        self.config.write_text(text)
        before = self.daemon.log.read_text().count("\n")
        os.kill(self.daemon.pid, signal.SIGHUP)
        wait_until(lambda: self.daemon.log.read_text().count("\n") > before, 10)

    def test_are_found_behind_many_that_the_level_leaves_out(self):
        for _ in range(IN_ONE_ANSWER + 10):
            self.reload("")
        self.reload("nonsense: 1\n")
        line, = self.lines("--level", "error")
        self.assertIn("config_refused", line["text"])

    def test_are_followed(self):
        with subprocess.Popen([BINARIES / "xpuctl", "--address", self.daemon.address, "logs", "-f", "-o", "jsonl", "--level", "info", "-n", "1"],
                              stdout=subprocess.PIPE, text=True) as process:
            first = json.loads(process.stdout.readline())
            self.daemon.ask("drain")
            second = json.loads(process.stdout.readline())
            self.assertGreater(second["sequence"], first["sequence"])
            self.assertIn("drain state=on", second["text"])
            process.terminate()
            self.assertEqual(process.wait(5), 0)

    def test_end_with_the_daemon(self):
        with subprocess.Popen([BINARIES / "xpuctl", "--address", self.daemon.address, "logs", "-f"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while "serving" not in process.stdout.readline():
                continue
            self.daemon.close()
            self.assertEqual(process.wait(10), EXIT_ERROR)
            self.assertIn("control plane", process.stderr.read())


class FailingCache(unittest.TestCase):
    def test_is_said_once_and_kernels_are_compiled_all_the_same(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        cache = pathlib.Path(folder.name, "cache")
        daemon = Daemon(BINARIES, pathlib.Path(folder.name, "log"), "--device", "cpu", "--cache-dir", str(cache))
        self.addCleanup(daemon.close)

        def compute(function: str) -> None:
            code = f"import numpy, xpud; x = xpud.asarray(numpy.ones(3, 'float32')); print(xpud.{function}(x).numpy())"
            env = os.environ | {"PYTHONPATH": str(BINARIES.parent / "lib"), "XPUD_ADDRESS": str(daemon.address)}
            subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, timeout=60)

        def complaints() -> list[str]:
            return [line for line in daemon.log.read_text().splitlines() if " kernel_cache_failed " in line]

        compute("exp")
        self.assertEqual(complaints(), [])
        shutil.rmtree(cache)
        for function in ("sqrt", "sin", "cos", "tanh"):
            compute(function)
        self.assertEqual(len(complaints()), 1)
        self.assertIn(f"folder={cache} ", complaints()[0])
        self.assertIn("No such file or directory", complaints()[0])


class StalledReader(unittest.TestCase):
    """Standard error is a pipe that nobody reads."""

    def test_of_standard_error_delays_nobody_and_lines_are_counted(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        address = pathlib.Path(folder.name, "xpud.sock")
        ready, ready_child = os.pipe()
        daemon = subprocess.Popen([BINARIES / "xpud", "--socket", address, "--device", "cpu", "--cache-dir", f"{folder.name}/cache", "--ready-fd", str(ready_child)],
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[ready_child])
        self.addCleanup(daemon.communicate)
        self.addCleanup(daemon.kill)
        os.close(ready_child)
        self.assertEqual(os.read(ready, 1), b"1")
        os.close(ready)
        clients = f"import xpud\nfor _ in range({CLIENTS}): xpud.connect({str(address)!r}).close()"
        env = os.environ | {"PYTHONPATH": str(BINARIES.parent / "lib")}

        def connect() -> None:
            subprocess.run([sys.executable, "-c", clients], env=env, check=True, timeout=60)

        def ask() -> str:
            return subprocess.run([BINARIES / "xpuctl", "--address", address, "status"], check=True, capture_output=True, text=True, timeout=30).stdout

        connect()
        ask()
        os.set_blocking(daemon.stderr.fileno(), False)
        first = daemon.stderr.read()
        self.assertGreater(len(first), 32 << 10, "the pipe was not full")
        connect()
        text = (first + daemon.stderr.read()).decode()
        counted = re.search(r" warn(?:ing)? log_lines_dropped count=(\d+) ", text)
        self.assertIsNotNone(counted, text[-2000:])
        lines = sum(" session_opened " in line for line in text.splitlines())
        self.assertGreater(int(counted[1]) + lines, CLIENTS)
        connect()
        daemon.terminate()
        self.assertEqual(daemon.wait(20), 0)


if __name__ == "__main__":
    unittest.main()
