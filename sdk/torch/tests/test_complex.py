"""Complex numbers, computed on the device: values, dtypes, strides and gradients are the CPU's, and nothing falls back.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_complex.py
"""

import math
import unittest

import torch
import torch.nn.functional as F
import torch_xpud  # noqa: F401  also without the entry point

DTYPES = {torch.complex64: 1e-5, torch.complex128: 1e-10}  # with tolerances


def rows(device):
    return torch.tensor([2, 0], device=device)


# Differentiable operators on two complex matrices (3 x 4).
SMOOTH = {
    "add": lambda a, b: a + b,
    "add, scaled": lambda a, b: torch.add(a, b, alpha=2),
    "add, scaled by a complex number": lambda a, b: torch.add(a, b, alpha=2j),
    "add a number": lambda a, b: a + 1j,
    "sub": lambda a, b: a - b,
    "sub from a number": lambda a, b: 2 - a,
    "rsub": lambda a, b: torch.rsub(a, b),
    "mul": lambda a, b: a * b,
    "mul by a real tensor": lambda a, b: a * b.real,
    "mul by a real number": lambda a, b: a * 2,
    "mul by a complex number": lambda a, b: a * 2j,
    "mul of a real tensor by a complex number": lambda a, b: a.real * 1j + b,
    "mul, broadcast": lambda a, b: a[:, :1] * b[:1],
    "mul, transposed": lambda a, b: a.T * b.T,
    "mul of slices": lambda a, b: a[:, ::2] * b[:, 1::2],
    "mul by a conjugate": lambda a, b: a.conj() * b,
    "div": lambda a, b: a / b,
    "div by a number": lambda a, b: a / 2j,
    "div of a real tensor": lambda a, b: b.real / a,
    "reciprocal": lambda a, b: a.reciprocal(),
    "neg": lambda a, b: -a,
    "conj_physical": lambda a, b: a.conj_physical(),
    "abs": lambda a, b: a.abs(),
    "angle": lambda a, b: a.angle(),
    "sgn": lambda a, b: a.sgn(),
    "exp": lambda a, b: a.exp(),
    "log": lambda a, b: a.log(),
    "sin": lambda a, b: a.sin(),
    "cos": lambda a, b: a.cos(),
    "sqrt": lambda a, b: a.sqrt(),
    "sqrt of negative numbers": lambda a, b: (-(a * a).abs() + 0.1j).sqrt(),
    "square": lambda a, b: a**2,
    "sum": lambda a, b: a.sum(),
    "sum of rows": lambda a, b: a.sum(1),
    "sum, kept": lambda a, b: a.sum((0, -1), keepdim=True),
    "mean": lambda a, b: a.mean(),
    "mean of columns": lambda a, b: a.mean(0),
    "cumsum": lambda a, b: a.cumsum(1),
    "mm": lambda a, b: a @ b.T,
    "mm, adjoint": lambda a, b: a @ b.mH,
    "bmm": lambda a, b: torch.bmm(a.view(3, 2, 2), b.view(3, 2, 2)),
    "addmm": lambda a, b: torch.addmm(a[:, :3], a, b.T, beta=2, alpha=0.5j),
    "baddbmm": lambda a, b: torch.baddbmm(b.view(3, 2, 2), a.view(3, 2, 2), b.view(3, 2, 2)),
    "mv": lambda a, b: a @ b[0],
    "dot": lambda a, b: torch.dot(a[0], b[0]),
    "vdot": lambda a, b: torch.vdot(a[0], b[0]),
    "linear": lambda a, b: F.linear(a, b, b[:, 0]),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
    "complex": lambda a, b: torch.complex(a.real, b.imag),
    "polar": lambda a, b: torch.polar(a.abs(), b.imag),
    "views of the parts": lambda a, b: torch.view_as_complex(torch.view_as_real(a) * 2) + a.real * b.imag,
    "where": lambda a, b: torch.where(a.real > 0, a, b),
    "masked_fill": lambda a, b: a.masked_fill(b.real > 0, 1j),
    "indexing": lambda a, b: a[rows(a.device)],
    "indexing of a transpose": lambda a, b: a.T[:, rows(a.device)],
    "indexing by a mask": lambda a, b: a[b.detach().real > 0],
    "index_select": lambda a, b: a.index_select(1, rows(a.device)),
    "flip": lambda a, b: a.flip(0),
    "roll": lambda a, b: a.roll(1, 0),
    "cat": lambda a, b: torch.cat([a, b], 1),
    "tril": lambda a, b: a.tril(),
    "nothing": lambda a, b: a[:0] * b[:0],
}

