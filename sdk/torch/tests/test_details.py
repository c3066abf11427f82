"""Details that programs depend on: errors and their texts, warnings, deterministic mode, storages that are copied on write, transforms.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_details.py
"""

import functools
import itertools
import math
import pickle
import unittest
import warnings

import torch
import torch.nn.functional as F
import torch_xpud  # noqa: F401  also without the entry point


def f(device, *sizes):
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes).to(device)


def i(device, *values):
    return torch.tensor(values, device=device)


# Calls that fail on the CPU. The device raises the same exception with the same first line.
WRONG = {
    "dot of two sizes": lambda d: torch.dot(f(d, 3), f(d, 4)),
    "dot of a matrix": lambda d: torch.dot(f(d, 3, 1), f(d, 3)),
    "dot of two dtypes": lambda d: torch.dot(f(d, 3), f(d, 3).double()),
    "mm of two sizes": lambda d: torch.mm(f(d, 2, 3), f(d, 2, 3)),
    "mm of a vector": lambda d: torch.mm(f(d, 2), f(d, 2, 3)),
    "mm of two dtypes": lambda d: torch.mm(f(d, 2, 3), f(d, 3, 2).half()),
    "matmul of a scalar": lambda d: f(d, 3) @ f(d, 1)[0],
    "mv of two sizes": lambda d: torch.mv(f(d, 2, 3), f(d, 2)),
    "addmv of two sizes": lambda d: torch.addmv(f(d, 5), f(d, 2, 3), f(d, 3)),
    "bmm of two batches": lambda d: torch.bmm(f(d, 2, 3, 4), f(d, 3, 4, 2)),
    "addmm with a wrong addend": lambda d: torch.addmm(f(d, 5), f(d, 2, 3), f(d, 3, 4)),
    "addmm of two dtypes": lambda d: torch.addmm(f(d, 4).double(), f(d, 2, 3), f(d, 3, 4)),
    "baddbmm with a wrong addend": lambda d: torch.baddbmm(f(d, 5), f(d, 2, 3, 4), f(d, 2, 4, 2)),
    "linear of two sizes": lambda d: F.linear(f(d, 2, 3), f(d, 4, 2)),
    "linear with too short a bias": lambda d: F.linear(f(d, 2, 3), f(d, 4, 3), f(d, 3)),
    "linear with too long a bias": lambda d: F.linear(f(d, 2, 3), f(d, 4, 3), f(d, 5)),
    "layer_norm of another shape": lambda d: F.layer_norm(f(d, 2, 3), (4,)),
    "layer_norm with too short a weight": lambda d: F.layer_norm(f(d, 2, 3), (3,), f(d, 2)),
    "layer_norm with too long a weight": lambda d: F.layer_norm(f(d, 2, 3), (3,), f(d, 4)),
    "layer_norm with a wrong bias": lambda d: F.layer_norm(f(d, 2, 3), (3,), None, f(d, 4)),
    "cat of two sizes": lambda d: torch.cat([f(d, 2, 3), f(d, 3, 4)]),
    "cat of nothing": lambda d: torch.cat([]),
    "stack of two sizes": lambda d: torch.stack([f(d, 2, 3), f(d, 3, 2)]),
    "copy_ from more elements": lambda d: f(d, 3).copy_(f(d, 4)),
    "copy_ from fewer elements": lambda d: f(d, 4).copy_(f(d, 3)),
    "copy_ from a higher rank": lambda d: f(d, 3).copy_(f(d, 2, 3)),
    "copy_ from a row": lambda d: f(d, 3).copy_(f(d, 1, 3)),
    "copy_ from the CPU, of more elements": lambda d: f(d, 3).copy_(f("cpu", 4)),
    "copy_ to nothing": lambda d: f(d, 0).copy_(f(d, 3)),
    "copy_ of overlapping elements": lambda d: (lambda x: x[1:].copy_(x[:-1]))(f(d, 4)),
    "copy_ of its own transpose": lambda d: (lambda x: x.copy_(x.t()))(f(d, 3, 3)),
    "in-place on expanded elements": lambda d: f(d, 1).expand(3).add_(1),
    "in-place on overlapping elements": lambda d: (lambda x: x[1:].add_(x[:-1]))(f(d, 4)),
    "in-place on a leaf": lambda d: f(d, 3).requires_grad_().mul_(1) if d == "xpud" else torch.ones(3).requires_grad_().mul_(1),
    "in-place, of another dtype": lambda d: i(d, 1).add_(1.5),
    "in-place, of another shape": lambda d: f(d, 3).add_(f(d, 2, 3)),
    "two shapes": lambda d: f(d, 3) + f(d, 4),
    "subtraction of bools": lambda d: (f(d, 2) > 1) - (f(d, 2) > 1),
    "integers to a negative power": lambda d: i(d, 2) ** -1,
    "integers to a negative power, in-place": lambda d: i(d, 2).pow_(-2),
    "indices of two shapes": lambda d: f(d, 3, 4)[i(d, 0, 1), i(d, 0, 1, 2)],
    "too many indices": lambda d: f(d, 3)[i(d, 0), i(d, 0)],
    "a float as an index": lambda d: f(d, 3)[f(d, 2)],
    "a mask of another size": lambda d: f(d, 3)[f(d, 2) > 1],
    "a number out of range as an index": lambda d: f(d, 3)[5],
    "index_put_ of two dtypes": lambda d: f(d, 3).index_put_((i(d, 0, 1),), f(d, 2).double()),
    "index_put_ of another shape and dtype": lambda d: i(d, 0, 1, 2).index_put_((i(d, 0, 1),), f(d, 3)),
    "masked_fill_ of a part of its mask": lambda d: (lambda mask: mask[1:].masked_fill_(mask[:-1], False))(f(d, 4) > 2),
    "the number of an empty tensor": lambda d: torch.ops.aten._local_scalar_dense(f(d, 0)),
    "index_select by a matrix": lambda d: torch.index_select(f(d, 3, 4), 0, torch.zeros(2, 2, dtype=torch.long, device=d)),
    "gather of two ranks": lambda d: torch.gather(f(d, 3, 4), 0, i(d, 0, 1)),
    "gather of a larger index": lambda d: torch.gather(f(d, 3, 4), 0, torch.zeros(4, 5, dtype=torch.long, device=d)),
    "scatter of two dtypes": lambda d: torch.scatter(f(d, 3, 4), 1, torch.ones(3, 2, dtype=torch.long, device=d), f(d, 3, 2).double()),
    "item of many": lambda d: f(d, 3).item(),
    "item of nothing": lambda d: f(d, 0).item(),
    "bool of many": lambda d: bool(f(d, 3)),
    "cross_entropy of int32 classes": lambda d: F.cross_entropy(f(d, 2, 3), i(d, 0, 1).int()),
    "cross_entropy of two sizes": lambda d: F.cross_entropy(f(d, 2, 3), i(d, 0, 1, 2)),
    "nll_loss of one row and many classes": lambda d: F.nll_loss(f(d, 10), i(d, 0, 1, 2)),
    "attention of two dtypes": lambda d: F.scaled_dot_product_attention(f(d, 1, 1, 2, 4), f(d, 1, 1, 2, 4).double(), f(d, 1, 1, 2, 4)),
    "max of nothing": lambda d: f(d, 0).max(),
    "mean of integers": lambda d: i(d, 1, 2).mean(),
    "elu_ with a negative slope": lambda d: F.elu_(f(d, 2).requires_grad_().clone(), -2).sum().backward(),
    "leaky_relu_ with a negative slope": lambda d: F.leaky_relu_(f(d, 2).requires_grad_().clone(), -2).sum().backward(),
    "softshrink by a negative number": lambda d: F.softshrink(f(d, 2), -1.0),
    "softshrink by more than float16 holds": lambda d: F.softshrink(f(d, 2).half(), 65507.0),
    "tril of a vector": lambda d: torch.tril(f(d, 2)),
    "triu of a vector": lambda d: torch.triu(f(d, 2)),
    "histc of an empty range": lambda d: torch.histc(f(d, 2), min=3, max=1),
    "backward of many": lambda d: (f(d, 3).requires_grad_() * 2).backward(),
    "backward twice": lambda d: (lambda y: (y.backward(), y.backward()))((f(d, 3).requires_grad_() ** 2).sum()),
    "convolution of other channels": lambda d: F.conv2d(f(d, 1, 3, 4, 4), f(d, 2, 4, 3, 3)),
    "a view of another size": lambda d: f(d, 3, 4).view(5),
    "a view of a transpose": lambda d: f(d, 3, 4).t().view(12),
    "a singular system": lambda d: torch.linalg.solve(torch.zeros(2, 2, device=d), f(d, 2)),
}  # fmt: skip


