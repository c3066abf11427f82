"""Convolutions of one to three dimensions, also transposed, and their gradients: values beside the CPU, layouts beside fake tensors, nothing by fallback."""

import itertools
import unittest

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

torch.backends.cudnn.allow_tf32 = False  # the CPU has no TF32
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
GPU = "CPU" not in torch.xpud.get_device_name()
GEOMETRIES = [dict(), dict(stride=2, padding=1), dict(padding=2, dilation=2), dict(stride=3, padding=1, dilation=2)]


def arguments_of(dims, groups, transposed, dtype, last=False):
    """Returns input, weight and bias. `last`: channels-last, where there is such a format."""
    channels_in, channels_out = 2 * groups, 3 * groups
    value = torch.randn(2, channels_in, *(9, 8, 7)[:dims], dtype=dtype)
    shape = (channels_in, channels_out // groups) if transposed else (channels_out, channels_in // groups)
    weight = torch.randn(*shape, *(3, 2, 3)[:dims], dtype=dtype)
    if last and dims > 1:
        value = value.to(memory_format=LAST[dims + 2])
    return value, weight, torch.randn(channels_out, dtype=dtype)


def function_of(dims, transposed):
    return getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")


def run(function, arguments, device, **geometry):
    """Returns the output and the gradients of all arguments."""
    arguments = [argument.detach().to(device).requires_grad_() for argument in arguments]
    output = function(*arguments, **geometry)
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).to(output.dtype).view(output.shape)
    return [output, *torch.autograd.grad(output, arguments, weights.to(device))]


class ConvolutionTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.before = torch.xpud.fallback_counts()

    def assert_native(self):
        self.assertEqual(torch.xpud.fallback_counts(), self.before)

    def assert_same(self, actual, expected):
        for mine, theirs in zip(actual, expected, strict=True):
            self.assertEqual((mine.dtype, mine.shape), (theirs.dtype, theirs.shape))
            scale = theirs.abs().max().item() + 1
            torch.testing.assert_close(mine.cpu() / scale, theirs / scale, rtol=0, atol=TOLERANCE[theirs.dtype])

    def test_patches_of_images(self):
        # some sizes leave elements that are in no window; of 256 columns on, the CPU multiplies matrices, too
        for dims, (channels, kernel), dtype, last in itertools.product((1, 2, 3), ((3, (4, 2, 3)), (3, (16, 12, 8)), (1, (300, 16, 7))), TOLERANCE, (False, True)):
            kernel = kernel[:1] * dims if dims == 2 else kernel[:dims]
            kernel = tuple(min(side, 16) for side in kernel) if dims > 1 else kernel
            value = torch.randn(2, channels, *(2 * side + 1 for side in kernel), dtype=dtype)
            arguments = [value.to(memory_format=LAST[dims + 2]) if last and dims > 1 else value, torch.randn(5, channels, *kernel, dtype=dtype), torch.randn(5, dtype=dtype)]
            with self.subTest(dims=dims, kernel=kernel, channels=channels, dtype=dtype, last=last):
                function = function_of(dims, False)
                # in float32 at least: on processors with AMX, oneDNN's gradients of bfloat16 are not 0 outside of windows (PyTorch 2.11)
                wide = [argument.to(torch.promote_types(dtype, torch.float32)) for argument in arguments]
                expected = [result.to(dtype) for result in run(function, wide, "cpu", stride=kernel)]
                self.assert_same(run(function, arguments, "xpud", stride=kernel), expected)
        self.assert_native()

    def test_values_and_gradients(self):
        for dims, transposed, groups, dtype, last in itertools.product((1, 2, 3), (False, True), (1, 3), TOLERANCE, (False, True)):
            for geometry in GEOMETRIES if dims == 2 else GEOMETRIES[1:3]:
                with self.subTest(dims=dims, transposed=transposed, groups=groups, dtype=dtype, last=last, **geometry):
                    arguments = arguments_of(dims, groups, transposed, dtype, last)
                    function = function_of(dims, transposed)
                    self.assert_same(run(function, arguments, "xpud", groups=groups, **geometry), run(function, arguments, "cpu", groups=groups, **geometry))
        self.assert_native()

    def test_errors_of_long_sums_are_the_cpus(self):
        """2304 products: added one after the other in f32 they have four times the error."""
        value, weight = torch.randn(1, 256, 14, 14), torch.randn(256, 256, 3, 3) / 48

        def errors(results):
            return [((mine.cpu().double() - exact).norm() / exact.norm()).item() for mine, exact in zip(results, expected, strict=True)]

        expected = run(F.conv2d, (value.double(), weight.double()), "cpu", padding=1)
        theirs = errors(run(F.conv2d, (value, weight), "cpu", padding=1))
        for mine, allowed in zip(errors(run(F.conv2d, (value, weight), "xpud", padding=1)), theirs, strict=True):
            self.assertLess(mine, (4 if GPU else 1.5) * allowed)

    def test_depthwise(self):
        value, weight = torch.randn(2, 32, 11, 13), torch.randn(64, 1, 3, 3)
        for stride in (1, 2):
            self.assert_same(run(F.conv2d, (value, weight), "xpud", groups=32, stride=stride, padding=1),
                             run(F.conv2d, (value, weight), "cpu", groups=32, stride=stride, padding=1))  # fmt: skip
        self.assert_native()

    def test_sizes_that_are_cut(self):
        """Large enough to be cut into rows, images, channels and sums."""
        shapes = [(8, 64, 64, 28, 3, 1), (3, 256, 136, 9, 3, 2), (2, 64, 256, 28, 1, 1), (1, 96, 64, 56, 1, 1), (4, 128, 520, 7, 1, 1), (5, 3, 32, 40, 7, 2)]
        for (batch, channels, outputs, side, kernel, stride), last, last_weight in itertools.product(shapes, (False, True), (False, True)):
            with self.subTest(channels=channels, outputs=outputs, last=last, last_weight=last_weight):
                value = torch.randn(batch, channels, side, side)
                weight = torch.randn(outputs, channels, kernel, kernel) / channels**0.5
                value, weight = (t.to(memory_format=LAST[4]) if use else t for t, use in ((value, last), (weight, last_weight)))
                geometry = dict(stride=stride, padding=kernel // 2)
                arguments = (value, weight, torch.randn(outputs))
                self.assert_same(run(F.conv2d, arguments, "xpud", **geometry), run(F.conv2d, arguments, "cpu", **geometry))
        self.assert_native()

    def test_a_weight_is_used_again_and_changes(self):
        value, weight = torch.randn(2, 128, 6, 6), torch.randn(144, 128, 3, 3)  # kept in two slices
        mine = weight.to("xpud")
        for _ in range(3):
            for _ in range(3):
                self.assert_same([F.conv2d(value.to("xpud"), mine)], [F.conv2d(value, weight)])
            mine *= -2
            weight *= -2

    def test_output_padding(self):
        arguments = arguments_of(2, 1, True, torch.float32)
        self.assert_same(run(F.conv_transpose2d, arguments, "xpud", stride=3, output_padding=2), run(F.conv_transpose2d, arguments, "cpu", stride=3, output_padding=2))
        self.assert_native()
        # Positions that no kernel reaches: the CPU's.
        geometry = dict(stride=1, dilation=3, output_padding=2)
        self.assert_same(run(F.conv_transpose2d, arguments, "xpud", **geometry), run(F.conv_transpose2d, arguments, "cpu", **geometry))

    def test_strided_arguments(self):
        value, weight, bias = arguments_of(2, 1, False, torch.float32)
        strange = (value.transpose(2, 3)[:, :, 1:].expand(2, 2, 7, 9), weight.flip(0)[:, :, :, :1].expand(3, 2, 3, 2), bias[::2].repeat_interleave(2)[:3])
        self.assert_same(run(F.conv2d, strange, "xpud"), run(F.conv2d, strange, "cpu"))
        on_device = F.conv2d(value.to("xpud").transpose(2, 3), weight.to("xpud").transpose(2, 3), padding=1)
        torch.testing.assert_close(on_device.cpu(), F.conv2d(value.transpose(2, 3), weight.transpose(2, 3), padding=1), atol=1e-5, rtol=1e-5)
        gradient = torch.randn(3, 1, 1).expand(2, 3, 7, 7)
        for device in ("cpu", "xpud"):
            leaf = value.detach().to(device).requires_grad_()
            F.conv2d(leaf, weight.to(device)).backward(gradient.to(device).contiguous() if device == "cpu" else gradient.to(device)[:, :, :, :].expand(2, 3, 7, 7))
            expected = leaf.grad if device == "cpu" else expected
        torch.testing.assert_close(leaf.grad.cpu(), expected, atol=1e-5, rtol=1e-5)

    def test_no_images(self):
        for device in ("cpu", "xpud"):
            weight = torch.randn(4, 3, 3, 3, device=device, requires_grad=True)
            output = F.conv2d(torch.randn(0, 3, 8, 8, device=device), weight, torch.randn(4, device=device))
            output.sum().backward()
            self.assertEqual(output.shape, (0, 4, 6, 6))
            self.assertEqual(weight.grad.count_nonzero().item(), 0)

    def test_errors_are_pytorchs(self):
        for value, weight, words in (((1, 3, 8, 8), (4, 2, 3, 3), "to have 2 channels"), ((1, 3, 2, 2), (4, 3, 3, 3), "Kernel size can't be greater")):
            with self.subTest(words), self.assertRaisesRegex(RuntimeError, words):
                F.conv2d(torch.randn(value, device="xpud"), torch.randn(weight, device="xpud"))

    def test_double_backward(self):
        value, weight, bias = (argument.to("xpud").requires_grad_() for argument in arguments_of(2, 1, False, torch.float64))
        self.assertTrue(torch.autograd.gradcheck(lambda *a: F.conv2d(*a, stride=2, padding=1), (value, weight, bias)))
        self.assertTrue(torch.autograd.gradgradcheck(lambda *a: F.conv2d(*a, stride=2, padding=1), (value, weight, bias)))

    def test_autocast(self):
        value, weight, bias = arguments_of(2, 1, False, torch.float32)
        with torch.autocast("xpud", torch.bfloat16):
            output = F.conv2d(value.to("xpud"), weight.to("xpud"), bias.to("xpud"))
        self.assertEqual(output.dtype, torch.bfloat16)
        torch.testing.assert_close(output.float().cpu(), F.conv2d(value, weight, bias), atol=5e-2, rtol=5e-2)


class LayoutTest(unittest.TestCase):
    """Strides of results are those of fake tensors."""

    def compare(self, arguments, function, **geometry):
        real = run(function, arguments, "xpud", **geometry)
        on_device = [argument.to("xpud") for argument in arguments]
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(argument).requires_grad_() for argument in on_device]
            output = function(*fakes, **geometry)
            gradients = torch.autograd.grad(output, fakes, torch.empty(output.shape, device="xpud", dtype=output.dtype))
        for mine, fake in zip(real, (output, *gradients), strict=True):
            self.assertEqual((mine.shape, mine.stride(), mine.dtype), (fake.shape, fake.stride(), fake.dtype))

    def test_eager_is_fake(self):
        for dims, transposed, groups in itertools.product((1, 2, 3), (False, True), (1, 3)):
            for value_last, weight_last in itertools.product((False, True), repeat=2):
                with self.subTest(dims=dims, transposed=transposed, groups=groups, value_last=value_last, weight_last=weight_last):
                    value, weight, bias = arguments_of(dims, groups, transposed, torch.float32, value_last)
                    if weight_last and dims > 1:
                        weight = weight.to(memory_format=LAST[dims + 2])
                    self.compare((value, weight, bias), function_of(dims, transposed), groups=groups, stride=2, padding=1)

    def test_one_by_one(self):
        for last in (False, True):
            value, weight = torch.randn(2, 4, 5, 5), torch.randn(6, 4, 1, 1)
            self.compare((value.to(memory_format=torch.channels_last) if last else value, weight), F.conv2d)

    def test_other_devices_are_unchanged(self):
        with FakeTensorMode():
            output = F.conv2d(torch.empty(2, 3, 8, 8).to(memory_format=torch.channels_last), torch.empty(4, 3, 3, 3))
        self.assertTrue(output.is_contiguous(memory_format=torch.channels_last))


if __name__ == "__main__":
    unittest.main()
