"""Sensors of devices, from the driver to xpuctl and the metrics; on the CPU device of a real machine, whose memory and frequency are known."""

import json
import os
import pathlib
import re
import signal
import time
import unittest

from harness import DaemonTest, stop, wait_until
from metrics import scrape, series

RUNS_ALONE = True  # it measures the machine's free memory

MOST_APART = 0.1  # of the machine's memory: others use it meanwhile
FRESH = 0.6  # seconds after which sensors are read again


def available_bytes() -> int:
    return int(re.search(r"MemAvailable: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024


class Sensors(DaemonTest):
    FLAGS = ("--device", "cpu", "--metrics-listen", "0")

    def device(self) -> dict:
        return self.daemon.devices()[0]

    def test_what_can_be_measured_is_and_the_rest_says_why_not(self):
        device = self.device()
        why = {row["field"]: row["why"] for row in device["unmeasured"]}
        self.assertLess(abs(device["memory_free_bytes"] - available_bytes()), MOST_APART * available_bytes())
        self.assertIn("throttle_reasons", why, "nobody knows of a CPU")
        for field in ("temperature_celsius", "energy_microjoules", "power_watts", "frequency_mhz"):
            self.assertNotEqual(field in device, bool(why.get(field)), field)
        if "cpu MHz" in pathlib.Path("/proc/cpuinfo").read_text():
            self.assertGreater(device["frequency_mhz"], 100)
        wide = self.daemon.ask("-o", "wide")
        for field, reason in why.items():
            self.assertIn(f"{field}: -  ({reason})", wide)

    def test_query_and_metrics_say_the_same(self):
        device = self.device()
        row = self.daemon.ask("query", "--query-gpu=clocks.sm,temperature.gpu,power.draw", "--format=csv,noheader,nounits").strip().split(", ")
        for cell, field in zip(row, ("frequency_mhz", "temperature_celsius", "power_watts"), strict=True):
            self.assertEqual(cell == "[N/A]", field not in device, field)
        text = scrape(self.daemon)
        for name, field in (("hw_temperature_celsius", "temperature_celsius"), ("hw_power_watts", "power_watts"), ("hw_energy_joules_total", "energy_microjoules"),
                            ("xpud_device_frequency_megahertz", "frequency_mhz"), ("xpud_device_memory_free_bytes", "memory_free_bytes")):
            self.assertEqual(len(series(text, name)), int(field in device), name)
        free = series(text, "xpud_device_memory_free_bytes")[0][1]
        self.assertLess(abs(free - available_bytes()), MOST_APART * available_bytes())

    def test_are_read_at_most_twice_a_second(self):
        began, seen = time.monotonic(), set()
        while (passed := time.monotonic() - began) < 3 * FRESH:
            seen.add(self.device()["memory_free_bytes"])
        self.assertGreater(len(seen), 1, "and they are read again")
        self.assertLessEqual(len(seen), passed / 0.5 + 1)


class SensorsOfAnExecutor(Sensors):
    FLAGS = (*Sensors.FLAGS, "--executor", "process")

    def test_of_an_executor_that_does_not_answer_are_absent_and_hold_up_nobody(self):
        executor = self.device()["executor_pid"]
        stop(executor)
        time.sleep(FRESH)
        began = time.monotonic()
        stopped = self.device()
        self.assertLess(time.monotonic() - began, 2)
        self.assertNotIn("memory_free_bytes", stopped)
        self.assertEqual({row["why"] for row in stopped["unmeasured"]}, {"the device's executor process did not answer in time"})
        os.kill(executor, signal.SIGCONT)
        wait_until(lambda: "memory_free_bytes" in self.device(), 10)

    def test_are_those_of_the_next_executor_after_one_was_lost(self):
        os.kill(self.device()["executor_pid"], signal.SIGKILL)
        wait_until(lambda: self.device().get("executors_replaced") == 1 and "memory_free_bytes" in self.device(), 20)
        self.assertEqual(json.loads(self.daemon.ask("-o", "json"))["devices"][0]["executors_replaced"], 1)


if __name__ == "__main__":
    unittest.main()