def message(call, device):
    """Returns the exception's type and the first line of its text, with the device's name as the CPU's; nothing if none is raised."""
    try:
        call(device)
        torch.xpud.synchronize()
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0].replace("xpud:0", "cpu").replace("xpud", "cpu")
    return None


def warnings_of(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [(warning.category, str(warning.message).split(" (Triggered")[0]) for warning in caught]


class ErrorTest(unittest.TestCase):
    def test_errors_are_the_cpus(self):
        for name, call in WRONG.items():
            with self.subTest(name):
                expected = message(call, "cpu")
                self.assertIsNotNone(expected, "the CPU accepts it")
                self.assertEqual(message(call, "xpud"), expected)

    def test_an_addend_of_a_larger_storage_is_refused_too(self):
        """A command that read as many elements as it needs would find them."""
        bias = torch.ones(8, device="xpud")[:3]
        with self.assertRaisesRegex(RuntimeError, r"The expanded size of the tensor \(4\) must match the existing size \(3\)"):
            F.linear(f("xpud", 2, 3), f("xpud", 4, 3), bias)
        with self.assertRaisesRegex(RuntimeError, "Expected weight to be of same shape as normalized_shape"):
            F.layer_norm(f("xpud", 2, 4), (4,), bias)

    def test_an_addend_of_a_higher_rank_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, r"the number of sizes provided \(2\) must be greater or equal to the number of dimensions"):
            torch.addmm(f("xpud", 1, 2, 4), f("xpud", 2, 3), f("xpud", 3, 4))

    def test_causal_attention_with_a_mask_is_what_the_cpu_does(self):
        q, mask = f("cpu", 1, 1, 3, 4) / 10, f("cpu", 3, 3) / 10
        results = [F.scaled_dot_product_attention(*[q.to(d)] * 3, attn_mask=mask.to(d), is_causal=True).cpu() for d in ("cpu", "xpud")]
        torch.testing.assert_close(results[1], results[0])

    def test_out_of_memory(self):
        with self.assertRaisesRegex(torch.OutOfMemoryError, "Tried to allocate"):
            torch.empty(1 << 50, device="xpud")

    def test_indexing_across_devices_is_refused(self):
        values, index = f("cpu", 3), i("cpu", 0, 1)
        for wrong in (index.to("xpud"), index.to("xpud") > 0):
            with self.assertRaisesRegex(RuntimeError, r"indices should be either on cpu or on the same device as the indexed tensor \(cpu\)"):
                f("cpu", 2)[wrong]
        for accumulate in (False, True):
            with self.assertRaisesRegex(RuntimeError, "all tensors to be on the same device"):
                values.to("xpud").index_put_((index,), f("cpu", 2), accumulate=accumulate)
        self.assertEqual(values.to("xpud")[index].tolist(), [1, 2])
        self.assertEqual(values.to("xpud").index_put_((index,), torch.tensor(5.0)).tolist(), [5, 5, 3])

    def test_a_mask_may_fill_itself(self):
        mask = f("xpud", 4) > 2
        self.assertEqual(mask.masked_fill_(mask, False).tolist(), [False] * 4)

    def test_float8_is_filled_with_a_number(self):
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
            with self.subTest(dtype):
                self.assertEqual(torch.ones((), dtype=dtype, device="xpud").item(), 1)
                self.assertEqual(torch.full((3,), -2.5, dtype=dtype, device="xpud").float().tolist(), [-2.5] * 3)
                self.assertEqual(torch.zeros(2, dtype=dtype, device="xpud").fill_(i("xpud", 4)[0]).float().tolist(), [4, 4])

    def test_copies_that_are_allowed_still_work(self):
        x = f("xpud", 4)
        self.assertEqual(x.copy_(x).tolist(), [1, 2, 3, 4])
        self.assertEqual(x[2:].copy_(x[:2]).tolist(), [1, 2])
        self.assertEqual(f("xpud", 2, 3).copy_(f("xpud", 3)).tolist(), [[1, 2, 3]] * 2)
        self.assertEqual(f("xpud", 0).copy_(f("xpud", 1)).tolist(), [])
        self.assertEqual(f("cpu", 2, 3).copy_(f("xpud", 3)).tolist(), [[1, 2, 3]] * 2)


