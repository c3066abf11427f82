"""The work of class batch in an executor process of its own: it moves there and back, and its faults are its own."""

import json
import os
import signal
import unittest

from claims_test import Client, ClaimTest
from harness import wait_until


# Answers each line with a sum, which is right only if no work was lost and none ran twice.
PROGRAM = """
import sys, numpy, xpud
one = xpud.asarray(numpy.ones(1 << 10, numpy.float32))
total = one
print(flush=True)
for line in sys.stdin:
    for _ in range(50): total = total + one
    print(int(total.numpy().sum()) >> 10, flush=True)
"""


class BatchExecutor(ClaimTest):
    FLAGS = ("--executor", "process", "--batch-executor", "on")

    def device(self) -> dict:
        return self.daemon.status()["devices"][0]

    def client(self, key: str) -> Client:
        client = Client(self.door(key), program=PROGRAM)
        self.addCleanup(client.end)
        return client

    def batch_pid(self) -> int:
        wait_until(lambda: "batch_executor_pid" in self.device(), 20)
        return self.device()["batch_executor_pid"]

    def test_batch_moves_to_an_executor_of_its_own_and_the_others_stay(self):
        self.ask("create", "web")
        web = self.client("web")
        self.assertEqual(web.sum(), "51")
        self.assertNotIn("batch_executor_pid", self.device())
        self.ask("create", "night", "--class", "batch")
        night = self.client("night")
        self.assertNotEqual(self.batch_pid(), self.device()["executor_pid"])
        self.assertIn(f"(batch: {self.batch_pid()})", self.daemon.ask("status"))
        for round in range(20):
            self.assertEqual((web.sum(), night.sum()), (str(101 + 50 * round), str(51 + 50 * round)))

    def test_when_it_is_killed_others_are_not_held_up_and_batch_goes_on(self):
        self.ask("create", "web")
        self.ask("create", "night", "--class", "batch")
        web, night = self.client("web"), self.client("night")
        for lost in range(3):
            pid, others = self.batch_pid(), self.device()["executor_pid"]
            self.assertEqual(night.sum(), str(51 + 100 * lost))
            os.kill(pid, signal.SIGKILL)
            self.assertEqual((web.sum(), night.sum()), (str(51 + 50 * lost), str(101 + 100 * lost)))
            wait_until(lambda lost=lost: self.device()["executors_replaced"] == lost + 1, 10)
            self.assertEqual(self.device()["executor_pid"], others)
        events = json.loads(self.daemon.ask("events", "-o", "json"))["events"]
        self.assertEqual([event["kind"] for event in events if "executor" in event["kind"]], ["executor_lost", "executor_replaced"] * 3)

    def test_the_other_executor_can_be_killed_too(self):
        self.ask("create", "night", "--class", "batch")
        night = self.client("night")
        pid = self.batch_pid()
        self.assertEqual(night.sum(), "51")
        os.kill(self.device()["executor_pid"], signal.SIGKILL)
        self.assertEqual(night.sum(), "101")
        wait_until(lambda: self.device()["executors_replaced"] == 1, 10)
        self.assertEqual(self.device()["batch_executor_pid"], pid)
        self.assertEqual(self.client("night").sum(), "51")

    def test_a_claim_that_leaves_the_class_moves_back_and_the_executor_ends(self):
        self.ask("create", "night", "--class", "batch")
        night = self.client("night")
        pid = self.batch_pid()
        self.assertEqual(night.sum(), "51")
        self.ask("set", "night", "--class", "interactive")
        self.assertEqual(night.sum(), "101")
        wait_until(lambda: "batch_executor_pid" not in self.device(), 20)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 10)
        self.assertEqual(night.sum(), "151")
        self.ask("set", "night", "--class", "batch")
        self.assertNotEqual(self.batch_pid(), pid)
        self.assertEqual(night.sum(), "201")
        self.assertEqual(self.device()["executors_replaced"], 0)


# Answers "small" with a sum, and "large" with one of a product that takes long.
LARGE = """
import sys, numpy, xpud
a = xpud.asarray(numpy.ones((1024, 1024), numpy.float32))
small = xpud.asarray(numpy.ones((16, 16), numpy.float32))
print(flush=True)
for line in sys.stdin:
    b = a @ (a @ a) if line == "large\\n" else small @ small
    print(int(b[0, 0].numpy()), flush=True)
"""


class Auto(ClaimTest):
    FLAGS = ("--executor", "process", "--batch-executor", "auto")

    def test_it_is_opened_for_long_commands_only(self):
        self.ask("create", "night", "--class", "batch")
        night = Client(self.door("night"), program=LARGE)
        self.addCleanup(night.end)

        def ask(what: str) -> str:
            night.process.stdin.write(what + "\n")
            night.process.stdin.flush()
            return night.hear()

        self.assertEqual([ask("small") for _ in range(20)], ["16"] * 20)
        self.assertNotIn("batch_executor_pid", self.daemon.status()["devices"][0])
        self.assertEqual(ask("large"), str(1 << 20))
        wait_until(lambda: "batch_executor_pid" in self.daemon.status()["devices"][0], 20)
        self.assertEqual([ask("large"), ask("small")], [str(1 << 20), "16"])


class Off(ClaimTest):
    FLAGS = ("--executor", "process", "--batch-executor", "off")

    def test_it_can_be_forbidden(self):
        self.ask("create", "night", "--class", "batch")
        night = Client(self.door("night"), program=PROGRAM)
        self.addCleanup(night.end)
        self.assertEqual([night.sum() for _ in range(5)], ["51", "101", "151", "201", "251"])
        self.assertNotIn("batch_executor_pid", self.daemon.status()["devices"][0])


if __name__ == "__main__":
    unittest.main()