OTHERS = {
    "eq": lambda a, b: a == torch.where(a.real > 0, a, b),
    "ne": lambda a, b: a != torch.where(a.real > 0, a, b),
    "eq of a real number": lambda a, b: torch.ones_like(a) == 1,
    "ne of a real tensor": lambda a, b: torch.ones_like(a) != torch.ones_like(a.real),
    "isnan": lambda a, b: (a * float("nan")).isnan(),
    "isclose": lambda a, b: torch.isclose(a, a + 1e-12),
    "gather": lambda a, b: a.gather(1, torch.zeros(3, 2, dtype=torch.long, device=a.device)),
    "mul_": lambda a, b: a.clone().mul_(b),
    "mul_ by itself": lambda a, b: (lambda x: x.mul_(x))(a.clone()),
    "add_ to a slice": lambda a, b: (lambda x: (x[:, ::2].add_(1j), x)[1])(a.clone()),
    "mul(out=)": lambda a, b: torch.mul(a, b, out=torch.empty(0, dtype=a.dtype, device=a.device)),
    "fill": lambda a, b: a.clone().fill_(1 + 2j),
    "fill of a conjugate": lambda a, b: a.clone().conj().fill_(1 + 2j).resolve_conj(),
    "full": lambda a, b: torch.full((2, 3), 1 + 2j, dtype=a.dtype, device=a.device),
    "assignment": lambda a, b: (lambda x: (x.__setitem__(0, 1j), x)[1])(a.clone()),
    "promotion by a real tensor": lambda a, b: a * torch.ones(4, dtype=torch.double, device=a.device),
    "promotion by a real number": lambda a, b: a * torch.tensor(2.0, dtype=torch.double, device=a.device),
    "integers": lambda a, b: a * torch.arange(4, device=a.device),
    "assignment by index": lambda a, b: (lambda x: (x.__setitem__(rows(a.device), b[:2]), x)[1])(a.clone()),
    "accumulation by index": lambda a, b: a.clone().index_put_((torch.tensor([1, 1], device=a.device),), b[:2], accumulate=True),
    "index_add": lambda a, b: a.index_add(0, torch.tensor([1, 1], device=a.device), b[:2], alpha=2),
    "resolved conjugate": lambda a, b: a.conj().resolve_conj(),
    "resolved negation": lambda a, b: a.conj().imag.resolve_neg(),
    "to the other precision": lambda a, b: a.to(torch.complex128).to(torch.complex64),
}


