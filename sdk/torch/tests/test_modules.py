"""Every module of PyTorch's module database on xpud, compared with the CPU, in training and in evaluation (see opnet_modules.py).

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_modules.py

The choice of items is that of test_ops.py.
"""

import unittest

import torch
import torch_xpud  # noqa: F401  also without the entry point

from opnet_modules import Item, training
from opnet_net import net_of


class ModuleTest(net_of("modules")):
    pass


class NetTest(unittest.TestCase):
    """The checks detect planted faults."""

    def planted(self, name, change):
        """Returns the kinds of findings for a module whose copy on xpud is changed."""
        item = Item(name, torch.float32, False)
        made = item.module

        def module(sample, training):
            result = made(sample, training)
            result.register_forward_hook(lambda m, args, output: change(m, output) if output.device.type == "xpud" else None)
            return result

        item.module = module
        return {(kind, message.split(":")[0]) for _, kind, message in training(item)}

    def test_right_results_are_right(self):
        self.assertEqual(self.planted("nn.BatchNorm2d", lambda module, output: None), set())

    def test_statistics_that_are_not_updated_are_noticed(self):
        def forget(module, output):
            if module.running_mean is not None:
                module.running_mean = torch.zeros_like(module.running_mean)

        self.assertEqual(self.planted("nn.BatchNorm2d", forget), {("values", "state")})

    def test_wrong_gradient_is_noticed(self):
        found = self.planted("nn.Linear", lambda module, output: output + (output - output.detach()))
        self.assertEqual(found, {("values", "gradient of an input"), ("values", "gradient of a parameter")})


if __name__ == "__main__":
    unittest.main()