class SharedElementsTest(unittest.TestCase):
    def test_what_the_cpu_writes_is_written(self):
        calls = {
            "tril_": lambda x: x.tril_(),
            "triu_": lambda x: x.triu_(1),
            "index_put_": lambda x: x.index_put_((i(x.device, 0, 1),), torch.ones(2, 3, device=x.device), accumulate=True),
            "baddbmm_": lambda x: x[None].baddbmm_(torch.ones(1, 3, 3, device=x.device), torch.ones(1, 3, 3, device=x.device)),
            "masked_fill_": lambda x: x.masked_fill_(torch.ones(3, 3, dtype=torch.bool, device=x.device), 5),
        }
        for name, call in calls.items():
            with self.subTest(name):
                there, here = (torch.arange(1.0, 4, device=device)[None].expand(3, 3) for device in ("xpud", "cpu"))
                call(there)
                call(here)
                self.assertEqual(there.cpu().tolist(), here.tolist())
        for device in ("xpud", "cpu"):
            with self.assertRaisesRegex(RuntimeError, "more than one element"):
                torch.ones(3, device=device)[None].expand(3, 3).add_(1)


class WarningTest(unittest.TestCase):
    def test_deviation_of_one_number(self):
        for name in ("std", "var", "std_mean", "var_mean"):
            with self.subTest(name):
                torch.set_warn_always(True)
                self.addCleanup(torch.set_warn_always, False)
                expected = warnings_of(lambda: getattr(torch, name)(f("cpu", 1)))
                self.assertIn("degrees of freedom is <= 0", expected[0][1])
                self.assertEqual(warnings_of(lambda: getattr(torch, name)(f("xpud", 1))), expected)
                self.assertEqual(warnings_of(lambda: getattr(torch, name)(f("xpud", 2, 2), dim=0)), [])


    def test_writing_to_expanded_tensors(self):
        torch.set_warn_always(True)
        self.addCleanup(torch.set_warn_always, False)
        calls = {
            "index_fill_": lambda d: f(d, 1).expand(3).index_fill_(0, i(d, 2, 0), 4.0),
            "index_fill_ by a tensor": lambda d: f(d, 1).expand(3).index_fill_(0, i(d, 2, 0), f(d, 1)[0]),
            "index_put_": lambda d: f(d, 1).expand(3).index_put_((i(d, 2, 0),), f(d, 2)),
        }
        for name, call in calls.items():
            with self.subTest(name):
                expected = warnings_of(lambda: call("cpu"))
                self.assertIn("on expanded tensors is deprecated", expected[0][1])
                self.assertEqual(warnings_of(lambda: call("xpud")), expected)