class ComplexTest(unittest.TestCase):
    def setUp(self):
        self.counts = torch.xpud.fallback_counts()

    def tearDown(self):
        self.assertEqual(torch.xpud.fallback_counts(), self.counts, "it fell back")

    def inputs(self, dtype):
        generator = torch.Generator().manual_seed(5)
        return [torch.randn(3, 4, dtype=dtype, generator=generator) for _ in range(2)]

    def check(self, got, expected, tolerance):
        self.assertEqual((got.device.type, got.dtype, got.shape, got.stride()), ("xpud", expected.dtype, expected.shape, expected.stride()))
        torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)

    def test_values_and_strides_are_the_cpus(self):
        for dtype, tolerance in DTYPES.items():
            a, b = self.inputs(dtype)
            for name, operation in (SMOOTH | OTHERS).items():
                with self.subTest(name, dtype=dtype):
                    self.check(operation(a.to("xpud"), b.to("xpud")), operation(a, b), tolerance)

    def test_gradients_are_the_cpus(self):
        def gradients(operation, inputs, device):
            inputs = [x.to(device, copy=True).requires_grad_() for x in inputs]
            result = operation(*inputs)
            (result * result.conj()).real.sum().backward()
            return [torch.zeros_like(x).cpu() if x.grad is None else x.grad.cpu() for x in inputs]

        for dtype, tolerance in DTYPES.items():
            inputs = self.inputs(dtype)
            for name, operation in SMOOTH.items():
                with self.subTest(name, dtype=dtype):
                    expected = gradients(operation, inputs, "cpu")
                    for got, wanted in zip(gradients(operation, inputs, "xpud"), expected):
                        torch.testing.assert_close(got, wanted, rtol=100 * tolerance, atol=100 * tolerance)

    def test_rotary_embedding_by_complex_products(self):
        """The rotation of Llama's original code."""

        def rotate(x, device):
            frequencies = 1.0 / (10000.0 ** (torch.arange(0, 8, 2, device=device).float() / 8))
            angles = torch.outer(torch.arange(5, device=device).float(), frequencies)
            rotation = torch.polar(torch.ones_like(angles), angles).view(1, 5, 1, 4)
            pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * rotation).flatten(3).type_as(x)

        for dtype in (torch.float32, torch.bfloat16):
            results = {}
            for device in ("cpu", "xpud"):
                x = torch.randn(2, 5, 3, 8, generator=torch.Generator().manual_seed(1)).to(dtype).to(device).requires_grad_()
                y = rotate(x, device)
                (y.float() ** 3).sum().backward()
                results[device] = y.detach().cpu(), x.grad.cpu()
            for got, wanted in zip(results["xpud"], results["cpu"]):
                torch.testing.assert_close(got, wanted)

    def test_division_does_not_overflow(self):
        for parts in ((1e30, 1e30), (1e-30, 1e-30), (-3e37, 2e-20), (0.0, 1e-38)):
            with self.subTest(parts):
                b = torch.tensor(complex(*parts), dtype=torch.complex64)
                self.check(b.to("xpud") / b.to("xpud"), torch.ones((), dtype=torch.complex64), 1e-6)

    def test_square_root_has_the_cpus_branch(self):
        a = torch.tensor([complex(-4, 0.0), complex(-4, -0.0), 0, complex(0, -2), 1e-20j, 9])
        self.check(a.to("xpud").sqrt(), a.sqrt(), 1e-6)

    def test_infinite_and_nan_parts_give_what_the_cpu_gives(self):
        inf, nan = math.inf, math.nan
        parts = [inf, -inf, nan, 0.0, -0.0, 1.5, -1e10]
        a = torch.tensor([complex(re, im) for re in parts for im in parts])
        for name in ("exp", "sin", "cos", "sqrt", "reciprocal", "log", "abs"):
            for dtype in DTYPES:
                expected, got = (getattr(a.to(device, dtype), name)().cpu() for device in ("cpu", "xpud"))
                for part in (torch.real, torch.imag) if expected.is_complex() else (lambda x: x,):
                    with self.subTest(name, dtype=dtype, part=part):
                        torch.testing.assert_close(part(got), part(expected), equal_nan=True)

    def test_errors_are_the_cpus(self):
        wrong = {
            "order": lambda a: a < a,
            "shapes": lambda a: a * a[:, :2],
            "shapes, in-place": lambda a: a[:, :1].clone().mul_(a),
            "matrices": lambda a: a @ a,
            "in-place result": lambda a: a.real.mul_(a),
            "fill of real numbers": lambda a: a.real.fill_(1j),
            "lengths in place": lambda a: a.clone().abs_(),
            "polar of two types": lambda a: torch.polar(a.real, a.imag.double()),
            "polar into another type": lambda a: torch.polar(a.real, a.imag, out=torch.empty(0, dtype=torch.complex128, device=a.device)),
            "parts of two types": lambda a: torch.complex(a.real, a.imag.double()),
        }
        a = self.inputs(torch.complex64)[0]
        for name, operation in wrong.items():
            with self.subTest(name):
                with self.assertRaises(RuntimeError) as expected:
                    operation(a)
                with self.assertRaises(RuntimeError) as got:
                    operation(a.to("xpud"))
                self.assertEqual(str(got.exception).splitlines()[0], str(expected.exception).splitlines()[0])
        # Refused by the CPU's kernel, which a fallback ran: not counted as computed.
        self.counts = torch.xpud.fallback_counts()


if __name__ == "__main__":
    unittest.main()
