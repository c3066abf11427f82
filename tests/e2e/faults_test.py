"""How the death of one side affects the other."""

import os
import signal
import time
import unittest

from harness import DaemonTest, stop, wait_until

RUNS_ALONE = True  # it measures how soon clients notice something

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

    # Works on `x` until it hears a line; then says what became of it, of a new tensor, and of old ones beside new ones.
    SURVIVOR = """
import gc
x, stream = torch.arange(64., device='xpud'), torch.xpud.Stream()
with torch.xpud.stream(stream):
    kept = [x + i for i in range(100)]
torch.xpud.synchronize()

def error_of(call):
    try:
        call()
        torch.xpud.synchronize()
    except RuntimeError as error:
        return f'{type(error).__name__}: {error}'.splitlines()[0]
    return 'no error'

say('ready')
for _ in range(2):
    sys.stdin.readline()
    say(error_of(lambda: (x + 1).cpu()))
    say(torch.xpud.is_available(), torch.xpud.device_count())
    with torch.xpud.stream(stream):
        y = torch.ones(64, device='xpud') * 2
        say(y.sum().item())
    model = torch.nn.Linear(8, 2).to('xpud')
    model(torch.ones(3, 8, device='xpud')).sum().backward()
    say(model.bias.grad.tolist())
    for call in (lambda: x.cpu(), lambda: x.add_(1), lambda: y + x, lambda: torch.cat([y, x]), lambda: y.copy_(kept[3])):
        say(error_of(call))
    del kept
    gc.collect()
    x, kept = y, [y + i for i in range(100)]
    say((x + 1).sum().item(), torch.xpud.memory_allocated() > 0)
"""

    def test_after_the_daemons_end_new_tensors_reach_the_next_one_and_old_ones_raise(self):
        client = self.client(self.SURVIVOR)
        self.assertEqual(client.hear(), "ready")
        for end in (signal.SIGKILL, signal.SIGTERM):
            os.kill(self.daemon.pid, end)
            self.daemon.wait()
            self.daemon.start()
            client.tell()
            self.assertRegex(client.hear(), "AcceleratorError: XPUD error: (the xpud daemon (died|closed this session: the xpud daemon is ending)|this tensor)")
            self.assertEqual(client.hear(), "True 1")
            self.assertEqual(client.hear(), "128.0")
            self.assertEqual(client.hear(), "[3.0, 3.0]")
            for _ in range(5):
                self.assertIn("this tensor's memory was at an xpud daemon that died", client.hear())
            self.assertEqual(client.hear(), "192.0 True")
        self.assertEqual(client.finish()[0], 0)

    def test_a_loop_that_polls_an_event_ends_with_the_daemon(self):
        client = self.client("x = torch.ones(8, device='xpud'); x.cpu(); start, end = (torch.xpud.Event(enable_timing=True) for _ in range(2))\n"
                             "say('ready'); sys.stdin.readline(); start.record(); y = x + 1; end.record(); say(end.query()); sys.stdin.readline()\n"
                             "try:\n    while not end.query(): pass\nexcept RuntimeError as error: say(error)\n"
                             "for call in (end.synchronize, lambda: start.elapsed_time(end), torch.xpud.synchronize):\n"
                             "    try: say(call())\n    except RuntimeError as error: say(error)\n")
        client.hear()
        stop(self.daemon.pid)
        client.tell()
        self.assertEqual(client.hear(), "False")
        self.daemon.kill()
        client.tell()
        for _ in range(4):
            self.assertIn("the xpud daemon died", client.hear())
        self.assertEqual(client.finish()[0], 0)

    def test_without_a_next_daemon_there_is_no_device_and_the_reason_is_told(self):
        client = self.client("x = torch.ones(8, device='xpud'); x.cpu(); say(torch.xpud.is_available()); sys.stdin.readline()\n"
                             "say(torch.xpud.is_available(), torch.xpud.device_count())\n"
                             "try: torch.ones(3, device='xpud')\nexcept RuntimeError as error: say(error)\n"
                             "sys.stdin.readline(); say(torch.xpud.is_available(), torch.ones(3, device='xpud').sum().item())")
        self.assertEqual(client.hear(), "True")
        self.daemon.kill()
        client.tell()
        self.assertEqual(client.hear(), "False 0")
        self.assertRegex(client.hear(), "the xpud daemon died.*no xpud daemon answers at")
        self.daemon.start()
        client.tell()
        self.assertEqual(client.hear(), "True 3.0")
        self.assertIn("no xpud devices", client.finish()[2])

    def test_a_session_that_an_operator_closed_stays_closed(self):
        client = self.client("x = torch.ones(8, device='xpud'); x.cpu(); say('ready'); sys.stdin.readline()\n"
                             "for _ in range(3):\n    try: torch.ones(3, device='xpud').cpu()\n    except RuntimeError as error: say(error)\n"
                             "say(torch.xpud.is_available())")
        client.hear()
        self.daemon.ask("kill", str(self.daemon.sessions()[0]["id"]))
        client.tell()
        for _ in range(3):
            self.assertIn("session closed by an operator", client.hear())
        self.assertEqual(client.hear(), "False")
        self.assertEqual(self.daemon.sessions(), [])

    def test_an_error_that_a_program_did_not_read_is_printed_when_it_ends(self):
        bad = "x = torch.arange(4, device='xpud'); y = x[torch.tensor([9], device='xpud')]\n"
        unread = self.client(bad).finish()
        self.assertEqual(unread[0], 0)
        self.assertRegex(unread[2], r"\Axpud: the program ended with an error that it did not read: .*out of range[^\n]*\n\Z")
        for read in ("try: y.cpu()\nexcept IndexError: pass", "try: torch.xpud.synchronize()\nexcept IndexError: pass"):
            self.assertEqual(self.client(bad + read).finish()[::2], (0, ""))
        self.assertEqual(self.client("x = torch.arange(4, device='xpud') * 2").finish()[::2], (0, ""))

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
