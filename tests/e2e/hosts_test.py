"""xpuctl with several hosts: daemons of this machine, and one behind an xpud-gateway."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from harness import BINARIES, Daemon, Gateway, stop

EXIT_USAGE, EXIT_NOT_ALL = 2, 4
LIMIT = 5  # seconds that a call may take


def xpuctl(*arguments, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([BINARIES / "xpuctl", *arguments], capture_output=True, text=True, env=os.environ | (env or {}), timeout=60)


class Hosts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.daemons = [self.start(f"log{i}") for i in range(2)]
        self.names = [str(daemon.address) for daemon in self.daemons]

    def start(self, log: str) -> Daemon:
        daemon = Daemon(BINARIES, self.folder / log, "--device", "cpu")
        self.addCleanup(daemon.close)
        return daemon

    def ask(self, *arguments: str, code: int = 0) -> str:
        answer = xpuctl("--host", ",".join(self.names), *arguments)
        self.assertEqual(answer.returncode, code, answer.stderr)
        return answer.stdout

    def test_each_view_shows_all_and_says_which_is_which(self):
        lines = self.ask("devices").splitlines()
        self.assertEqual(lines[0].split()[0], "HOST")
        self.assertEqual([line.split()[0] for line in lines[1:]], self.names)
        for daemon in self.daemons:
            self.assertIn(f"pid {daemon.pid}", self.ask("status"))
            self.assertIn(f"{daemon.address}  xpud ", self.ask("top", "--once", "--interval", "0.05"))
        for view in ("status", "devices", "ps", "quota", "memory"):
            document = json.loads(self.ask(view, "-o", "json"))
            self.assertEqual((document["schema"], [host["host"] for host in document["hosts"]]), ("xpuctl/1", self.names))
            self.assertTrue(all(host["time_ns"] > 0 for host in document["hosts"]))
        header, *rows = csv.reader(self.ask("devices", "-o", "csv", "-w", "0.05", "-n", "2").splitlines())
        self.assertEqual((header[:2], [row[0] for row in rows]), (["host", "time_ns"], self.names * 2))
        self.assertEqual(self.ask("query", "--query-gpu=index", "--format=csv"), "host, index\n" + "".join(f"{name}, 0\n" for name in self.names))
        top = json.loads(self.ask("top", "--once", "--interval", "0.05", "-o", "json"))["hosts"]
        self.assertEqual([host["status"]["daemon"]["pid"] for host in top], [daemon.pid for daemon in self.daemons])

    def test_one_that_is_not_there_is_an_error_row_and_the_others_are_shown(self):
        self.names.insert(1, "/nowhere/xpud.sock")
        table = self.ask("devices", code=EXIT_NOT_ALL)
        self.assertIn("/nowhere/xpud.sock  error: no xpud daemon answers", table)
        self.assertEqual(sum("libze_xpud" in line for line in table.splitlines()), 2)
        hosts = json.loads(self.ask("status", "-o", "json", code=EXIT_NOT_ALL))["hosts"]
        self.assertEqual([("error" in host, "daemon" in host) for host in hosts], [(False, True), (True, False), (False, True)])
        self.ask("top", "--once", "--interval", "0.05", code=EXIT_NOT_ALL)
        self.assertEqual(len(self.ask("query", "--query-gpu=index", "--format=csv,noheader", code=EXIT_NOT_ALL).splitlines()), 2)

    def test_those_that_hang_are_waited_for_together(self):
        for daemon in self.daemons:
            stop(daemon.pid)
        self.names.append(str(self.start("alive").address))
        began = time.monotonic()
        table = self.ask("devices", code=EXIT_NOT_ALL)
        self.assertLess(time.monotonic() - began, 2 * LIMIT - 1)
        for daemon in self.daemons:
            self.assertRegex(table, rf"{daemon.address}  error: .* did not answer within {LIMIT} s")
            os.kill(daemon.pid, signal.SIGCONT)
        self.assertIn("libze_xpud", table)

    def test_what_is_no_view_is_for_one(self):
        self.assertEqual(self.ask("kill", "1", code=EXIT_USAGE), "")
        self.assertEqual(self.ask("quota", "default", "1GiB", code=EXIT_USAGE), "")
        self.assertEqual(xpuctl("--host", "a,,b", "status").returncode, EXIT_USAGE)
        self.assertEqual(xpuctl("--host", "a", "--address", "b", "status").returncode, EXIT_USAGE)
        drained = xpuctl("--host", self.names[1], "drain")
        self.assertEqual(drained.returncode, 0, drained.stderr)
        self.assertEqual([daemon.status()["daemon"]["drained"] for daemon in self.daemons], [False, True])

    def test_one_behind_a_gateway_is_asked_in_the_same_way(self):
        gateway = Gateway(BINARIES, self.daemons[0], self.folder)
        self.addCleanup(gateway.close)
        address = gateway.environment["XPUD_ADDRESS"]
        for arguments in (("status",), ("--host", address, "status"), ("--address", address, "status")):
            answer = xpuctl(*arguments, env=gateway.environment)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertIn(f"pid {self.daemons[0].pid}", answer.stdout)
        mixed = xpuctl("--host", f"{address},{self.names[1]}", "devices", "-o", "json", env=gateway.environment)
        self.assertEqual([host["host"] for host in json.loads(mixed.stdout)["hosts"]], [address, self.names[1]])
        self.assertEqual(xpuctl("drain", env=gateway.environment).returncode, 0)
        self.assertTrue(self.daemons[0].status()["daemon"]["drained"])

    def test_a_gateway_lets_nobody_in_without_a_token(self):
        gateway = Gateway(BINARIES, self.daemons[0], self.folder)
        self.addCleanup(gateway.close)
        refused = xpuctl("--address", gateway.environment["XPUD_ADDRESS"], "status", env={"XPUD_TOKEN_FILE": ""})
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn("token", refused.stderr)


if __name__ == "__main__":
    unittest.main()
