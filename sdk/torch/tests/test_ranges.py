"""Ranges, reversal, rolling and norms of every order beside the CPU: types, layouts, out=, gradients; nothing by fallback."""

import itertools
import math
import unittest

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ORDERS = (0, 0.5, 1, 2, 3, 4.5, -1, -2.5, math.inf, -math.inf)


def layouts(x):
    yield from (x, x.transpose(0, -1), x[..., ::2], x[:1].expand(x.shape), x[:0], x.to(memory_format=torch.channels_last))


class RangeTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.before = torch.xpud.fallback_counts()

    def tearDown(self):
        self.assertEqual(torch.xpud.fallback_counts(), self.before)

    def check(self, function, *arguments, exact=True):
        """Compares values, dtypes, strides, and the gradients of floating arguments."""
        results = []
        for device in ("cpu", "xpud"):
            leaves = [x.detach().to(device).requires_grad_(x.is_floating_point()) for x in arguments]
            output = function(*leaves)
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            weights = torch.linspace(-1, 1, output.numel()).to(output).view(output.shape)
            gradients = torch.autograd.grad(output, wanted, weights, allow_unused=True) if wanted and output.requires_grad else ()
            results.append([output, *gradients])
        for theirs, mine in zip(*results, strict=True):
            if theirs is None:
                self.assertIsNone(mine)
                continue
            self.assertEqual((mine.shape, mine.dtype), (theirs.shape, theirs.dtype))
            if theirs.numel() > 1:
                self.assertEqual(mine.stride(), theirs.stride())
            tolerance = {} if not exact else {"rtol": 0, "atol": 0}
            torch.testing.assert_close(mine.cpu(), theirs, equal_nan=True, **tolerance)

    def test_ranges(self):
        for (start, end, steps), dtype in itertools.product(((0, 10, 5), (3, -2, 7), (0, 1, 1), (2, 5, 0), (0, 100, 1001), (-3.5, 4.25, 32), (7, 7, 4)), FLOATS + INTEGERS):
            if dtype == torch.uint8 and start < 0 or dtype in (torch.uint8, torch.int8) and end < 0:
                continue
            with self.subTest(start=start, end=end, steps=steps, dtype=dtype):
                exact = [torch.linspace(start, end, steps, dtype=torch.float64)] if dtype.itemsize == 2 and dtype.is_floating_point else None
                theirs = exact[0].to(dtype) if exact else torch.linspace(start, end, steps, dtype=dtype)
                torch.testing.assert_close(torch.linspace(start, end, steps, dtype=dtype, device="xpud").cpu(), theirs)
                if dtype in (torch.float32, torch.float64):
                    torch.testing.assert_close(torch.logspace(start / 9, end / 9, steps, dtype=dtype, device="xpud").cpu(), torch.logspace(start / 9, end / 9, steps, dtype=dtype))
                    torch.testing.assert_close(torch.logspace(0, 6, 7, 2, dtype=torch.int32, device="xpud").cpu(), torch.logspace(0, 6, 7, 2, dtype=torch.int32))
        out = torch.empty(2, device="xpud", dtype=torch.float64)
        self.assertIs(torch.linspace(0, 1, 5, out=out), out)
        self.assertEqual(out.tolist(), [0, 0.25, 0.5, 0.75, 1])
        gaps = torch.zeros(10, device="xpud")
        torch.linspace(0, 4, 5, out=gaps[::2])
        self.assertEqual(gaps.tolist(), [0, 0, 1, 0, 2, 0, 3, 0, 4, 0])
        with self.assertRaisesRegex(RuntimeError, "number of steps must be non-negative"):
            torch.linspace(0, 1, -1, device="xpud")

    def test_flip(self):
        for dtype in FLOATS + INTEGERS + (torch.bool,):
            self.check(lambda x: x.flip(1, -1), torch.randn(2, 3, 4, 5).mul(9).to(dtype))
        for x in layouts(torch.randn(3, 4, 6, 8)):
            for dims in ((), (0,), (-1,), (1, 2), (0, 1, 2, 3)):
                with self.subTest(shape=x.shape, stride=x.stride(), dims=dims):
                    self.check(lambda x: x.flip(dims), x)
        self.check(lambda x: x.flip(0), torch.randn(200000))
        self.check(lambda x: x.flip(()), torch.tensor(3.0))
        with self.assertRaisesRegex(RuntimeError, "dim 1 appears multiple times in the list of dims"):
            torch.ones(2, 3, device="xpud").flip(1, -1)
        with self.assertRaises(IndexError):
            torch.ones(2, 3, device="xpud").flip(2)

    def test_roll(self):
        for x in layouts(torch.randn(3, 4, 6, 8)):
            for shifts, dims in (((2,), (1,)), ((-9,), (3,)), ((1, 2), (0, -1)), ((5,), ()), ((0,), (0,)), ((1, 1), (2, 2))):
                with self.subTest(shape=x.shape, stride=x.stride(), shifts=shifts, dims=dims):
                    self.check(lambda x: x.roll(shifts, dims), x)
        self.check(lambda x: x.roll(1, 0), torch.arange(5))
        for wrong in ({"shifts": (1, 2), "dims": (0,)}, {"shifts": ()}):
            for device in ("cpu", "xpud"):
                with self.assertRaises(RuntimeError):
                    torch.ones(3, device=device).roll(**wrong)

    def test_norms(self):
        for order, dtype in itertools.product(ORDERS, FLOATS):
            x = torch.randn(4, 5, 33).to(dtype)
            for dims in (None, (1,), (0, 2), (-1,)):
                with self.subTest(order=order, dtype=dtype, dims=dims):
                    self.check(lambda x: torch.linalg.vector_norm(x, order, dims), x, exact=False)
                    self.check(lambda x: x.norm(order, dims, keepdim=True) if dims else x.norm(order), x, exact=False)
        x = torch.randn(4, 5).half()
        self.check(lambda x: torch.linalg.vector_norm(x, 3, 1, dtype=torch.float32), x, exact=False)
        self.check(lambda x: torch.norm(x, dtype=torch.float64), x, exact=False)
        self.check(lambda x, y: torch.dist(x, y, 3), torch.randn(4, 5), torch.randn(4, 5), exact=False)
        special = torch.tensor([[1.0, math.nan, 0.0], [math.inf, 1.0, -2.0], [0.0, 0.0, -0.0]])
        for order in ORDERS:
            self.check(lambda x: torch.linalg.vector_norm(x, order, 1), special.double(), exact=False)
        out = torch.empty(0, device="xpud")
        torch.testing.assert_close(torch.norm(special.to("xpud"), 1, 0, out=out).cpu(), special.norm(1, 0), equal_nan=True)

    def test_random_slopes(self):
        x = torch.randn(1000, device="xpud", requires_grad=True)
        y = torch.nn.functional.rrelu(x, 0.1, 0.4, training=True)
        slopes = (y / x).detach()
        self.assertTrue(torch.equal(y[x > 0], x[x > 0]))
        self.assertTrue((slopes[x < 0] >= 0.0999).all() and (slopes[x < 0] <= 0.4001).all())
        self.assertAlmostEqual(slopes[x < 0].mean().item(), 0.25, delta=0.03)
        y.sum().backward()
        torch.testing.assert_close(x.grad, slopes)
        self.assertFalse(torch.equal(torch.nn.functional.rrelu(x, 0.1, 0.4, training=True), y))
        torch.manual_seed(3)
        first = torch.nn.functional.rrelu(x, 0.1, 0.4, training=True)
        torch.manual_seed(3)
        self.assertTrue(torch.equal(torch.nn.functional.rrelu_(x.detach().clone(), 0.1, 0.4, training=True), first))
        self.check(lambda x: torch.nn.functional.rrelu(x, 0.1, 0.4), torch.randn(50), exact=False)


if __name__ == "__main__":
    unittest.main()
