"""The daemon in a pid namespace of its own, as in a container: it does not know its clients' pids."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from harness import BINARIES, Client, wait_until

WORKS = tuple(map(int, re.match(r"(\d+)\.(\d+)", os.uname().release).groups())) >= (6, 5)  # SO_PEERPIDFD


@unittest.skipIf(os.geteuid() != 0, "a pid namespace takes root")
class InANamespace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        self.address = pathlib.Path(folder.name, "xpud.sock")
        self.log = pathlib.Path(folder.name, "log")
        with self.log.open("wb") as out:
            daemon = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", BINARIES / "xpud", "--socket", self.address, "--device", "cpu"],
                                      stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)  # unshare handles only SIGKILL; its child ends with it
        wait_until(lambda: "serving" in self.log.read_text(), 10)

    def client(self, code: str) -> Client:
        client = Client(code, {"XPUD_ADDRESS": str(self.address)})
        for stream in (client.process.stdin, client.process.stdout, client.process.stderr):
            self.addCleanup(stream.close)  # a child of its has them, too
        self.addCleanup(client.process.wait)
        self.addCleanup(client.process.kill)
        return client

    @unittest.skipUnless(WORKS, "before Linux 6.5 there is no way to such a client's process")
    def test_a_client_outside_is_served_and_its_end_is_seen_while_a_child_keeps_its_socket(self):
        client = self.client("import os\nx = (torch.ones(3, device='xpud') * 2).sum().item()\nif os.fork() == 0: time.sleep(20); os._exit(0)\nsay(x); sys.stdin.readline()")
        self.assertEqual(client.hear(), "6.0")
        self.assertIn("session_opened id=1 pid=0", self.log.read_text())
        client.process.kill()
        wait_until(lambda: 'session_closed id=1 pid=0 reason="its process ended"' in self.log.read_text(), 5)

    @unittest.skipIf(WORKS, "such clients are served from Linux 6.5 on")
    def test_a_client_outside_is_told_why_it_is_not_served(self):
        status, _, errors = self.client("torch.ones(3, device='xpud')").finish()
        self.assertNotEqual(status, 0)
        self.assertIn("pid namespace", errors)


if __name__ == "__main__":
    unittest.main()
