"""Every operator of PyTorch's op database on xpud, compared with the CPU (see opnet.py; opnet_exceptions.py lists allowed differences).

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_ops.py

Every operator runs in one type with a few samples. A tenth, which changes daily, runs in all types with all samples (XPUD_TEST_TENTH=0..9 selects it);
with XPUD_TEST_FULL=1 all operators do.
"""

import io
import os
import subprocess
import sys
import unittest

import torch
import torch_xpud  # noqa: F401  also without the entry point

import opnet
from opnet_exceptions import CPU_CRASHES
from opnet_judge import is_covered, matches, stale, unexplained
from opnet_net import net_of
from opnet_ops import OPS, Item, is_served, names_of, values


class OperatorTest(net_of("ops")):
    def test_operators_with_kernels_do_not_fall_back(self):
        for name, op in OPS.items():
            work = next((w for w in self.results if w.name == name and w.dtype == "float32"), None)
            if work is None or not is_served(op) or op.variant_test_name:
                continue
            fell = self.results[work]["fell_back"].get("first", {})
            own = {n for n in fell if n.removeprefix("aten::").split(".")[0].rstrip("_") in names_of(op)}
            with self.subTest(op=name):
                self.assertEqual(own, set())


class ExceptionsTest(unittest.TestCase):
    def test_what_crashes_on_the_cpu_still_does(self):
        for (name, aspect), (reason, program) in CPU_CRASHES.items():
            environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
            done = subprocess.run([sys.executable, "-c", f"import torch; {program}"], capture_output=True, env=environment)
            self.assertLess(done.returncode, 0, f"{name}, {aspect}: no longer true: {reason}")


def planted(change):
    """Returns the kinds of findings for `abs` when its call on xpud is changed."""
    item = Item("abs", torch.float32, False)
    right = item.call
    item.call = lambda input: change(input, right) if input.device.type == "xpud" else right(input)
    return {kind for _, kind, _ in values(item)}


class NetTest(unittest.TestCase):
    """The checks detect planted faults."""

    def test_right_results_are_right(self):
        self.assertEqual(planted(lambda x, right: right(x)), set())

    def test_wrong_value_is_noticed(self):
        self.assertEqual(planted(lambda x, right: right(x) + 0.01), {"values"})

    def test_wrong_type_is_noticed(self):
        self.assertEqual(planted(lambda x, right: right(x).double()), {"dtype"})

    def test_other_strides_are_noticed(self):
        self.assertIn("strides", planted(lambda x, right: right(x).t().contiguous().t() if x.dim() == 2 else right(x)))

    def test_written_operand_is_noticed(self):
        self.assertEqual(planted(lambda x, right: (right(x), x.add_(1))[0]), {"operand values"})

    def test_shared_memory_is_noticed(self):
        self.assertIn("sharing", planted(lambda x, right: x.copy_(right(x))))

    def test_refusal_is_noticed(self):
        def refuse(x, right):
            raise NotImplementedError("planted")

        self.assertEqual(planted(refuse), {"refused"})

    def test_crash_and_hang_are_failures_of_their_items_and_the_rest_runs(self):
        crash, hang, rest = (opnet.Work("planted", name, "float32", False, ()) for name in ("crash", "hang", "rest"))
        results = opnet.run_all([crash, hang, rest], jobs=1, progress=io.StringIO(), timeout=5.0)
        self.assertEqual([f["kind"] for f in results[crash]["failures"]], ["crash"])
        self.assertEqual([f["kind"] for f in results[hang]["failures"]], ["hang"])
        self.assertEqual(results[rest]["failures"], [])

    def test_exceptions_explain_what_they_name_and_go_stale(self):
        work = opnet.Work("ops", "abs", "float32", True, ())
        failure = {"aspect": "out", "kind": "values", "variant": "", "message": ""}
        wrong, right = {work: {"failures": [failure]}}, {work: {"failures": []}}
        entry, other = ("abs", None, "out/values"), ("abs", None, "out/strides")
        types = lambda name: ["float32"]  # noqa: E731
        self.assertTrue(matches(entry, work, failure))
        self.assertEqual(unexplained(work, wrong[work], {entry: ""}), [])
        self.assertEqual(unexplained(work, wrong[work], {other: ""}), [failure])
        self.assertEqual(stale(wrong, types, {entry: "", other: ""}), [other])
        self.assertEqual(stale(right, types, {entry: ""}), [entry])
        self.assertFalse(is_covered(entry, [work], ["float32", "int64"]))


if __name__ == "__main__":
    unittest.main()
