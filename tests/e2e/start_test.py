"""How the daemon and its executor processes start."""

import os
import signal
import unittest
from unittest import mock

from harness import BINARIES, DaemonTest, wait_until

SUM = "say(float((xpud.ones(4) + 1).numpy().sum()))"


class Start(DaemonTest):
    """Processes that change their environment beside other threads are aborted (lone_setenv.cc)."""

    FLAGS = ("--executor", "process", "--standby-executor")

    def setUp(self):
        with mock.patch.dict(os.environ, LD_PRELOAD=str(BINARIES.parent / "lib/liblone_setenv.so")):
            super().setUp()

    def test_the_environment_changes_only_while_a_process_has_one_thread(self):
        self.assertEqual(self.light_client(SUM).hear(), "8.0")
        device = self.daemon.status()["devices"][0]
        os.kill(device["executor_pid"], signal.SIGKILL)
        wait_until(lambda: self.daemon.status()["devices"][0]["executors_replaced"] == 1, 10)
        self.assertEqual(self.light_client(SUM).hear(), "8.0")
        self.assertNotIn("environment variable", self.daemon.log.read_text())


if __name__ == "__main__":
    unittest.main()
