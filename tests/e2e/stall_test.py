"""Sessions that make no progress are events, with their cause."""

import json
import os
import signal
import subprocess
import unittest

from harness import BINARIES, DaemonTest, stop, wait_until

RUNS_ALONE = True  # it measures that nothing is late

LOOP = "x = xpud.random.uniform((64, 64)); x.numpy(); say('ready')\nwhile True: (x @ x).sum().item()"


class StallTest(DaemonTest):
    FLAGS = ("--device", "cpu", "--executor", "process", "--stall-after", "1")

    def events(self, kind: str) -> list[dict]:
        answer = subprocess.run([BINARIES / "xpuctl", "--address", self.daemon.address, "events", "-o", "json"], capture_output=True, text=True, check=True)
        return [event for event in json.loads(answer.stdout)["events"] if event["kind"] == kind]

    def test_a_device_that_does_not_answer(self):
        client = self.light_client(LOOP)
        self.assertEqual(client.hear(), "ready")
        session, = self.daemon.sessions()
        self.assertEqual(self.events("stalled"), [])
        executor = self.daemon.status()["devices"][0]["executor_pid"]
        stop(executor)
        try:
            wait_until(lambda: self.events("stalled"), 10)
            self.assertEqual(self.daemon.sessions()[0].get("waiting_for"), None, "it has no commands but those on the device")
        finally:
            os.kill(executor, signal.SIGCONT)
        stalled, = self.events("stalled")
        self.assertEqual((stalled["session"], stalled["device"], stalled["pid"]), (session["id"], 0, client.process.pid))
        self.assertIn("the device works on its commands", stalled["text"])
        self.assertEqual(self.daemon.status()["devices"][0]["stalls"], [{"cause": "device works", "count": 1}])
        self.assertIn(f"session_stalled id={session['id']} ", self.daemon.log.read_text())
        wait_until(lambda: self.events("resumed"), 10)
        self.assertEqual(self.events("resumed")[0]["session"], session["id"])

    def test_idle_and_busy_sessions_do_not_stall(self):
        idle = self.light_client("x = xpud.random.uniform((64, 64)); x.numpy(); say('ready'); sys.stdin.readline()")
        busy = self.light_client(LOOP)
        for client in (idle, busy):
            client.hear()
        wait_until(lambda: max(session["age_ns"] for session in self.daemon.sessions()) > 3e9, 10)
        self.assertEqual(self.events("stalled"), [])


if __name__ == "__main__":
    unittest.main()
