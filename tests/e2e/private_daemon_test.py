"""A client that finds no daemon starts one."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from harness import BINARIES, Client, wait_until

DOUBLE = "say((torch.ones(3, device='xpud') * 2).sum().item()); sys.stdin.readline()"


class PrivateDaemon(unittest.TestCase):
    def setUp(self):
        if pathlib.Path("/run/xpud").exists():
            self.skipTest("this machine has a system daemon, which clients find first")
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        self.socket = pathlib.Path(folder.name, "xpud/xpud.sock")
        self.env = {"XDG_RUNTIME_DIR": folder.name, "XPUD_ADDRESS": "", "XPUD_DAEMON": str(BINARIES / "xpud")}
        self.addCleanup(self.end_daemon)

    def daemon_pid(self) -> int | None:
        answer = subprocess.run([BINARIES / "xpuctl", "--address", self.socket, "status", "-o", "json"], capture_output=True, text=True)
        if answer.returncode != 0:
            return None
        return json.loads(answer.stdout)["daemon"]["pid"]

    def end_daemon(self):
        if pid := self.daemon_pid():
            os.kill(pid, signal.SIGTERM)

    def run_clients(self, count: int) -> list[str]:
        """Returns what each of `count` clients, started together, wrote to stderr."""
        clients = [Client(DOUBLE, self.env) for _ in range(count)]
        for client in clients:
            self.assertEqual(client.hear(), "6.0")
            client.tell()
        return [client.finish()[2] for client in clients]

    def test_the_first_says_so_and_the_next_uses_it(self):
        self.assertIn("started a private daemon", self.run_clients(1)[0])
        first = self.daemon_pid()
        self.assertEqual(self.run_clients(1), [""])
        self.assertEqual(self.daemon_pid(), first)
        self.assertEqual(self.socket.parent.stat().st_mode & 0o777, 0o700)

    def test_processes_that_start_together_get_one(self):
        said = self.run_clients(4)
        self.assertEqual(sum("started a private daemon" in err for err in said), 1, said)

    def test_after_a_crash_the_next_process_starts_cleanly(self):
        self.run_clients(1)
        crashed = self.daemon_pid()
        os.kill(crashed, signal.SIGKILL)
        wait_until(lambda: self.daemon_pid() is None, 5)
        self.assertIn("started a private daemon", self.run_clients(1)[0])
        self.assertNotEqual(self.daemon_pid(), crashed)

    def test_one_whose_program_was_replaced_ends_with_its_last_client(self):
        folder = self.socket.parent.parent
        (folder / "bin").mkdir()
        (folder / "lib").symlink_to(BINARIES.parent / "lib")
        program = folder / "bin/xpud"
        shutil.copy(BINARIES / "xpud", program)
        self.env["XPUD_DAEMON"] = str(program)
        client = Client(DOUBLE, self.env)
        self.assertEqual(client.hear(), "6.0")
        old = self.daemon_pid()
        shutil.copy(BINARIES / "xpud", folder / "new")
        os.replace(folder / "new", program)
        time.sleep(1.5)
        self.assertEqual(self.daemon_pid(), old, "it has a client")
        client.tell()
        client.finish()
        wait_until(lambda: not pathlib.Path(f"/proc/{old}").exists(), 10)
        self.assertIn("started a private daemon", self.run_clients(1)[0])
        self.assertNotEqual(self.daemon_pid(), old)

    def refusal(self, daemon: str, timeout: float) -> str:
        """Returns why no daemon could be started, with this program in its place."""
        code = f"import xpud\ntry: xpud.connect(timeout={timeout})\nexcept xpud.ConnectionError as error: print(error)"
        env = os.environ | self.env | {"XPUD_DAEMON": daemon, "PYTHONPATH": str(BINARIES.parent / "lib")}
        return subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True, timeout=60).stdout

    def test_one_that_does_not_start_is_refused_with_the_time_and_the_reason(self):
        log = self.socket.parent / "xpud.log"
        self.assertRegex(self.refusal("/bin/sleep", 10), r"ended while it started, after \d{1,3} ms: Try .*sleep --help.* " + re.escape(f"({log})"))
        self.assertRegex(self.refusal("/bin/false", 10), r"ended while it started, after \d{1,3} ms: it logged nothing ")
        slow = self.socket.parent.parent / "slow"
        slow.write_text("#!/bin/sh\necho waiting >&2\n(sleep 1) &\n")
        slow.chmod(0o700)
        self.assertRegex(self.refusal(str(slow), 0.3), r"did not start within [3-9]\d\d ms: waiting ")

    @unittest.skipUnless(os.environ.get("XPUD_TEST_FULL"), "takes over a minute: tools/test --full")
    def test_it_ends_a_minute_after_its_last_client(self):
        self.run_clients(1)
        self.assertGreater(wait_until(lambda: self.daemon_pid() is None, 75), 50)


if __name__ == "__main__":
    unittest.main()