class StridesTest(unittest.TestCase):
    def test_dimensions_of_one_element(self):
        """Their strides are open, and depend on whether a number takes part."""
        calls = {"number": lambda t: 2 * t, "same shape": lambda t: t + t, "comparison": lambda t: t > 0, "where": lambda t: torch.where(t > 0, t, 3), "pow": lambda t: t ** 2,
                 "clamp": lambda t: t.clamp(-1, 1), "nan_to_num": torch.nan_to_num, "remainder": lambda t: t % 2, "exp": torch.exp, "fill": lambda t: t.masked_fill(t > 0, 3)}
        views = (lambda t: t, lambda t: t[:, :, ::2], lambda t: t.permute(0, 2, 3, 1), lambda t: t[:1].expand(2, -1, -1, -1), lambda t: t[:, :1])
        for shape, layout, view in itertools.product(((2, 1, 4, 4), (2, 3, 1, 1), (2, 4, 1, 5), (1, 1, 1, 1)), (torch.contiguous_format, torch.channels_last), views):
            x = torch.randn(shape).contiguous(memory_format=layout)
            there, here = view(x.to("xpud")), view(x)
            self.assertEqual(there.stride(), here.stride())
            for name, call in calls.items():
                with self.subTest(name, shape=shape, strides=here.stride()):
                    self.assertEqual(call(there).stride(), call(here).stride())


