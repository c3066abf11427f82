"""What claims get of a device's time: caps, classes and guarantees, between real processes."""

import json
import os
import subprocess
import sys
import time
import unittest

from claims_test import BINARIES, ClaimTest

RUNS_ALONE = True  # it measures what parts of a device's time claims get

WORK = """
import sys, numpy, xpud
a = xpud.asarray(numpy.ones((512, 512), numpy.float32))
print("ready", flush=True)
while True:
    for _ in range(8): b = a @ a
    b[0, 0].numpy()
"""


class Time(ClaimTest):
    FLAGS = ()

    def work(self, key: str) -> None:
        env = os.environ | {"PYTHONPATH": str(BINARIES.parent / "lib"), "XPUD_ADDRESS": str(self.door(key))}
        process = subprocess.Popen([sys.executable, "-c", WORK], env=env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")

    def parts(self, seconds: float) -> dict[str, float]:
        """The part of the device's time that each claim uses during the next seconds."""
        def sample() -> tuple[int, dict[str, int]]:
            answer = json.loads(self.ask("-o", "json"))
            return answer["time_ns"], {claim["key"]: claim["busy_ns"] for claim in answer["claims"]}

        time.sleep(0.3)
        began, before = sample()
        time.sleep(seconds)
        ended, after = sample()
        return {key: (after[key] - before[key]) / (ended - began) for key in after}

    def test_a_most_binds_on_an_idle_device(self):
        self.ask("create", "capped", "--time", "..30%")
        self.work("capped")
        part = self.parts(2)["capped"]
        self.assertLess(part, 0.32)
        self.assertGreater(part, 0.15)  # a busy machine may give less
        self.ask("set", "capped", "--time", "..10%")
        self.assertLess(self.parts(2)["capped"], 0.12)

    def test_a_higher_class_goes_first_and_a_lower_one_does_not_starve(self):
        self.ask("create", "first", "--class", "realtime")
        self.ask("create", "last", "--class", "batch")
        for key in ("last", "last", "first", "first"):
            self.work(key)
        parts = self.parts(2)
        self.assertGreater(parts["first"], 4 * parts["last"], parts)
        self.assertGreater(parts["last"], 0, parts)

    def test_a_least_holds_beside_a_higher_class(self):
        self.ask("create", "first", "--class", "realtime")
        self.ask("create", "sure", "--class", "batch", "--time", "40%..")
        for key in ("sure", "sure", "first", "first"):
            self.work(key)
        parts = self.parts(2)
        self.assertGreater(parts["sure"] / (parts["sure"] + parts["first"]), 0.35, parts)

    def test_weights_divide_what_a_class_gets(self):
        self.ask("create", "three", "--weight", "300")
        self.ask("create", "one")
        for key in ("three", "three", "one", "one"):
            self.work(key)
        parts = self.parts(2)
        self.assertTrue(0.65 < parts["three"] / (parts["three"] + parts["one"]) < 0.85, parts)


if __name__ == "__main__":
    unittest.main()
