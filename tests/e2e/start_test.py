"""How the daemon and its executor processes start."""

import os
import signal
import subprocess
import sys
import unittest
from unittest import mock

from harness import BINARIES, DaemonTest, wait_until

LIBRARY = BINARIES.parent / "lib/liblone_setenv.so"
SUM = "say(float((xpud.ones(4) + 1).numpy().sum()))"


class Start(DaemonTest):
    """Processes that change their environment beside other threads are aborted (lone_setenv.cc)."""

    FLAGS = ("--executor", "process", "--standby-executor")

    def setUp(self):
        with mock.patch.dict(os.environ, LD_PRELOAD=str(LIBRARY)):
            super().setUp()

    def test_the_environment_changes_only_while_a_process_has_one_thread(self):
        self.assertEqual(self.light_client(SUM).hear(), "8.0")
        device = self.daemon.status()["devices"][0]
        os.kill(device["executor_pid"], signal.SIGKILL)
        wait_until(lambda: self.daemon.status()["devices"][0]["executors_replaced"] == 1, 10)
        self.assertEqual(self.light_client(SUM).hear(), "8.0")
        self.assertNotIn("environment variable", self.daemon.log.read_text())

    def test_a_process_that_changes_it_beside_a_thread_is_aborted(self):
        beside = "import os, threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); os.environ['XPUD_NICE'] = '1'"
        done = subprocess.run([sys.executable, "-c", beside], env=os.environ | {"LD_PRELOAD": str(LIBRARY)}, capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, -signal.SIGABRT, done.stderr)
        self.assertIn("environment variable XPUD_NICE changed while there are 2 threads", done.stderr)


if __name__ == "__main__":
    unittest.main()
