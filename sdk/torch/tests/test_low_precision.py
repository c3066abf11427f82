"""Products of integers, int8 and int4 weights and float8; float8 casts; weight normalisation.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_low_precision.py
"""

import copy
import functools
import unittest
import warnings

import torch
import torch_xpud  # noqa: F401  also without the entry point
from torch import nn

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


class NativeTest(unittest.TestCase):
    """A test whose operators all run on the device."""

    def setUp(self):
        torch.manual_seed(0)
        self.before = torch.xpud.fallback_counts()

    def tearDown(self):
        self.assertEqual(torch.xpud.fallback_counts(), self.before)

    def assert_exact(self, call, *arguments):
        expected, actual = call(*arguments), call(*(each.to("xpud") for each in arguments))
        self.assertEqual(actual.device.type, "xpud")
        self.assertEqual((actual.dtype, actual.shape, actual.stride()), (expected.dtype, expected.shape, expected.stride()))
        self.assertTrue(torch.equal(actual.cpu(), expected))

    def assert_same_error(self, error, call, *arguments):
        with self.assertRaises(error) as expected:
            call(*arguments)
        with self.assertRaises(error) as actual:
            call(*(each.to("xpud") for each in arguments))
        self.assertEqual(str(actual.exception).splitlines()[0], str(expected.exception).splitlines()[0])


def integers(dtype, *sizes):
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max, sizes, dtype=dtype)


class IntegerTest(NativeTest):
    def test_int_mm(self):
        for dtype in (torch.int8, torch.uint8):
            for m, k, n in ((3, 5, 4), (17, 1300, 9), (1, 512, 2), (2, 0, 3), (0, 4, 3)):
                with self.subTest(dtype=dtype, sizes=(m, k, n)):
                    self.assert_exact(torch._int_mm, integers(dtype, m, k), integers(torch.int8, n, k).t())

    def test_largest_sums_are_exact(self):
        for first, dtype in ((-128, torch.int8), (255, torch.uint8)):
            self.assert_exact(torch._int_mm, torch.full((2, 2049), first, dtype=dtype), torch.full((2049, 3), -128, dtype=torch.int8))

    def test_int_mm_into_a_result(self):
        out = torch.empty(3, 4, dtype=torch.int32, device="xpud")
        a, b = integers(torch.int8, 3, 8), integers(torch.int8, 8, 4)
        torch._int_mm(a.to("xpud"), b.to("xpud"), out=out)
        self.assertTrue(torch.equal(out.cpu(), torch._int_mm(a, b)))

    def test_int_mm_refuses_what_the_cpu_refuses(self):
        a = integers(torch.int8, 3, 5)
        for arguments in ((a, a), (a[0], a), (a.float(), a.t()), (a, a.t().to(torch.uint8))):
            self.assert_same_error(RuntimeError, torch._int_mm, *arguments)

    def test_matrices_of_integers_wrap_around(self):
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
            with self.subTest(dtype=dtype):
                self.assert_exact(torch.mm, integers(dtype, 7, 700), integers(dtype, 700, 5))
        largest = torch.full((2, 600), torch.iinfo(torch.int32).min, dtype=torch.int32)
        self.assert_exact(torch.mm, largest + 1, largest.t() + 3)