class DeterministicTest(unittest.TestCase):
    def setUp(self):
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)

    def test_new_memory_is_filled(self):
        self.assertTrue(torch.utils.deterministic.fill_uninitialized_memory)
        for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.complex64):
            with self.subTest(dtype):
                x = torch.ones(2, 3, dtype=dtype, device="xpud")
                made = [torch.empty(3, dtype=dtype, device="xpud"), torch.empty_like(x), x.new_empty(3), torch.empty_permuted((2, 3), (1, 0), dtype=dtype, device="xpud"),
                        torch.empty_strided((3,), (2,), dtype=dtype, device="xpud"), torch.ones(1, dtype=dtype, device="xpud").resize_(4)[1:]]  # fmt: skip
                for new in made:
                    self.assertTrue(new.cpu().isnan().all())
        for dtype in (torch.int64, torch.uint8):
            self.assertTrue((torch.empty(3, dtype=dtype, device="xpud") == torch.iinfo(dtype).max).all())
        self.assertTrue(torch.empty(3, dtype=torch.bool, device="xpud").all())

    def test_resizing_keeps_what_was_there(self):
        self.assertEqual(f("xpud", 2).resize_(3)[:2].tolist(), [1, 2])

    def test_it_is_not_filled_if_that_is_switched_off(self):
        torch.utils.deterministic.fill_uninitialized_memory = False
        try:
            before = torch.full((1 << 10,), 3.0, device="xpud")
            del before
            self.assertFalse(torch.empty(1 << 10, device="xpud").isnan().any())
        finally:
            torch.utils.deterministic.fill_uninitialized_memory = True

    def test_the_first_result_has_the_bits_of_later_ones(self):
        """Without deterministic mode a weight is packed when it is used a second time, which may change the last bits."""
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            random = torch.Generator().manual_seed(1)

            def new(*sizes, random=random, dtype=dtype):
                return torch.randn(sizes, generator=random).to(dtype).to("xpud")

            calls = {}
            for m, k, n in ((1, 512, 768), (8, 768, 3072), (64, 768, 768), (300, 513, 257)):
                a, b, bias = new(m, k), new(k, n), new(n)
                weight = b.t().contiguous()
                calls[f"linear {m} {k} {n}"] = functools.partial(F.linear, a, weight, bias)
                calls[f"mm {m} {k} {n}"] = functools.partial(torch.mm, a, b)
                calls[f"addmm {m} {k} {n}"] = functools.partial(torch.addmm, bias, a, b)
            calls["baddbmm"] = functools.partial(torch.baddbmm, new(3, 8, 64), new(3, 8, 256), new(1, 256, 64).expand(3, 256, 64))
            calls["conv2d"] = functools.partial(F.conv2d, new(2, 16, 20, 20), new(32, 16, 3, 3), new(32))
            lstm = torch.nn.LSTM(128, 128).to("xpud", dtype).requires_grad_(False)
            inputs = new(4, 1, 128)
            calls["LSTM"] = lambda lstm=lstm, inputs=inputs: lstm(inputs)[0]
            for name, call in calls.items():
                with self.subTest(name, dtype=dtype):
                    first, *later = [call().cpu() for _ in range(4)]
                    for result in later:
                        self.assertTrue(torch.equal(result, first))

    def test_what_is_deterministic_here_raises_no_alert(self):
        x = f("xpud", 3)
        x.index_put_((i("xpud", 0, 0),), f("xpud", 2), accumulate=True)
        x.scatter_add_(0, i("xpud", 1, 1), f("xpud", 2))
        x.put_(i("xpud", 2), f("xpud", 1))
        self.assertEqual(x.tolist(), [4, 5, 1])


    def test_unpooling_raises_the_cpus_alert(self):
        calls = {
            "2d": lambda d: F.max_unpool2d(f(d, 1, 1, 2, 2), torch.zeros(1, 1, 2, 2, dtype=torch.long, device=d), 2),
            "3d": lambda d: F.max_unpool3d(f(d, 1, 1, 2, 2, 2), torch.zeros(1, 1, 2, 2, 2, dtype=torch.long, device=d), 2),
        }
        for name, call in calls.items():
            with self.subTest(name):
                expected = message(call, "cpu")
                self.assertIn("does not have a deterministic implementation", expected[1])
                self.assertEqual(message(call, "xpud"), expected)


class LazyCloneTest(unittest.TestCase):
    def test_writes_stay_apart(self):
        for clone in (torch._lazy_clone, torch.Tensor._lazy_clone):
            x = f("xpud", 3)
            y = clone(x)
            y.add_(1)
            x.mul_(10)
            self.assertEqual((x.tolist(), y.tolist()), ([10, 20, 30], [2, 3, 4]))

    def test_offset_and_strides_stay(self):
        for view in (lambda x: x[1:, ::2], lambda x: x.t(), lambda x: x[0:1].expand(3, 4), lambda x: x[1, 2], lambda x: x[:0]):
            got, expected = (torch._lazy_clone(view(f(device, 3, 4))) for device in ("xpud", "cpu"))
            self.assertEqual((got.stride(), got.storage_offset(), got.tolist()), (expected.stride(), expected.storage_offset(), expected.tolist()))

    def test_gradient(self):
        x = f("xpud", 3).requires_grad_()
        (torch._lazy_clone(x) * 2).sum().backward()
        self.assertEqual(x.grad.tolist(), [2, 2, 2])


class TransformTest(unittest.TestCase):
    def test_vmap_of_attention(self):
        def attend(x):
            return F.scaled_dot_product_attention(x, x, x, is_causal=True)

        x = torch.randn(3, 1, 2, 4, 8, generator=torch.Generator().manual_seed(0))
        expected = torch.stack([attend(each) for each in x])
        torch.testing.assert_close(torch.vmap(attend)(x.to("xpud")).cpu(), expected)
        gradient = torch.vmap(torch.func.grad(lambda each: attend(each).square().sum()))
        torch.testing.assert_close(gradient(x.to("xpud")).cpu(), gradient(x), rtol=1e-4, atol=1e-5)


