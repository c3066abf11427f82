"""Batch norm, instance norm, group norm and RMS norm beside the CPU: values, gradients, running statistics, layouts; nothing by fallback."""

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
        """Compares with the CPU in a wider type: in 16 bits its statistics are rounded, and in 32 its gradients of weights cancel."""
        wider = torch.float32 if value.dtype.itemsize == 2 else torch.float64
        exact = (copy.deepcopy(module).to(wider), value.to(wider))
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
            for affine in (False, True):
                self.check(randomized(nn.InstanceNorm2d(6, affine=affine), dtype), values_of((3, 6, 5, 7), dtype))
        self.assertEqual(torch.xpud.fallback_counts(), self.before)

    def test_group_norm_of_every_layout(self):
        for groups, affine in itertools.product((1, 2, 6), (False, True)):
            module = randomized(nn.GroupNorm(groups, 6, affine=affine), torch.float32)
            for shape in ((5, 6), (4, 6, 10), (1, 6, 5, 7), (3, 6, 5, 7), (2, 6, 3, 4, 5), (2, 6, 64, 70)):
                for last in (False, True) if len(shape) in LAST else (False,):
                    with self.subTest(groups=groups, affine=affine, shape=shape, last=last):
                        # Thousands of products of both signs are added for a weight.
                        self.check(module, values_of(shape, torch.float32, last), tolerance=1e-3 if shape[-1] == 70 else 5e-5)
            self.check(module, values_of((3, 6, 7, 5), torch.float32).transpose(2, 3))
            self.check(module, values_of((1, 6, 7, 5), torch.float32).expand(3, 6, 7, 5))
        self.assertEqual(torch.xpud.fallback_counts(), self.before)

    def test_gradients_of_some_arguments(self):
        """Only what is asked for is computed, in training and in evaluation."""
        value, weight = values_of((3, 6, 5, 7), torch.float32), torch.rand(6)
        functions = {
            "batch": lambda x, w: nn.functional.batch_norm(x, None, None, w, None, True), "group": lambda x, w: nn.functional.group_norm(x, 2, w),
            "evaluation": lambda x, w: nn.functional.batch_norm(x, torch.full_like(w, 4), torch.full_like(w, 9), w, None), "rms": lambda x, w: nn.functional.rms_norm(x[..., :6], (6,), w),
        }  # fmt: skip
        for (name, function), which in itertools.product(functions.items(), ((True, False), (False, True))):
            with self.subTest(name, which=which):
                gradients = []
                for device in ("cpu", "xpud"):
                    leaves = [x.detach().to(device).requires_grad_(wanted) for x, wanted in zip((value, weight), which, strict=True)]
                    function(*leaves).square().sum().backward()
                    gradients.append([leaf.grad.cpu() for leaf in leaves if leaf.grad is not None])
                torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-3)

    def test_rms_norm(self):
        for dtype, affine, (shape, last) in itertools.product(TOLERANCE, (True, False), (((5, 8), 1), ((3, 4, 33), 1), ((3, 4, 5, 6), 2), ((7,), 1), ((300, 1000), 1))):
            with self.subTest(dtype=dtype, affine=affine, shape=shape):
                self.check(randomized(nn.RMSNorm(shape[len(shape) - last :], elementwise_affine=affine), dtype), values_of(shape, dtype))
        self.check(randomized(nn.RMSNorm(6, eps=0.5), torch.float32), values_of((4, 5, 6), torch.float32).transpose(0, 1))
        self.check(nn.RMSNorm(6, eps=1e-6), torch.zeros(4, 6))
        value = torch.randn(4, 6) * 1e-4  # an epsilon that is not given matters
        torch.testing.assert_close(nn.functional.rms_norm(value.to("xpud"), (6,)).cpu(), nn.functional.rms_norm(value, (6,)))
        self.assertEqual(torch.xpud.fallback_counts(), self.before)

    def test_rms_norm_of_numbers_that_are_not_real(self):
        value, weight = torch.randn(3, 5, dtype=torch.complex64), torch.randn(5, dtype=torch.complex64)
        results = []
        for device in ("cpu", "xpud"):
            leaves = [x.detach().to(device).requires_grad_() for x in (value, weight)]
            output = nn.functional.rms_norm(leaves[0], (5,), leaves[1])
            results.append([x.cpu() for x in (output, *torch.autograd.grad(output, leaves, torch.ones_like(output)))])
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)

    def test_norms_of_nothing(self):
        for device in ("cpu", "xpud"):
            value = torch.zeros(0, 6, device=device, requires_grad=True)
            module = nn.RMSNorm(6).to(device)
            module(value).sum().backward()
            self.assertEqual(value.grad.shape, (0, 6))
            self.assertEqual(module.weight.grad.tolist(), [0.0] * 6)

    def test_gradients(self):
        module = nn.BatchNorm2d(3).double().to("xpud")
        value = torch.randn(2, 3, 4, 4, dtype=torch.float64, device="xpud", requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda x: nn.functional.batch_norm(x, None, None, module.weight, module.bias, True), value))
        self.assertTrue(torch.autograd.gradcheck(lambda x: nn.functional.group_norm(x, 3), value))
        weight = torch.rand(4, dtype=torch.float64, device="xpud", requires_grad=True)
        rms = lambda x, w: nn.functional.rms_norm(x, (4,), w, 1e-3)  # noqa: E731
        self.assertTrue(torch.autograd.gradcheck(rms, (value, weight)))
        self.assertTrue(torch.autograd.gradgradcheck(rms, (value, weight)))


if __name__ == "__main__":
    unittest.main()
