"""Batch norm, instance norm and group norm beside the CPU: values, gradients, running statistics, layouts; nothing by fallback."""

import copy
import itertools
import unittest

import torch
from torch import nn

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SHAPES = {(5, 6): nn.BatchNorm1d, (4, 6, 10): nn.BatchNorm1d, (3, 6, 5, 7): nn.BatchNorm2d, (2, 6, 3, 4, 5): nn.BatchNorm3d}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def values_of(shape, dtype, last=False):
    value = torch.randn(shape).mul(3).add(5).to(dtype)
    return value.to(memory_format=LAST[value.dim()]) if last else value


def randomized(module, dtype):
    for parameter in module.parameters():
        nn.init.uniform_(parameter)
    if getattr(module, "running_mean", None) is not None:
        module.running_mean.uniform_()
        module.running_var.uniform_(0.5, 2)
    return module.to(dtype)


def run(module, value, device):
    """Returns the output, all gradients and the buffers."""
    module, value = copy.deepcopy(module).to(device), value.detach().to(device).requires_grad_()
    output = module(value)
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).to(output.dtype).view(output.shape)
    gradients = torch.autograd.grad(output, (value, *module.parameters()), weights.to(device))
    return [output, *gradients, *module.buffers()]


class NormalizationTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.before = torch.xpud.fallback_counts()

    def check(self, module, value, tolerance=None):
        """Compares with the CPU. In 16 bits its statistics are rounded, so there it computes in float32."""
        exact = (copy.deepcopy(module).float(), value.float()) if value.dtype.itemsize == 2 else (module, value)
        for mine, theirs in zip(run(module, value, "xpud"), run(*exact, "cpu"), strict=True):
            self.assertEqual(mine.shape, theirs.shape)
            scale = theirs.abs().max().item() + 1
            torch.testing.assert_close(mine.cpu().to(theirs.dtype) / scale, theirs / scale, rtol=0, atol=tolerance or TOLERANCE[value.dtype])
        for mine, theirs in zip(run(module, value, "xpud"), run(module, value, "cpu"), strict=True):
            self.assertEqual(mine.dtype, theirs.dtype)
        self.assertEqual(copy.deepcopy(module).to("xpud")(value.to("xpud")).stride(), module.to("cpu")(value).stride())

    def test_batch_norm(self):
        for (shape, kind), dtype, affine, tracks, trains in itertools.product(SHAPES.items(), TOLERANCE, *[(True, False)] * 3):
            for last in (False, True) if len(shape) in LAST else (False,):
                with self.subTest(shape=shape, dtype=dtype, affine=affine, tracks=tracks, trains=trains, last=last):
                    module = randomized(kind(shape[1], affine=affine, track_running_stats=tracks), dtype).train(trains)
                    self.check(module, values_of(shape, dtype, last))
        self.assertEqual(torch.xpud.fallback_counts(), self.before)

    def test_running_statistics_follow_momentum(self):
        for momentum in (0.3, None):
            module = nn.BatchNorm2d(6, momentum=momentum)
            there = copy.deepcopy(module).to("xpud")
            for _ in range(4):
                value = values_of((3, 6, 5, 7), torch.float32)
                module(value)
                there(value.to("xpud"))
            torch.testing.assert_close(there.running_mean.cpu(), module.running_mean, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(there.running_var.cpu(), module.running_var, atol=1e-5, rtol=1e-5)
            self.assertEqual(there.num_batches_tracked.item(), 4)

    def test_parameters_of_another_type(self):
        value = values_of((4, 6, 5, 7), torch.bfloat16)
        self.check(randomized(nn.BatchNorm2d(6), torch.float32), value)

    def test_one_value_for_a_channel(self):
        with self.assertRaisesRegex(ValueError, "Expected more than 1 value per channel"):
            nn.BatchNorm1d(6).to("xpud")(torch.randn(1, 6, device="xpud"))
        module = nn.BatchNorm1d(6).eval()
        torch.testing.assert_close(module.to("xpud")(torch.ones(1, 6, device="xpud")).cpu(), module.to("cpu")(torch.ones(1, 6)))

    def test_large_values_with_a_small_deviation(self):
        value = 1000 + torch.randn(64, 6, 9, 9)  # multiples of 6e-5
        self.check(randomized(nn.BatchNorm2d(6), torch.float32), value, tolerance=1e-3)

    def test_instance_and_group_norm(self):
        for dtype in TOLERANCE:
            for shape in ((4, 6, 10), (3, 6, 5, 7)):
                for groups in (1, 2, 6):
                    with self.subTest(dtype=dtype, shape=shape, groups=groups):
                        # In 16 bits backward reads rounded statistics.
                        tolerance = {torch.float16: 3e-2, torch.bfloat16: 0.25}.get(dtype)
                        self.check(randomized(nn.GroupNorm(groups, 6), dtype), values_of(shape, dtype), tolerance)
            self.check(randomized(nn.InstanceNorm2d(6, affine=True), dtype), values_of((3, 6, 5, 7), dtype))
        self.assertEqual(torch.xpud.fallback_counts(), self.before)

    def test_gradients(self):
        module = nn.BatchNorm2d(3).double().to("xpud")
        value = torch.randn(2, 3, 4, 4, dtype=torch.float64, device="xpud", requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda x: nn.functional.batch_norm(x, None, None, module.weight, module.bias, True), value))
        self.assertTrue(torch.autograd.gradcheck(lambda x: nn.functional.group_norm(x, 3), value))


if __name__ == "__main__":
    unittest.main()