class ForwardModeTest(unittest.TestCase):
    """Operators that the CPU composes, and that xpud computes with one kernel, are differentiated forwards too."""

    def same(self, function, *inputs):
        """Compares `function` of a model and inputs, on both devices."""
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
        results = [function(model.to(device), *(x.to(device) for x in inputs)) for device in ("cpu", "xpud")]
        torch.testing.assert_close(results[1].cpu(), results[0])

    def test_products_with_jacobians_and_second_derivatives_of_linear_layers(self):
        x, v = (torch.randn(5, 4, dtype=torch.float64) for _ in range(2))
        self.same(lambda model, x, v: torch.func.jvp(model, (x,), (v,))[1], x, v)
        self.same(lambda model, x: torch.func.jacfwd(model)(x), x[0])
        self.same(lambda model, x: torch.func.hessian(lambda x: model(x).square().sum())(x), x[0])
        self.same(lambda model, x: torch.func.vmap(torch.func.jacfwd(model))(x), x)

        def by_weights(model, x):
            weights = dict(model.named_parameters())
            tangents = {name: torch.ones_like(weight) for name, weight in weights.items()}
            return torch.func.jvp(lambda weights: torch.func.functional_call(model, weights, (x,)), (weights,), (tangents,))[1]

        self.same(by_weights, x)

    def test_dual_numbers(self):
        def tangent(model, x, v):
            with torch.autograd.forward_ad.dual_level():
                y = model(torch.autograd.forward_ad.make_dual(x, v)).sum()
                return torch.autograd.forward_ad.unpack_dual(y).tangent

        self.same(tangent, *(torch.randn(5, 4, dtype=torch.float64) for _ in range(2)))

    def test_gradients_of_gradients_of_linear_layers(self):
        layer = torch.nn.Linear(3, 2, dtype=torch.float64, device="xpud")
        x = torch.randn(4, 3, dtype=torch.float64, device="xpud", requires_grad=True)
        self.assertTrue(torch.autograd.gradgradcheck(layer, (x,)))


class BatchedGradientsTest(unittest.TestCase):
    def test_of_recurrent_layers(self):
        for make in (torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN):
            torch.manual_seed(1)
            layer = make(5, 7, dtype=torch.float64, device="xpud")
            x = torch.randn(2, 4, 5, dtype=torch.float64, device="xpud", requires_grad=True)
            y = layer(x)[0]
            gradients = torch.randn(3, *y.shape, dtype=torch.float64, device="xpud")
            together, = torch.autograd.grad(y, x, gradients, retain_graph=True, is_grads_batched=True)
            each = [torch.autograd.grad(y, x, gradient, retain_graph=True)[0] for gradient in gradients]
            torch.testing.assert_close(together, torch.stack(each))
            self.assertFalse(together.requires_grad)


class ResultsTest(unittest.TestCase):
    def test_a_result_that_is_resized_gets_the_memory_format_that_the_cpu_gives_it(self):
        x = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
        operations = {
            "cat": lambda x, out: torch.cat([x, x], out=out),
            "cat of two formats": lambda x, out: torch.cat([x, x.contiguous()], out=out),
            "add": lambda x, out: torch.add(x, x, out=out),
            "exp": lambda x, out: torch.exp(x, out=out),
            "sum": lambda x, out: torch.sum(x, 1, keepdim=True, out=out),
            "cumsum": lambda x, out: torch.cumsum(x, 1, out=out),
            "tril": lambda x, out: torch.tril(x, out=out),
            "avg_pool2d": lambda x, out: torch._C._nn.avg_pool2d(x, 2, out=out),
        }
        for name, operation in operations.items():
            with self.subTest(name):
                got, expected = operation(x.to("xpud"), torch.empty(0, device="xpud")), operation(x, torch.empty(0))
                self.assertEqual((got.shape, got.stride()), (expected.shape, expected.stride()))
                torch.testing.assert_close(got.cpu(), expected)

    def test_a_dimension_that_is_given_twice_is_refused(self):
        x = torch.ones(2, 3, device="xpud")
        for function in (torch.std, torch.var, torch.std_mean, torch.var_mean, torch.sum):
            with self.subTest(function), self.assertRaisesRegex(RuntimeError, "dim 0 appears multiple times in the list of dims"):
                function(x, dim=(0, -2))

    def test_arange_says_that_it_resizes_its_result(self):
        with self.assertWarnsRegex(UserWarning, r"out tensor of shape \[5\] is 5 which does not match the computed number of elements 3"):
            torch.arange(0, 3, out=torch.empty(5, device="xpud"))


class RangesOfRandomNumbersTest(unittest.TestCase):
    def test_random_of_all_64_bit_integers(self):
        x = torch.empty(2000, dtype=torch.int64, device="xpud").random_(torch.iinfo(torch.int64).min, None).double()
        self.assertLess(x.min().item(), -8e18)
        self.assertGreater(x.max().item(), 8e18)

    def test_uniform_refuses_what_the_cpu_refuses(self):
        for dtype in (torch.float16, torch.float32, torch.float64):
            most = torch.finfo(dtype).max
            for low, high in ((-most, most), (5, 1), (-2 * most, 0), (0, 2 * most)):
                with self.subTest(dtype=dtype, low=low):
                    texts = []
                    for device in ("cpu", "xpud"):
                        with self.assertRaises(RuntimeError) as refused:
                            torch.empty(5, device=device, dtype=dtype).uniform_(low, high)
                        texts.append(str(refused.exception).splitlines()[0])
                    self.assertEqual(*texts)


