"""Sorting, selection, searches and distinct elements, beside the CPU, in every type and layout."""

import unittest

import torch

NUMBERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
LAYOUTS = {
    "plain": lambda x: x, "transposed": lambda x: x.transpose(0, -1), "cut": lambda x: x[1:, ::2], "expanded": lambda x: x[:1].expand(x.shape),
    "one dimension": lambda x: x.flatten(), "a row": lambda x: x[0, 0], "0-dim": lambda x: x[0, 0, 0], "empty": lambda x: x[:, :0],
    "channels last": lambda x: x[None].contiguous(memory_format=torch.channels_last),
}  # fmt: skip


class OnDevice(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.before = torch.xpud.fallback_counts()

    def assert_native(self):
        now = torch.xpud.fallback_counts()
        self.assertEqual({name: count for name, count in now.items() if count != self.before.get(name)}, {})

    def assert_same(self, actual, expected, strides=True):
        for mine, theirs in zip(actual, expected) if isinstance(expected, (tuple, list)) else [(actual, expected)]:
            self.assertEqual((mine.device.type, mine.dtype, mine.shape), ("xpud", theirs.dtype, theirs.shape))
            if strides and theirs.numel() > 1:
                self.assertEqual(mine.stride(), theirs.stride())
            torch.testing.assert_close(mine.cpu(), theirs, rtol=0, atol=0, equal_nan=True)

    # Values of which many are equal, and some NaN or infinite.
    @staticmethod
    def values(dtype, *shape):
        x = torch.randint(0, 2 if dtype == torch.bool else 40, shape).to(dtype)
        if dtype.is_floating_point:
            for number in (float("nan"), float("inf"), -float("inf"), -0.0):
                x[torch.rand(shape) < 0.05] = number
        return x


class Sort(OnDevice):
    def test_every_type_and_layout(self):
        for dtype in (torch.bool, *NUMBERS):
            whole = self.values(dtype, 5, 7, 30)
            on_device = whole.to("xpud")
            for name, layout in LAYOUTS.items():
                x, mine = layout(whole), layout(on_device)
                for dim in range(-1, max(x.dim() - 1, 0)):
                    for descending in (False, True):
                        with self.subTest(dtype=dtype, layout=name, dim=dim, descending=descending):
                            self.assert_same(mine.sort(dim=dim, descending=descending, stable=True), x.sort(dim=dim, descending=descending, stable=True))
        self.assert_native()

    def test_long_lines(self):
        for size in (4096, 4097, 100_003):
            x = torch.randn(3, size)
            self.assert_same(x.to("xpud").sort(descending=True), x.sort(descending=True, stable=True))
            self.assert_same(x.to("xpud").msort(), x.msort())
        self.assert_same(x.to("xpud").argsort(stable=True), x.argsort(stable=True))
        self.assert_native()

    def test_out(self):
        x = torch.randn(6, 9)
        values, indices = torch.empty(9, 6, device="xpud").t(), torch.empty(0, dtype=torch.long, device="xpud")
        torch.sort(x.to("xpud"), dim=0, out=(values, indices))
        self.assertEqual(values.stride(), (1, 6))
        self.assert_same((values, indices), x.sort(dim=0), strides=False)
        with self.assertRaises(RuntimeError):
            torch.sort(x.to("xpud"), out=(values, torch.empty(0, device="xpud")))
        self.assert_native()

    def test_gradients(self):
        for operation in (
            lambda x: x.sort(descending=True)[0], lambda x: x.topk(5)[0], lambda x: x.kthvalue(3)[0], lambda x: x.median(0)[0], lambda x: x.median(),
            lambda x: x.nanmedian(1)[0], lambda x: x.mode(1)[0], lambda x: x.msort(),
        ):  # fmt: skip
            x = torch.randn(20, 30)
            mine = x.to("xpud").requires_grad_()
            x.requires_grad_()
            weights = torch.randn_like(operation(x))
            operation(x).backward(weights)
            operation(mine).backward(weights.to("xpud"))
            self.assert_same(mine.grad, x.grad)


class Selection(OnDevice):
    def test_topk(self):
        for dtype in NUMBERS:
            for n, k in ((30, 0), (30, 7), (30, 30), (2000, 50), (40_000, 100)):
                x = self.values(dtype, 3, n) if n < 100 else torch.randn(3, n).mul(100).to(dtype)
                mine = x.to("xpud")
                for largest in (False, True):
                    values, indices = mine.topk(k, largest=largest)
                    self.assert_same(values, x.topk(k, largest=largest)[0])
                    self.assert_same(mine.gather(1, indices), x.topk(k, largest=largest)[0])
                    self.assertTrue(all(len(set(line)) == k for line in indices.tolist()))
        self.assert_native()

    def test_distinct_values_have_the_indices_of_the_cpu(self):
        x = torch.randperm(50_000).reshape(5, 10_000).float()
        mine = x.to("xpud")
        self.assert_same(mine.topk(64), x.topk(64))
        self.assert_same(mine.t().topk(3, 0), x.t().topk(3, 0))
        self.assert_same(mine.kthvalue(5_000), x.kthvalue(5_000))
        self.assert_same(mine.kthvalue(2, dim=0, keepdim=True), x.kthvalue(2, dim=0, keepdim=True))
        self.assert_same(mine.median(1), x.median(1))
        self.assert_native()

    def test_medians_and_mode(self):
        for dtype in NUMBERS:
            whole = self.values(dtype, 5, 7, 30)
            on_device = whole.to("xpud")
            for name, layout in LAYOUTS.items():
                x, mine = layout(whole), layout(on_device)
                if name in ("empty", "expanded"):
                    continue
                for operation in (torch.median, torch.nanmedian, torch.mode):
                    for dim in range(-1, max(x.dim() - 1, 0)):
                        with self.subTest(dtype=dtype, layout=name, dim=dim, operation=operation.__name__):
                            values, indices = operation(mine, dim, keepdim=True)
                            expected = operation(x, dim, keepdim=True)[0]
                            if operation is torch.mode and dtype.is_floating_point:
                                continue  # the CPU's order of NaN is not defined
                            self.assert_same(values, expected)
                            if x.dim() > 0:
                                self.assert_same(mine.gather(dim, indices), expected)
                            self.assert_same(operation(mine, dim)[0], operation(x, dim)[0])
                self.assert_same(mine.median(), x.median())
                self.assert_same(mine.nanmedian(), x.nanmedian())
        self.assert_native()

    def test_nan(self):
        x = torch.tensor([[3.0, float("nan"), 1.0, float("nan")], [float("nan")] * 4, [4.0, 2.0, 1.0, 3.0]])
        self.assert_same(x.to("xpud").median(1), x.median(1))
        self.assert_same(x.to("xpud").nanmedian(1)[0], x.nanmedian(1)[0])  # the index of a line without numbers is any

    def test_mode(self):
        x = torch.randint(0, 5, (40, 30))
        for dim in (0, 1):
            self.assert_same(x.to("xpud").mode(dim)[0], x.mode(dim)[0])
        self.assert_native()

    def test_errors(self):
        x = torch.randn(3, 4, device="xpud")
        for operation in (lambda: x.topk(5), lambda: x.topk(-1), lambda: x.kthvalue(0), lambda: x.kthvalue(5), lambda: x.bool().topk(1)):
            self.assertRaises(RuntimeError, operation)
        for operation in (lambda: x.sort(2), lambda: x.median(2), lambda: torch.empty(3, 0, device="xpud").median(1)):
            self.assertRaises(IndexError, operation)


class Search(OnDevice):
    def test_every_type(self):
        for dtype in NUMBERS:
            values = self.values(dtype, 4, 50)
            line = torch.arange(0, 60, 3).to(dtype)
            lines = self.values(dtype, 4, 33).sort()[0]
            for right in (False, True):
                for narrow in (False, True):
                    for sequence in (line, lines, lines[:, :0].contiguous()):
                        with self.subTest(dtype=dtype, right=right, shape=sequence.shape):
                            mine = torch.searchsorted(sequence.to("xpud"), values.to("xpud"), right=right, out_int32=narrow)
                            self.assert_same(mine, torch.searchsorted(sequence, values, right=right, out_int32=narrow))
                self.assert_same(torch.bucketize(values.to("xpud").t(), line.to("xpud"), right=right), torch.bucketize(values.t(), line, right=right), strides=False)
        self.assert_native()

    def test_sides_sorters_and_scalars(self):
        line = torch.randn(100)
        order, values = line.argsort(), torch.randn(7, 9)
        on = lambda x: x.to("xpud")  # noqa: E731
        self.assert_same(torch.searchsorted(on(line), on(values), sorter=on(order)), torch.searchsorted(line, values, sorter=order))
        line = line.sort()[0]
        self.assert_same(torch.searchsorted(on(line), on(values), side="right"), torch.searchsorted(line, values, side="right"))
        self.assert_same(torch.searchsorted(on(line), 0.5), torch.searchsorted(line, 0.5))
        self.assert_same(torch.bucketize(2, on(line)), torch.bucketize(2, line))
        self.assert_same(torch.searchsorted(on(line), on(values.half())), torch.searchsorted(line, values.half()))
        with self.assertRaises(RuntimeError):
            torch.searchsorted(on(line), on(values), sorter=on(order) + 1)
        with self.assertRaises(RuntimeError):
            torch.searchsorted(on(line), on(values), side="left", right=True)

    def test_isin(self):
        for dtype in NUMBERS:
            elements, some = self.values(dtype, 6, 50), self.values(dtype, 8)
            for invert in (False, True):
                self.assert_same(torch.isin(elements.to("xpud"), some.to("xpud"), invert=invert), torch.isin(elements, some, invert=invert))
                self.assert_same(torch.isin(elements.to("xpud"), 3, invert=invert), torch.isin(elements, 3, invert=invert))
                self.assert_same(torch.isin(3, some.to("xpud"), invert=invert), torch.isin(3, some, invert=invert))
                self.assert_same(torch.isin(elements.to("xpud"), some[:0].to("xpud"), invert=invert), torch.isin(elements, some[:0], invert=invert))
        self.assert_native()


class Unique(OnDevice):
    def test_every_type(self):
        for dtype in (torch.bool, *NUMBERS):
            for shape in ((), (1,), (30,), (4, 50)):
                x = torch.randint(0, 2 if dtype == torch.bool else 20, shape).to(dtype)
                mine = x.to("xpud")
                with self.subTest(dtype=dtype, shape=shape):
                    self.assert_same(mine.unique(return_inverse=True, return_counts=True), x.unique(return_inverse=True, return_counts=True))
                    self.assert_same(mine.unique(), x.unique())
                    self.assert_same(mine.unique_consecutive(return_inverse=True, return_counts=True), x.unique_consecutive(return_inverse=True, return_counts=True))
        self.assert_native()

    def test_dimensions(self):
        for shape in ((40, 1), (40, 2), (60, 5), (3, 20, 4)):
            x = torch.randint(0, 3, shape)
            for dtype in (torch.int64, torch.float32, torch.bool):
                for dim in range(len(shape)):
                    there, here = x.to(dtype), x.to(dtype).to("xpud")
                    with self.subTest(shape=shape, dim=dim, dtype=dtype):
                        self.assert_same(here.unique(dim=dim, return_inverse=True, return_counts=True), there.unique(dim=dim, return_inverse=True, return_counts=True), strides=False)
                        self.assert_same(here.unique_consecutive(dim=dim, return_inverse=True, return_counts=True),
                                         there.unique_consecutive(dim=dim, return_inverse=True, return_counts=True), strides=False)  # fmt: skip
        self.assert_native()

    def test_nan_is_never_equal(self):
        x = torch.tensor([float("nan"), 1.0, float("nan"), 1.0, -0.0, 0.0])
        self.assert_same(x.to("xpud").unique(return_counts=True)[1], x.unique(return_counts=True)[1])
        self.assertEqual(x.to("xpud").unique().numel(), 4)


if __name__ == "__main__":
    unittest.main()