class WeightOnlyTest(NativeTest):
    def test_int8(self):
        weight = integers(torch.int8, 48, 64)
        for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)):
            x, scales = torch.randn(5, 64).to(dtype), (torch.rand(48) / 64).to(dtype)
            expected = (x.double() @ weight.double().t() * scales.double()).to(dtype)
            actual = torch._weight_int8pack_mm(x.to("xpud"), weight.to("xpud"), scales.to("xpud"))
            torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(actual.cpu(), torch._weight_int8pack_mm(x, weight, scales), rtol=tolerance, atol=tolerance)

    def test_int8_refuses_what_the_cpu_refuses(self):
        x, weight, scales = torch.randn(4, 32), integers(torch.int8, 16, 32), torch.rand(16)
        for arguments in ((x.double(), weight, scales), (x.t(), weight, scales), (x, weight.int(), scales),
                          (x, weight[:, :16].contiguous(), scales), (x, weight, scales[:8])):
            self.assert_same_error(RuntimeError, torch._weight_int8pack_mm, *arguments)

    def test_int4(self):
        n, k = 16, 256
        codes = torch.randint(0, 16, (n, k), dtype=torch.int32)
        packed_bytes = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
        x = torch.randn(3, k, dtype=torch.bfloat16)
        for group, tiles in ((32, 8), (64, 4), (256, 2)):
            with self.subTest(group=group, tiles=tiles):
                scales_and_zeros = torch.rand(k // group, n, 2).bfloat16()
                packed = torch._convert_weight_to_int4pack(packed_bytes.to("xpud"), tiles)
                self.assertEqual((packed.dtype, packed.shape), (torch.int32, (n // 8, k // (tiles * 16), 32, tiles // 2)))
                actual = torch._weight_int4pack_mm(x.to("xpud"), packed, group, scales_and_zeros.to("xpud"))
                there = torch._convert_weight_to_int4pack_for_cpu(codes, tiles)
                torch.testing.assert_close(actual.cpu(), torch._weight_int4pack_mm_for_cpu(x, there, group, scales_and_zeros), rtol=2e-2, atol=0.3)
                scale, zero = (part.repeat_interleave(group, 0).t().double() for part in scales_and_zeros.unbind(2))
                expected = x.double() @ ((codes - 8) * scale + zero).t()
                torch.testing.assert_close(actual.cpu().double(), expected, rtol=2e-2, atol=0.3)

    def test_int4_names_what_does_not_fit(self):
        weight = torch.zeros(16, 128, dtype=torch.uint8, device="xpud")
        with self.assertRaisesRegex(RuntimeError, "innerKTiles may be 2, 4 or 8, and is 3"):
            torch._convert_weight_to_int4pack(weight, 3)
        packed = torch._convert_weight_to_int4pack(weight, 2)
        x = torch.zeros(2, 256, dtype=torch.bfloat16, device="xpud")
        with self.assertRaisesRegex(RuntimeError, r"size \[8, 16, 2\]"):
            torch._weight_int4pack_mm(x, packed, 32, x)


class Float8Test(NativeTest):
    def test_every_code_has_its_value(self):
        codes = torch.arange(256, dtype=torch.uint8)
        for kind in FLOAT8:
            for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
                expected = codes.view(kind).to(dtype)
                actual = codes.to("xpud").view(kind).to(dtype).cpu()
                torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
                self.assertTrue(torch.equal(actual.signbit(), expected.signbit()))

    def test_numbers_are_rounded_as_on_the_cpu(self):
        codes = torch.arange(256, dtype=torch.uint8)
        special = torch.tensor([0.0, float("inf"), float("nan"), 464.0, 465.0, 480.0, 61440.0, 65536.0, 1e30, 2.0 ** -10, 2.0 ** -17, 1e-40])
        for kind in FLOAT8:
            values = codes.view(kind).float()
            values = values[values.isfinite()].sort().values
            middles = (values[1:] + values[:-1]) / 2
            beside = [middles.nextafter(torch.tensor(bound)) for bound in (-1e9, 1e9)]
            numbers = torch.cat([special, -special, values, middles, *beside, torch.randn(1000) * 50])
            for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
                with self.subTest(kind=kind, dtype=dtype):
                    there = numbers.to(dtype)
                    actual = there.to("xpud").to(kind).cpu().view(torch.uint8)
                    different = actual != there.to(kind).view(torch.uint8)
                    self.assertEqual(there[different].tolist(), [])

    def test_strides_and_other_types(self):
        x = (torch.randn(4, 6) * 3).to("xpud")
        for kind, other in (FLOAT8, FLOAT8[::-1]):
            self.assertEqual(x.t().to(kind).stride(), x.t().cpu().to(kind).stride())
            self.assertTrue(torch.equal(x.t().to(kind).cpu().float(), x.t().cpu().to(kind).float()))
            self.assertTrue(torch.equal(x.to(kind).to(other).cpu().float(), x.cpu().to(kind).to(other).float()))
            self.assertTrue(torch.equal(x.to(kind)[:, 1::2].int().cpu(), x.cpu().to(kind)[:, 1::2].int()))
        empty = x[:0].to(FLOAT8[0])
        self.assertEqual((empty.shape, empty.float().shape), ((0, 6), (0, 6)))


class ScaledProductTest(NativeTest):
    def matrices(self, kinds=(FLOAT8[0], FLOAT8[0])):
        return torch.randn(5, 64).to(kinds[0]), torch.randn(9, 64).to(kinds[1]).t()

    def check(self, *arguments, tolerance=1e-2, **options):
        expected = torch._scaled_mm(*arguments, **options)
        there = {name: value.to("xpud") if isinstance(value, torch.Tensor) else value for name, value in options.items()}
        actual = torch._scaled_mm(*(each.to("xpud") for each in arguments), **there)
        self.assertEqual((actual.dtype, actual.shape, actual.stride()), (expected.dtype, expected.shape, expected.stride()))
        torch.testing.assert_close(actual.cpu().float(), expected.float(), rtol=tolerance, atol=tolerance)

    def test_one_scale_for_each_matrix(self):
        for kinds in ((FLOAT8[0], FLOAT8[0]), (FLOAT8[0], FLOAT8[1]), (FLOAT8[1], FLOAT8[0])):
            for dtype, tolerance in ((torch.bfloat16, 1e-2), (torch.float16, 2e-3), (torch.float32, 1e-5)):
                with self.subTest(kinds=kinds, dtype=dtype):
                    self.check(*self.matrices(kinds), torch.tensor(0.5), torch.tensor(0.3), out_dtype=dtype, tolerance=tolerance)

    def test_one_scale_for_each_row_and_a_bias(self):
        scales = torch.rand(5, 1), torch.rand(1, 9)
        self.check(*self.matrices(), *scales, out_dtype=torch.bfloat16)
        self.check(*self.matrices(), torch.tensor(0.5), torch.tensor(0.3), bias=torch.randn(9), out_dtype=torch.float32, use_fast_accum=True, tolerance=1e-5)

    def test_results_of_float8(self):
        scales = torch.tensor(0.5), torch.tensor(0.3)
        self.check(*self.matrices(), *scales, tolerance=0.13)
        self.check(*self.matrices(), *scales, out_dtype=FLOAT8[0], scale_result=torch.tensor(4.0), tolerance=0.13)

    def test_sizes_must_fit(self):
        a, b = self.matrices()
        one = torch.tensor(1.0)
        self.assert_same_error(RuntimeError, torch._scaled_mm, a, b.t(), one, one)
        with self.assertRaisesRegex(RuntimeError, r"scale_a must have one element or size \[5, 1\], and has size \[5\]"):
            torch._scaled_mm(*(each.to("xpud") for each in (a, b, torch.rand(5), one)))


class WeightNormTest(NativeTest):
    def check(self, normalise, layer, x, tolerance=1e-5):
        results = []
        for device in ("cpu", "xpud"):
            each = normalise(copy.deepcopy(layer)).to(device)
            argument = x.detach().to(device).requires_grad_()
            out = each(argument)
            (out * torch.linspace(0.5, 1.5, out.numel(), device=device, dtype=out.dtype).view(out.shape)).sum().backward()
            results.append([out, argument.grad, *(parameter.grad for parameter in each.parameters())])
        for expected, actual in zip(*results):
            self.assertEqual((actual.dtype, actual.stride()), (expected.dtype, expected.stride()))
            torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=tolerance, atol=tolerance)

    def test_layers(self):
        for dim in (0, 1, -1):
            self.check(functools.partial(nn.utils.parametrizations.weight_norm, dim=dim), nn.Linear(5, 7), torch.randn(3, 5))
        for layer in (nn.Conv1d(4, 6, 3), nn.ConvTranspose1d(4, 6, 3)):
            self.check(functools.partial(nn.utils.parametrizations.weight_norm, dim=2), layer, torch.randn(2, 4, 9))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.check(nn.utils.weight_norm, nn.Linear(5, 7), torch.randn(3, 5))

    def test_types(self):
        for dtype, tolerance in ((torch.float64, 1e-10), (torch.bfloat16, 3e-2)):
            v, g = torch.randn(6, 4, 3, dtype=dtype), torch.rand(6, 1, 1, dtype=dtype) + 0.5
            expected = torch._weight_norm_interface(v, g, 0)
            actual = torch._weight_norm_interface(v.to("xpud"), g.to("xpud"), 0)
            gradient = torch.randn_like(v)
            expected += torch.ops.aten._weight_norm_interface_backward(gradient, v, g, expected[1], 0)
            actual += torch.ops.aten._weight_norm_interface_backward(gradient.to("xpud"), v.to("xpud"), g.to("xpud"), actual[1], 0)
            for ours, theirs in zip(actual, expected, strict=True):
                torch.testing.assert_close(ours.cpu(), theirs, rtol=tolerance, atol=tolerance)

    def test_a_norm_for_each_element(self):
        v, g = torch.randn(4), torch.rand(4)
        expected = torch._weight_norm_interface(v, g, 0)
        for ours, theirs in zip(torch._weight_norm_interface(v.to("xpud"), g.to("xpud"), 0), expected, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs)

    def test_gradients_of_gradients_are_the_cpus(self):
        """PyTorch composes them. They leave out that the norms depend on v (its gradgradcheck fails on the CPU, too)."""
        v, g, weights = torch.randn(3, 4), torch.rand(3, 1) + 0.5, torch.randn(3, 4)
        results = []
        for device in ("cpu", "xpud"):
            inputs = [each.to(device).requires_grad_() for each in (v, g)]
            first = torch.autograd.grad((torch._weight_norm(*inputs, 0) * weights.to(device)).sum(), inputs, create_graph=True)
            results.append(torch.autograd.grad(sum(each.square().sum() for each in first), inputs))
        for expected, actual in zip(*results):
            torch.testing.assert_close(actual.cpu(), expected)

    def test_other_dimensions_are_refused(self):
        v, g = torch.randn(2, 3, 4, device="xpud"), torch.rand(1, 3, 1, device="xpud")
        with self.assertRaisesRegex(RuntimeError, "fused kernels can only be applied for first or last dim"):
            torch._weight_norm_interface(v, g, 1)


if __name__ == "__main__":
    unittest.main()