class SpecialFunctionsTest(unittest.TestCase):
    def test_bessel_and_airy_functions_of_infinity_are_nan_as_pytorch_has_it(self):
        x = torch.tensor([math.inf, -math.inf, math.nan])
        for function in (torch.i0, torch.special.i1, torch.special.modified_bessel_i0, torch.special.modified_bessel_i1, torch.special.airy_ai):
            for dtype in (torch.float32, torch.float64):
                with self.subTest(function, dtype=dtype):
                    torch.testing.assert_close(function(x.to("xpud", dtype)).cpu()[:1], function(x.to(dtype))[:1], equal_nan=True)

    def test_frexp_wants_results_of_the_right_types(self):
        x = torch.tensor([1.5, -6.0], device="xpud")
        mantissa, exponent = torch.empty(0, device="xpud"), torch.empty(0, dtype=torch.int32, device="xpud")
        torch.frexp(x, out=(mantissa, exponent))
        self.assertEqual((mantissa.tolist(), exponent.tolist()), ([0.75, -0.75], [1, 3]))
        with self.assertRaisesRegex(RuntimeError, r"torch\.frexp\(\) expects mantissa to have dtype float but got double"):
            torch.frexp(x, out=(mantissa.double(), exponent))
        with self.assertRaisesRegex(RuntimeError, r"torch\.frexp\(\) expects exponent to have int dtype but got long"):
            torch.frexp(x, out=(mantissa, exponent.long()))


class FactorsTest(unittest.TestCase):
    def test_products_with_a_factor_of_zero_do_not_read_their_operands(self):
        bad, ones = torch.full((3, 3), torch.nan, device="xpud"), torch.ones(3, 3, device="xpud")
        for beta, expected in ((1, ones), (2, 2 * ones), (0, 0 * ones)):
            addend = ones if beta else bad  # which is not read, either
            self.assertTrue(torch.equal(torch.addmm(addend, bad, ones, beta=beta, alpha=0), expected))
            self.assertTrue(torch.equal(torch.baddbmm(addend[None], ones[None], bad[None], beta=beta, alpha=0)[0], expected))
            self.assertTrue(torch.equal(torch.addmv(addend[0], bad, ones[0], beta=beta, alpha=0), expected[0]))
            self.assertTrue(torch.equal(torch.addbmm(addend, bad[None], ones[None], beta=beta, alpha=0), expected))
            self.assertTrue(torch.equal(addend.clone().addmm_(bad, ones, beta=beta, alpha=0), expected))
        self.assertTrue(torch.addmm(ones, bad, ones, alpha=1).isnan().all())


# Functions whose result for -0 is -0, or would be another infinity.
SIGNED = {name: getattr(torch, name) for name in ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "expm1", "log1p", "sqrt", "relu", "ceil", "floor",
                                                  "round", "trunc", "frac", "neg", "abs", "sign", "reciprocal", "erf", "deg2rad", "positive", "rsqrt")}
SIGNED |= {
    "relu in place": lambda x: x.clone().relu_(),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "clamp": lambda x: x.clamp(0, 1),
    "clamp from above": lambda x: x.clamp(max=0),
    "clamp from below": lambda x: x.clamp(min=0),
    "leaky_relu": F.leaky_relu,
}


