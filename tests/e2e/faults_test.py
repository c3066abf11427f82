"""How the death of one side affects the other."""

import os
import signal
import time
import unittest

from harness import DaemonTest, wait_until

ENDLESS = """
x = torch.ones(512, 512, device='xpud')
say('working')
while True:
    y = x * 2 + 1
    z = y @ x
"""


class Faults(DaemonTest):
    def test_a_killed_client_gives_its_memory_back_within_a_second_and_nobody_else_notices(self):
        bystander = self.client("x = torch.arange(1000., device='xpud'); say('ready'); sys.stdin.readline()\n"
                                "for _ in range(500): x = x + 1\nsay(x.sum().item())")
        bystander.hear()
        victim = self.client(ENDLESS)
        victim.hear()
        time.sleep(0.5)
        self.assertGreater(self.memory_of(victim.process.pid), 0)
        bystander.tell()
        victim.kill()
        wait_until(lambda: self.memory_of(victim.process.pid) is None, 1.0)
        self.assertEqual(bystander.hear(), str(999.0 * 500 + 500 * 1000))
        self.assertEqual(bystander.finish()[0], 0)
        self.assertEqual(self.daemon.devices()[0]["memory_used_bytes"], 0)

    def test_a_client_learns_within_a_second_that_the_daemon_was_killed(self):
        client = self.client("x = torch.ones(8, device='xpud'); torch.xpud.synchronize(); say('ready'); sys.stdin.readline()\n"
                             "began = time.monotonic()\n"
                             "try:\n    (x + 1).cpu()\nexcept RuntimeError as error:\n    say(time.monotonic() - began); say(error)\n")
        client.hear()
        self.daemon.kill()
        client.tell()
        self.assertLess(float(client.hear()), 1.0)
        self.assertIn("daemon", client.hear())
        status, _, err = client.finish()
        self.assertEqual(status, 0, err)

    def test_a_waiting_client_learns_it_too(self):
        client = self.client(ENDLESS.replace("while True:", "for _ in range(10**9):"))
        client.hear()
        time.sleep(0.3)
        self.daemon.kill()
        began = time.monotonic()
        status, _, err = client.finish(5)
        self.assertLess(time.monotonic() - began, 2.0)  # including the interpreter's exit
        self.assertEqual(status, 1)
        self.assertIn("the xpud daemon died", err)

    def test_control_c_interrupts_a_wait(self):
        client = self.client("x = torch.rand(2000, 2000, device='xpud'); y = x @ x; torch.xpud.synchronize()\n"
                             "for _ in range(200): y = x @ x\n"
                             "try:\n    say('waiting')\n    y.cpu()\n    say('was not interrupted')\n"
                             "except KeyboardInterrupt: say(time.monotonic())\n")
        self.assertEqual(client.hear(), "waiting")
        time.sleep(0.2)
        sent = time.monotonic()
        os.kill(client.process.pid, signal.SIGINT)
        self.assertLess(float(client.hear()) - sent, 1)

    def test_a_forked_child_is_told_to_start_afresh(self):
        client = self.client("import os\nx = torch.ones(3, device='xpud'); x.cpu()\n"
                             "pid = os.fork()\n"
                             "if pid == 0:\n"
                             "    try: torch.ones(3, device='xpud')\n"
                             "    except RuntimeError as error: say(str(error).splitlines()[0])\n"
                             "    os._exit(0)\n"
                             "os.waitpid(pid, 0)\nsay((x + 1).cpu().tolist())\n")
        self.assertIn("Cannot re-initialize", client.hear())
        self.assertEqual(client.hear(), "[2.0, 2.0, 2.0]")


if __name__ == "__main__":
    unittest.main()
