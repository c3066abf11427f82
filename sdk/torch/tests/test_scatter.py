"""Scatter, writes and reductions at indices, bags of embeddings and segments, beside the CPU; none of them falls back."""

import itertools
import unittest

import torch
import torch_xpud  # noqa: F401  also without the entry point
from torch import nn

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 4e-2}  # the CPU rounds each step of a mean, a product or a weight to 16 bits


def numbers(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(0, 2 if dtype == torch.bool else 4, shape).to(dtype)


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch.ones(1, device="xpud")
        self.before = torch.xpud.fallback_counts()

    def tearDown(self):
        self.assertEqual(torch.xpud.fallback_counts(), self.before)

    def assert_same(self, operation, *tensors, **options):
        """`operation` gives the same on copies of `tensors` on both devices, and writes the same into them."""
        here = [t.clone(memory_format=torch.preserve_format) for t in tensors]
        there = [t.to("xpud") for t in tensors]
        results = operation(*here), operation(*there)
        for want, got in zip(*(r if isinstance(r, (tuple, list)) else [r] for r in results)):
            tolerance = TOLERANCE.get(want.dtype)
            limits = {"rtol": tolerance, "atol": tolerance} if tolerance else {}
            torch.testing.assert_close(got.cpu(), want, equal_nan=True, **limits)
            self.assertEqual(got.stride(), want.stride())
        for want, got in zip(here, there):
            torch.testing.assert_close(got.cpu(), want, equal_nan=True, **(limits if want.dtype in TOLERANCE else {}))


class ScatterTest(Case):
    def test_every_type_and_reduction(self):
        index = torch.stack([torch.randperm(5)[torch.arange(7) % 5] for _ in range(6)], 1)
        once = torch.stack([torch.randperm(5) for _ in range(6)], 1)
        for dtype in TYPES:
            with self.subTest(dtype=dtype):
                x, source = numbers(5, 6, dtype=dtype), numbers(8, 7, dtype=dtype)
                self.assert_same(lambda x, i, s: x.scatter(0, i, s), x, once, source)
                self.assert_same(lambda x, i: x.scatter_(0, i, 1), x, index)
                self.assert_same(lambda x, i, s: x.t().scatter(1, i.t(), s.t()), x, once, source)
                self.assert_same(lambda x, i, s: x.scatter_add_(0, i, s), x, index, source)
                self.assert_same(lambda x, i, s: torch.scatter_add(x, 0, i, s, out=x.new_empty(0)), x, index, source)
                for reduce in ("add", "multiply"):
                    self.assert_same(lambda x, i, s, r=reduce: x.scatter(0, i, s, reduce=r), x, index, source)
                    self.assert_same(lambda x, i, r=reduce: x.scatter_(0, i, 2, reduce=r), x, index)
                for reduce, own in itertools.product(("sum", "prod", "mean", "amax", "amin"), (True, False)):
                    if dtype != torch.bool or reduce != "mean":
                        self.assert_same(lambda x, i, s, r=reduce, o=own: x.scatter_reduce(0, i, s, r, include_self=o), x, index, source)

    def test_shapes_at_the_edge(self):
        x = numbers(4, 5)
        self.assert_same(lambda x, i, s: x.scatter_add(0, i, s), x, torch.zeros(0, 5, dtype=torch.long), x)
        self.assert_same(lambda x, i, s: x.scatter_add(1, i, s), x, torch.zeros(2, 0, dtype=torch.long), x)
        self.assert_same(lambda x, i, s: x.scatter_add(0, i, s), torch.tensor(2.0), torch.tensor(0), torch.tensor(3.0))
        self.assert_same(lambda x, i, s: x.scatter(1, i, s), numbers(0, 5), torch.zeros(0, 3, dtype=torch.long), numbers(0, 3))
        self.assert_same(lambda x, i, s: x.scatter_add(1, i.expand(4, 9), s), x, torch.arange(9) % 5, numbers(4, 9))
        self.assert_same(lambda x, i: x.scatter_(2, i, 7), numbers(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), torch.randint(0, 4, (2, 3, 2, 5)))

    def test_sums_are_the_same_each_time(self):
        # index_put's in any case, others where a program asks for it
        x, index, source = torch.zeros(50, device="xpud"), torch.randint(0, 50, (40000,), device="xpud"), torch.randn(40000, device="xpud")
        for function in (lambda: x.index_put((index,), source, accumulate=True), lambda: x.scatter_add(0, index, source)):
            torch.use_deterministic_algorithms(True)
            try:
                first = function()
                for _ in range(3):
                    self.assertTrue(torch.equal(function(), first))
            finally:
                torch.use_deterministic_algorithms(False)
        first = x.index_put((index,), source, accumulate=True)
        self.assertTrue(torch.equal(x.index_put((index,), source, accumulate=True), first))
        self.assertTrue(torch.allclose(x.scatter_add(0, index, source), first, atol=1e-3))

    def test_gradients(self):
        index = torch.randint(0, 5, (7, 6))

        def gradients(x, s):
            x, s = x.detach().requires_grad_(), s.detach().requires_grad_()
            i = index.to(x.device)
            y = x.scatter_add(0, i, s) * x.scatter_reduce(0, i, s, "amax") + x.scatter_reduce(0, i, s, "mean")
            (y.sum() + x.gather(0, i).square().sum()).backward()
            return x.grad, s.grad

        self.assert_same(gradients, numbers(5, 6), numbers(7, 6))
        self.assert_same(gradients, numbers(5, 6, dtype=torch.float64), numbers(7, 6, dtype=torch.float64))

    def test_wrong_calls_are_refused(self):
        x, index = torch.zeros(3, 4, device="xpud"), torch.zeros(2, 4, dtype=torch.long, device="xpud")
        for wrong in (
            lambda: x.scatter(0, index, x.double()), lambda: x.scatter(0, index.float(), x), lambda: x.scatter(0, index[0], x), lambda: x.scatter(1, index, x[:1]),
            lambda: x.scatter(0, index, 1.0, reduce="mean"), lambda: x.scatter_reduce(0, index, x, "max"), lambda: x[:1].expand(3, 4).scatter_(0, index, 1.0),
            lambda: x.scatter_(0, index, x), lambda: x.index_add(0, index[0], x), lambda: x.index_copy(0, index[0], x),
        ):  # fmt: skip
            with self.assertRaises((RuntimeError, IndexError)):
                wrong()
        for wrong in (lambda i: x.scatter(0, i, 1.0), lambda i: x.index_add(0, i[0], x.new_ones(4, 4)), lambda i: x.index_fill(0, i[0], 1.0)):
            with self.assertRaisesRegex(IndexError, "out of range"):
                wrong(index + 3)
                torch.xpud.synchronize()


class IndexTest(Case):
    def test_an_index_of_one_dimension(self):
        for dtype in TYPES:
            with self.subTest(dtype=dtype):
                x, source, index = numbers(5, 6, dtype=dtype), numbers(5, 6, dtype=dtype), torch.tensor([0, 5, 0])
                for kind in (torch.long, torch.int):
                    self.assert_same(lambda x, i, s: x.index_add(1, i, s[:, :3]), x, index.to(kind), source)
                self.assert_same(lambda x, i, s: x.index_add_(1, i, s[:, :3], alpha=2), x, index, source)
                self.assert_same(lambda x, i, s: x.index_copy_(1, i, s[:, :2]), x, torch.tensor([4, 1]), source)
                self.assert_same(lambda x, i: x.index_fill_(1, i, 1), x, torch.tensor([4, -1]))
                self.assert_same(lambda x, i, v: x.index_fill(0, i, v), x, torch.tensor([4, -1]), numbers(dtype=dtype))
                for reduce, own in itertools.product(("prod", "mean", "amax", "amin"), (True, False)):
                    if dtype != torch.bool:
                        self.assert_same(lambda x, i, s, r=reduce, o=own: x.index_reduce(1, i, s[:, :3], r, include_self=o), x, index, source)
        self.assert_same(lambda x, i, s: x.index_add(0, i, s), torch.tensor(1.0), torch.tensor([0]), torch.tensor(2.0))
        self.assert_same(lambda x, i, s: x.index_copy(0, i, s), numbers(4), torch.tensor(2), torch.tensor(2.0))

    def test_index_put(self):
        rows, columns, mask = torch.tensor([0, -1]), torch.tensor([[3, 2], [2, -2]]), torch.arange(30).view(5, 6) % 3 == 0
        for dtype, add in itertools.product(TYPES, (False, True)):
            with self.subTest(dtype=dtype, accumulate=add):
                x, wide = numbers(5, 6, dtype=dtype), numbers(3, 4, 5, 6, dtype=dtype)
                put = lambda x, indices, values, a=add: torch.ops.aten.index_put_(x, indices, values, a)  # noqa: E731
                self.assert_same(lambda x, r, c, v: put(x, (r, c), v), x, rows, columns, numbers(2, 2, dtype=dtype))
                self.assert_same(lambda x, c, v: put(x, (None, c), v), x, torch.tensor([3, 2]), numbers(dtype=dtype))
                self.assert_same(lambda x, m, v: put(x, (m,), v), x, mask, numbers(10, dtype=dtype))
                self.assert_same(lambda x, m, v: put(x, (m[0],), v), x, mask.t().contiguous()[:, :5], numbers(6, dtype=dtype))
                self.assert_same(lambda x, r, c, v: put(x, (r, None, c), v), wide, rows, torch.tensor([1, 4]), numbers(4, 6, dtype=dtype))
                channels_last = wide.contiguous(memory_format=torch.channels_last)
                self.assert_same(lambda x, r, c, v: put(x, (None, r, c), v), channels_last, rows, torch.tensor([1, 4]), numbers(6, dtype=dtype))
                self.assert_same(lambda x, r, v: put(x.t(), (r,), v), x, rows, numbers(5, dtype=dtype))
                self.assert_same(lambda x, r, v: put(x, (r,), v), x, rows[:0], numbers(0, 6, dtype=dtype))
                self.assert_same(lambda x, r, c: x[r, :, c], wide, rows, torch.tensor([1, 4]))
                self.assert_same(lambda x, m, c: x[:, m, :, c], wide, torch.tensor([True, False, True, True]), torch.tensor([1, 4, 2]))

    def test_the_elements_as_one_line(self):
        for dtype in TYPES:
            with self.subTest(dtype=dtype):
                x, source = numbers(5, 6, dtype=dtype), numbers(5, 6, dtype=dtype)
                index = torch.tensor([[0, -1], [7, 8]])
                self.assert_same(lambda x, i: x.t().take(i), x, index)
                self.assert_same(lambda x, i, s: x.put_(i, s[:2, :2]), x, index, source)
                self.assert_same(lambda x, i, s: x.t().put_(i, s[:2, :2], accumulate=True), x, torch.tensor([[0, 0], [7, -1]]), source)
                mask = torch.rand(5, 6) > 0.5
                self.assert_same(lambda x, m, s: x.masked_scatter_(m, s), x, mask, source)
                self.assert_same(lambda x, m, s: x.masked_scatter(m[0], s), x, mask, source)

    def test_repeat_interleave(self):
        repeats = torch.tensor([0, 2, 0, 3, 1, 0])
        for kind in (torch.long, torch.int):
            self.assert_same(torch.repeat_interleave, repeats.to(kind))
        self.assert_same(lambda x, r: x.repeat_interleave(r, 1), numbers(2, 6), repeats)
        self.assert_same(lambda x, r: x.repeat_interleave(r, 1, output_size=6), numbers(2, 6), repeats)
        self.assert_same(lambda x: x.repeat_interleave(3, 0), numbers(2, 6))
        self.assert_same(torch.repeat_interleave, repeats[:0])
        with self.assertRaisesRegex(RuntimeError, "negative"):
            torch.repeat_interleave(torch.tensor([1, -1], device="xpud"))

    def test_triangles(self):
        for shape, offset in itertools.product(((4, 6), (6, 4), (1, 1), (0, 3), (40, 60)), (-50, -3, -1, 0, 2, 9)):
            for of in (torch.tril_indices, torch.triu_indices):
                self.assertTrue(torch.equal(of(*shape, offset, device="xpud").cpu(), of(*shape, offset)))

    def test_windows_along_a_dimension_have_a_gradient(self):
        def gradient(x, d, size, step):
            x = x.detach().requires_grad_()
            y = x.unfold(d, size, step)
            (y * torch.arange(y.numel(), device=y.device).view(y.shape)).sum().backward()
            return x.grad

        for case in ((0, 3, 1), (1, 2, 3), (2, 4, 2), (1, 5, 1)):
            self.assert_same(lambda x, c=case: gradient(x, *c), numbers(4, 5, 9))


class SegmentsTest(Case):
    def test_bags(self):
        for dtype, mode, last, padding in itertools.product(FLOATS, ("sum", "mean", "max"), (False, True), (None, 3)):
            for weighted in (False, True) if mode == "sum" else (False,):
                with self.subTest(dtype=dtype, mode=mode, last=last, padding=padding, weighted=weighted):
                    offsets = torch.tensor([0, 0, 3, 6] + ([7] if last else []))
                    self.check_bag((numbers(10, 5, dtype=dtype), torch.tensor([1, 3, 3, 9, 0, 2, 2]), offsets, numbers(7, dtype=dtype)), weighted,
                                   mode=mode, include_last_offset=last, padding_idx=padding)  # fmt: skip
        self.check_bag((numbers(10, 5), torch.randint(0, 10, (3, 4))), False, mode="mean")

    def test_gradients_are_divided_by_the_counts_of_rows(self):
        """Not compared with the CPU, which takes counts of other rows."""
        weight, indices = torch.ones(6, 3, device="xpud", requires_grad=True), torch.tensor([[0, 4, 4], [4, 1, 0]], device="xpud")
        gradients = []
        for scaled in (False, True):
            out = nn.functional.embedding_bag(indices, weight, mode="mean", scale_grad_by_freq=scaled)
            gradients += torch.autograd.grad(out, weight, torch.arange(6.0, device="xpud").view(2, 3))
        counts = torch.tensor([2.0, 1, 1, 1, 3, 1]).unsqueeze(1)
        torch.testing.assert_close(gradients[1].cpu(), gradients[0].cpu() / counts)

    def check_bag(self, tensors, weighted, **options):
        def bag(weight, indices, *more):
            offsets, weights = more or (None, None)
            weight = weight.detach().requires_grad_()
            weights = weights.detach().requires_grad_() if weighted else None
            out = nn.functional.embedding_bag(indices, weight, offsets, per_sample_weights=weights, **options)
            out.backward(torch.arange(out.numel(), device=out.device).view(out.shape).to(out.dtype) / 8)
            return [out.detach(), weight.grad] + ([weights.grad] if weighted else [])

        self.assert_same(bag, *tensors)

    def test_a_bag_with_an_index_out_of_range_is_an_error(self):
        weight, offsets = torch.ones(4, 3, device="xpud"), torch.tensor([0, 2], device="xpud")
        for indices in ([0, 4, 1], [0, 1, -1]):
            with self.assertRaisesRegex(IndexError, "out of range"):
                nn.functional.embedding_bag(torch.tensor(indices, device="xpud"), weight, offsets, mode="sum").cpu()
        with self.assertRaisesRegex(IndexError, "out of range"):
            nn.functional.embedding_bag(torch.tensor([0, 1], device="xpud"), weight, torch.tensor([0, 9], device="xpud"), mode="sum").cpu()

    def test_rows_are_renormalized(self):
        for dtype, norm in itertools.product(FLOATS, (1.0, 2.0, float("inf"))):
            self.assert_same(lambda w, i, n=norm: torch.embedding_renorm_(w, i, 1.0, n), numbers(6, 4, dtype=dtype), torch.tensor([[1, 1], [3, 0]]))

    def test_segments(self):
        cases = (((6, 3), [2, 0, 3, 1], 0), ((2, 6, 3), [[2, 0, 4], [1, 5, 0]], 1), ((5,), [5], 0))
        for dtype, reduce, initial in itertools.product(FLOATS, ("sum", "mean", "max", "min", "prod"), (None, 2)):
            for shape, lengths, axis in cases:
                with self.subTest(dtype=dtype, reduce=reduce, initial=initial, shape=shape):
                    self.assert_same(lambda x, n, r=reduce, i=initial, a=axis: self.segments(x, r, a, i, lengths=n), numbers(*shape, dtype=dtype), torch.tensor(lengths))
        self.assert_same(lambda x, n: self.segments(x, "max", 0, None, offsets=n), numbers(6, 3), torch.tensor([0, 2, 2, 6]))
        with_zeros = torch.tensor([0.0, 2, 3, 0, 0, 5, 4])
        self.assert_same(lambda x, n: self.segments(x, "prod", 0, 3, lengths=n), with_zeros, torch.tensor([2, 3, 0, 2]))
        with self.assertRaisesRegex(RuntimeError, "sum to"):
            torch.segment_reduce(torch.ones(4, device="xpud"), "sum", lengths=torch.tensor([1, 2], device="xpud"))

    @staticmethod
    def segments(x, reduce, axis, initial, **bounds):
        x = x.detach().requires_grad_()
        out = torch.segment_reduce(x, reduce, axis=axis, initial=initial, **bounds)
        out.backward((torch.arange(out.numel(), device=out.device).view(out.shape) - 2).to(out.dtype) / 4)
        return out.detach(), x.grad


if __name__ == "__main__":
    unittest.main()