class SpecialValuesTest(unittest.TestCase):
    def test_zeros_keep_their_sign(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            for count in (1, 64):  # one element, and a vectorised loop
                zeros = torch.tensor([-0.0, 0.0], dtype=dtype).repeat_interleave(count)
                for name, function in SIGNED.items():
                    with self.subTest(name, dtype=dtype, count=count):
                        got, wanted = function(zeros.to("xpud")).cpu(), function(zeros)
                        self.assertEqual(got.tolist(), wanted.tolist())
                        self.assertEqual(got.signbit().tolist(), wanted.signbit().tolist())

    def test_bounds_and_nan(self):
        nan, inf = math.nan, math.inf
        x = torch.tensor([nan, inf, -inf, 1e-40, -1e-40, 2.0, -2.0])
        for function in (torch.relu, F.relu6, lambda x: x.clamp(-1, 1), lambda x: x.clamp(min=nan), lambda x: x.clamp(max=nan), lambda x: x.clamp(1, -1),
                         lambda x: x.clamp(torch.full_like(x, nan), torch.ones_like(x)), torch.sin, torch.tan):
            torch.testing.assert_close(function(x.to("xpud")).cpu(), function(x), equal_nan=True)

    def test_powers_that_are_roots(self):
        x = torch.tensor([-0.0, 0.0, -math.inf, math.inf, -1.0, 4.0])
        for exponent, dtype in itertools.product((0.5, -0.5), (torch.float32, torch.float64, torch.float16)):
            with self.subTest(exponent=exponent, dtype=dtype):
                got, wanted = (x.to(device, dtype).pow(exponent).cpu() for device in ("xpud", "cpu"))
                torch.testing.assert_close(got, wanted, equal_nan=True)
                self.assertEqual(got.nan_to_num().signbit().tolist(), wanted.nan_to_num().signbit().tolist())

    def test_kaiser_window(self):
        for length, options in ((0, {}), (1, {}), (2, {}), (5, {}), (64, {"periodic": False}), (33, {"periodic": True, "beta": 3.0}), (9, {"dtype": torch.float64}), (7, {"dtype": torch.bfloat16})):
            with self.subTest(length=length, **options):
                torch.testing.assert_close(torch.kaiser_window(length, device="xpud", **options).cpu(), torch.kaiser_window(length, **options))


# Indices out of range, for which PyTorch's CPU raises IndexError or RuntimeError.
OUTSIDE = {
    "gather": lambda d: f(d, 3, 4).gather(0, i(d, [5, 0, 0, 0])),
    "gather's gradient": lambda d: f(d, 3, 4).requires_grad_().gather(0, i(d, [-1, 0, 0, 0])).sum().backward(),
    "scatter": lambda d: f(d, 3, 4).scatter(0, i(d, [5, 0, 0, 0]), f(d, 3, 4)),
    "scatter of a number": lambda d: f(d, 3, 4).scatter_(1, i(d, [4, 0, 0, 0]), 2.0),
    "scatter_add": lambda d: f(d, 3, 4).scatter_add(0, i(d, [5, 0, 0, 0]), f(d, 3, 4)),
    "scatter_reduce": lambda d: f(d, 3, 4).scatter_reduce(0, i(d, [5, 0, 0, 0]), f(d, 3, 4), "amax"),
    "scatter into nothing": lambda d: f(d, 2, 0).scatter(1, i(d, [0], [0]), 1.0),
    "gather from nothing": lambda d: f(d, 2, 0).gather(1, i(d, [0], [0])),
    "index_select": lambda d: f(d, 3, 4).index_select(0, i(d, 5)),
    "index_select of columns": lambda d: f(d, 3, 4).index_select(1, i(d, 5)),
    "index_add": lambda d: f(d, 3, 4).index_add(0, i(d, 5), f(d, 1, 4)),
    "index_copy": lambda d: f(d, 3, 4).index_copy(0, i(d, 5), f(d, 1, 4)),
    "index_fill": lambda d: f(d, 3, 4).index_fill(0, i(d, 5), 2.0),
    "index_reduce": lambda d: f(d, 3, 4).index_reduce(0, i(d, 5), f(d, 1, 4), "prod"),
    "indexing": lambda d: f(d, 3, 4)[i(d, 5)],
    "assignment": lambda d: f(d, 3, 4).index_put((i(d, 5),), torch.tensor(1.0, device=d)),
    "take": lambda d: f(d, 3, 4).take(i(d, 50)),
    "put": lambda d: f(d, 3, 4).put(i(d, 50), f(d, 1)),
    "embedding": lambda d: F.embedding(i(d, 5), f(d, 3, 4)),
    "embedding_bag": lambda d: F.embedding_bag(i(d, [5]), f(d, 3, 4)),
    "one_hot": lambda d: F.one_hot(i(d, 5), 3),
    "one_hot of a negative number": lambda d: F.one_hot(i(d, -1)),
    "nll_loss": lambda d: F.nll_loss(f(d, 3, 4), i(d, 0, 1, 9)),
    "cross_entropy": lambda d: F.cross_entropy(f(d, 3, 4), i(d, 0, 1, -1)),
    "multi_margin_loss": lambda d: F.multi_margin_loss(f(d, 3, 4), i(d, 0, 1, 9)),
    "max_unpool2d": lambda d: F.max_unpool2d(f(d, 1, 1, 2, 2), torch.full((1, 1, 2, 2), 99, device=d), 2),
}


class OutsideTest(unittest.TestCase):
    def test_handlers_for_the_cpus_exception_catch_the_devices(self):
        for name, operation in OUTSIDE.items():
            with self.subTest(name):
                with self.assertRaises((IndexError, RuntimeError)) as cpu:
                    operation("cpu")
                with self.assertRaises(type(cpu.exception)) as xpud:
                    operation("xpud")
                    torch.xpud.synchronize()
                self.assertIn("out of range", str(xpud.exception))

    def test_the_exception_has_a_name(self):
        with self.assertRaises(torch.xpud.InvalidIndexError) as raised:
            f("xpud", 3)[i("xpud", 5)].cpu()
        self.assertTrue(issubclass(torch.xpud.InvalidIndexError, IndexError) and issubclass(torch.xpud.InvalidIndexError, RuntimeError))
        self.assertEqual(str(pickle.loads(pickle.dumps(raised.exception))), str(raised.exception))


if __name__ == "__main__":
    unittest.main()
