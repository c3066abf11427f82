"""Values that the host knows are read without the daemon: it is stopped meanwhile."""

import os
import signal
import threading
import unittest

from harness import DaemonTest

QUESTIONS = {
    "mask.bool().all()": False,
    "mask[1, 2]": 1,
    "mask.sum(-1).max()": 3,
    "mask.sum() == mask.numel()": False,
    "(mask[:, :3] == 1).all()": True,
    "(~mask.bool()).any()": True,
    "(mask * 2 + 1).amax()": 3,
    "mask.t().contiguous()[3].sum()": 0,
    "mask.to(torch.int8).argmin()": 3,
}
PROGRAM = f"""
mask = (torch.arange(12).reshape(3, 4) % 4 < 3).long().to('xpud')
other = torch.ones(4, device='xpud')
other.cpu(); say('ready'); sys.stdin.readline()
for mode in (False, True):
    with torch.inference_mode(mode):
        say([int(answer) for answer in ({", ".join(QUESTIONS)})], len(mask.nonzero()), torch.equal(mask, mask.clone()))
say(other.sum().item())
"""


class KnownValues(DaemonTest):
    def test_are_read_while_the_daemon_is_stopped(self):
        client = self.client(PROGRAM)
        client.hear()
        os.kill(self.daemon.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.daemon.pid, signal.SIGCONT)
        patience = threading.Timer(60, client.kill)
        patience.start()
        self.addCleanup(patience.cancel)
        client.tell()
        for _ in range(2):
            self.assertEqual(client.hear(), f"{[int(answer) for answer in QUESTIONS.values()]} 9 True")
        os.kill(self.daemon.pid, signal.SIGCONT)
        self.assertEqual(client.hear(), "4.0")  # which the device had to be asked for


if __name__ == "__main__":
    unittest.main()
