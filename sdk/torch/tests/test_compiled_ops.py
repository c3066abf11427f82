"""Every operator and module of PyTorch's test databases through torch.compile, compared with the CPU (see opnet_compiled.py; opnet_exceptions.py lists
allowed differences).

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_compiled_ops.py

Every operator's first sample runs in float32, and for those that have none in their first type. A tenth, which changes daily, also runs with dynamic sizes
and with gradients, and in bfloat16 and int64; XPUD_TEST_FULL=1 does that for all, and runs the modules.
"""

import unittest
from unittest import mock

import torch
import torch_xpud  # noqa: F401  also without the entry point
from torch_xpud import _C

from opnet_compiled import run_item
from opnet_net import FULL, net_of

EXPECTED_KERNELS = 400  # operators with a kernel, as counted when Inductor's back end was a prototype: 403
EXPECTED_MODULES = 100  # of 114


@unittest.skipUnless(_C.loop_kernels_supported(), "this daemon has no loop kernels")
class CompiledOperatorTest(net_of("compiled")):
    def test_as_many_operators_as_before_make_kernels(self):
        makes = {work.name for work, found in self.results.items() if found.get("made", {}).get("compiled", {}).get("kernels")}
        self.assertGreaterEqual(len(makes), EXPECTED_KERNELS)

    def test_the_operators_were_compared(self):
        compared = {work.name for work, found in self.results.items() if found["compared"]}
        self.assertGreater(len(compared), 0.95 * len(self.known))


@unittest.skipUnless(FULL and _C.loop_kernels_supported(), "with --full")
class CompiledModuleTest(net_of("compiled_modules")):
    def test_most_modules_make_kernels(self):
        makes = {work.name for work, found in self.results.items() if any(made["kernels"] for made in found.get("made", {}).values())}
        self.assertGreaterEqual(len(makes), EXPECTED_MODULES)


class NetTest(unittest.TestCase):
    def test_a_wrong_kernel_is_noticed(self):
        from torch_xpud.inductor.ops_handler import LoopOps

        right = LoopOps.constant
        with mock.patch.object(LoopOps, "constant", lambda self, value, dtype: right(self, value + 1 if value == 0.5 else value, dtype)):
            found = run_item("nn.functional.gelu", torch.float32, True, (), lambda aspect: None)
            inexact = run_item("nn.functional.gelu", torch.bfloat16, True, ("compiled accuracy",), lambda aspect: None)
        self.assertEqual({failure["kind"] for failure in found["failures"]}, {"values"})
        self.assertEqual({failure["aspect"] for failure in found["failures"]}, {"compiled", "compiled dynamic", "compiled gradients"})
        self.assertEqual({failure["kind"] for failure in inexact["failures"]}, {"accuracy"})
        found = run_item("nn.functional.gelu", torch.float32, False, (), lambda aspect: None)
        self.assertEqual((found["failures"], found["made"]["compiled"]["kernels"]), ([], 1))


if __name__ == "__main__":
    unittest.main()
