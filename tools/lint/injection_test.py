"""The driver that makes Level Zero's calls fail (tests/inject) knows every call that the daemon makes."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CALL = re.compile(r"\bze[A-Z]\w+(?=\()|\"((?:zex?|xpud)[A-Z]\w+)\"")
# Queries of the loader that reach no device, and what cannot fail.
REPORTS = {"xpudDriverGetBackEnd", "xpudGetLoadReport", "xpudSetTraceTag"}


class Injection(unittest.TestCase):
    def test_every_call_of_the_executor_can_fail(self):
        calls = set()
        for source in (ROOT / "daemon/executor").rglob("*.[ch]*"):
            calls |= {match.group(1) or match.group(0) for match in CALL.finditer(source.read_text())}
        self.assertIn("zeMemAllocDevice", calls)
        self.assertIn("xpudModuleCreate", calls)
        driver = (ROOT / "tests/inject/injecting_driver.cc").read_text()
        self.assertEqual(sorted(call for call in calls - REPORTS if call not in driver), [])


if __name__ == "__main__":
    unittest.main()
