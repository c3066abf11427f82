"""The comparison of programs itself: it finds wrong values and undeclared fallbacks; the report ranks."""

import json
import unittest

import report
import torch
from program import ProgramTest, difference


class Checked(ProgramTest):
    def runTest(self):
        """Nothing: this case only provides `check`."""

    def _record(self, counts):
        """Does not report the planted faults."""


class ProgramsTest(unittest.TestCase):
    def test_a_wrong_value_is_found(self):
        with self.assertRaisesRegex(AssertionError, "result.1.*differs by up to 1"):
            Checked().check(lambda device: [torch.zeros(2), torch.full((2,), float(device == "xpud"))])

    def test_a_fallback_that_is_not_allowed_is_found(self):
        with self.assertRaisesRegex(AssertionError, "aten::linalg_qr"):
            Checked().check(lambda device: torch.linalg.qr(torch.eye(3, device=device)).R.abs())

    def test_an_allowed_fallback_that_is_gone_is_found(self):
        with self.assertRaisesRegex(AssertionError, "aten::add"):
            Checked().check(lambda device: torch.ones(3, device=device) + 1, fallbacks=["aten::add"])

    def test_differences_of_nested_results(self):
        for expected, actual in (((1, 2), (1, 3)), ({"a": 1}, {"b": 1}), ([1], [1, 2]), (torch.zeros(2), torch.zeros(3)), (0.5, float("nan")), ("a", "b"),
                                 (torch.arange(3), torch.zeros(3, dtype=torch.long)), (torch.zeros(2), torch.zeros(2).half())):
            self.assertTrue(list(difference(expected, actual, 1e-3)), (expected, actual))
        self.assertFalse(list(difference({"a": [1.0, torch.ones(2)]}, {"a": [1.0001, torch.ones(2)]}, 1e-3)))

    def test_the_report_ranks_by_programs_then_by_calls(self):
        lines = [json.dumps({"program": name, "fallbacks": used}) for name, used in (("p", {"a": 1, "b": 9}), ("q", {"a": 1, "c": 1}), ("r", {}))]
        rows, total = report.ranked(lines)
        self.assertEqual([(row["operator"], len(row["programs"]), row["calls"]) for row in rows], [("a", 2, 2), ("b", 1, 9), ("c", 1, 1)])
        self.assertTrue(report.table(rows, total).startswith("1 of 3 programs ran without a fallback"))


if __name__ == "__main__":
    unittest.main()
