"""Scaled dot product attention in training: gradients, dropout and memory, beside PyTorch's math path on the CPU."""

import itertools
import unittest

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4, torch.bfloat16: 4e-2, torch.float16: 6e-3}
FUSED = "_scaled_dot_product_fused_attention_overrideable"


def inputs(batch, heads, key_heads, queries, keys, depth, value_depth, dtype=torch.float32):
    return (torch.randn(batch, heads, queries, depth, dtype=dtype), torch.randn(batch, key_heads, keys, depth, dtype=dtype),
            torch.randn(batch, key_heads, keys, value_depth, dtype=dtype))  # fmt: skip


def gradients(tensors, gradient, **kwargs):
    """Returns the result of attention and the gradients of its inputs, on the CPU."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    out = F.scaled_dot_product_attention(*leaves, **kwargs)
    out.backward(gradient)
    return [each.cpu() for each in (out.detach(), *(leaf.grad for leaf in leaves))]


def operators_of(run):
    """Returns the names of the operators that `run` executes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    return {event.name.removeprefix("aten::") for event in profile.events()}


class Attention(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def check(self, tensors, there=None, **kwargs):
        """Compares with the CPU's math path in f64. `there` are the inputs on the device, if their layout differs."""
        dtype = tensors[0].dtype
        gradient = torch.randn(*tensors[0].shape[:3], tensors[2].shape[3], dtype=dtype)
        exact = {name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for name, value in kwargs.items()}
        with sdpa_kernel(SDPBackend.MATH):
            expected = gradients([tensor.double() for tensor in tensors], gradient.double(), **exact)
        moved = {name: value.to("xpud") if isinstance(value, torch.Tensor) else value for name, value in kwargs.items()}
        actual = gradients(there or [tensor.to("xpud") for tensor in tensors], gradient.to("xpud"), **moved)
        for name, got, wanted in zip(("out", "query", "key", "value"), actual, expected):
            self.assertEqual(got.dtype, dtype)
            bound = TOLERANCE[dtype] * (1 + wanted.abs().max().item())
            self.assertLessEqual((got.double() - wanted).abs().max().item(), bound, name)

    def test_gradients_of_every_type_and_size(self):
        sizes = ((2, 3, 3, 7, 9, 16, 16), (1, 4, 2, 70, 33, 20, 8), (1, 2, 1, 130, 300, 64, 64), (1, 1, 1, 1, 5, 1, 3), (1, 6, 2, 65, 128, 32, 48))
        for dtype, shape, causal in itertools.product(TOLERANCE, sizes, (False, True)):
            with self.subTest(dtype=dtype, shape=shape, causal=causal):
                self.check(inputs(*shape, dtype), is_causal=causal, enable_gqa=shape[1] != shape[2])

    def test_masks(self):
        tensors = inputs(2, 4, 4, 9, 12, 16, 16)
        for shape in ((2, 4, 9, 12), (9, 12), (2, 1, 1, 12), (1, 4, 9, 1)):
            with self.subTest(shape=shape):
                self.check(tensors, attn_mask=torch.randn(shape))
                mask = torch.rand(shape) > 0.3
                mask[..., 0] = True
                self.check(tensors, attn_mask=mask, scale=0.7)

    def test_a_query_that_may_attend_to_nothing_gives_zeros(self):
        tensors = [tensor.to("xpud") for tensor in inputs(1, 2, 2, 5, 6, 8, 8)]
        mask = torch.ones(5, 6, dtype=torch.bool)
        mask[3] = False
        out, query, key, value = gradients(tensors, torch.randn(1, 2, 5, 8).to("xpud"), attn_mask=mask.to("xpud"))
        self.assertTrue((query[:, :, 3] == 0).all() and (out[:, :, 3] == 0).all())
        for each in (query, key, value):
            self.assertTrue(each.isfinite().all())

    def test_a_query_masked_everywhere_by_the_lowest_number_attends_to_all(self):
        for dtype, queries in itertools.product((torch.float64, torch.float32, torch.bfloat16), (3, 70)):
            with self.subTest(dtype=dtype, queries=queries):
                tensors = inputs(1, 2, 2, queries, 9, 16, 16, dtype)
                mask = torch.zeros(queries, 9, dtype=dtype)
                mask[1] = mask[2, 4:] = torch.finfo(dtype).min
                with sdpa_kernel(SDPBackend.MATH):
                    expected = F.scaled_dot_product_attention(*tensors, attn_mask=mask)
                actual = F.scaled_dot_product_attention(*(tensor.to("xpud") for tensor in tensors), attn_mask=mask.to("xpud"))
                torch.testing.assert_close(actual.cpu(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])

    def test_layouts(self):
        query, key, value = inputs(2, 3, 3, 10, 11, 16, 16)
        shared = torch.randn(2, 10, 3, 48).to("xpud")
        layouts = {
            "heads inside": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), "transposed": lambda x: x.mT.contiguous().mT,
            "every second": lambda x: torch.stack((x, x), -1).flatten(-2)[..., ::2], "a part": lambda x: torch.cat((x, x), -1)[..., :16],
        }  # fmt: skip
        for name, layout in layouts.items():
            with self.subTest(layout=name):
                self.check((query, key, value), there=[layout(each.to("xpud")) for each in (query, key, value)])
        with self.subTest("one tensor"):
            parts = [part.transpose(1, 2) for part in shared.chunk(3, -1)]
            self.check([part.cpu() for part in parts], there=parts)
        with self.subTest("expanded"):
            one = key[:, :1].to("xpud")
            there = [query.to("xpud"), one.expand(2, 3, 11, 16), value.to("xpud")]
            self.check((query, key[:, :1].expand(2, 3, 11, 16).contiguous(), value), there=there)

    def test_gradients_have_the_layouts_of_their_inputs(self):
        leaves = [each.transpose(1, 2).contiguous().transpose(1, 2).to("xpud").requires_grad_() for each in inputs(2, 3, 3, 10, 11, 16, 16)]
        F.scaled_dot_product_attention(*leaves).sum().backward()
        for leaf in leaves:
            self.assertEqual(leaf.grad.stride(), leaf.stride())

    def test_numerical_gradients(self):
        query, key, value = (each.to("xpud").requires_grad_() for each in inputs(1, 2, 1, 4, 5, 3, 2, torch.float64))

        def attend(query, key, value, **kwargs):
            torch.manual_seed(7)
            return F.scaled_dot_product_attention(query, key, value, enable_gqa=True, **kwargs)

        for kwargs in ({}, {"is_causal": True}, {"attn_mask": torch.randn(4, 5, dtype=torch.float64).to("xpud")}, {"dropout_p": 0.4},
                       {"dropout_p": 0.4, "is_causal": True}):  # fmt: skip
            with self.subTest(kwargs=kwargs.keys()):
                self.assertTrue(torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, **kwargs), (query, key, value)))  # noqa: B023

    def test_training_uses_the_fused_operator(self):
        for kwargs in ({}, {"dropout_p": 0.2}, {"is_causal": True, "dropout_p": 0.2}):
            for dtype in (torch.float32, torch.float64):
                leaves = [each.to("xpud").requires_grad_() for each in inputs(1, 2, 2, 6, 6, 8, 8, dtype)]
                ran = operators_of(lambda: F.scaled_dot_product_attention(*leaves, **kwargs).sum().backward())  # noqa: B023
                self.assertLessEqual({FUSED, FUSED + "_backward"}, ran, kwargs)

    def test_a_mask_that_needs_a_gradient_gets_it(self):
        tensors, mask = inputs(1, 2, 2, 4, 5, 8, 8), torch.randn(4, 5)
        masks = mask.clone().requires_grad_(), mask.to("xpud").requires_grad_()
        F.scaled_dot_product_attention(*tensors, attn_mask=masks[0]).square().sum().backward()
        F.scaled_dot_product_attention(*(each.to("xpud") for each in tensors), attn_mask=masks[1]).square().sum().backward()
        torch.testing.assert_close(masks[1].grad.cpu(), masks[0].grad, atol=1e-4, rtol=1e-4)

    def test_second_derivatives_are_those_of_the_composition(self):
        attend = F.scaled_dot_product_attention
        for name, options in {"plain": {}, "causal": {"is_causal": True}, "scaled": {"scale": 0.3}, "mask": {}, "groups": {"enable_gqa": True}}.items():
            torch.manual_seed(1)
            heads = 2 if name == "groups" else 4
            tensors = [torch.randn(1, each, 3, 4, dtype=torch.float64, device="xpud", requires_grad=True) for each in (4, heads, heads)]
            if name == "mask":
                tensors.append(torch.randn(3, 3, dtype=torch.float64, device="xpud", requires_grad=True))
            with self.subTest(name):
                self.assertTrue(torch.autograd.gradgradcheck(lambda *given, options=options: attend(*given, **options), tensors))

    def test_second_derivatives_with_dropout_are_refused(self):
        x = torch.randn(1, 2, 3, 4, device="xpud", requires_grad=True)
        gradient, = torch.autograd.grad(F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).square().sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "derivative for .* is not implemented"):
            gradient.sum().backward()


class Dropout(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def weights(self, queries, keys, p, dtype=torch.float32):
        """The weights of attention after dropout: values are the rows of the identity. Without it, each is 1 / keys."""
        query, key = torch.zeros(2, 3, queries, 8, dtype=dtype, device="xpud"), torch.zeros(2, 3, keys, 8, dtype=dtype, device="xpud")
        value = torch.eye(keys, dtype=dtype, device="xpud").expand(2, 3, keys, keys)
        return F.scaled_dot_product_attention(query, key, value, dropout_p=p)

    def test_the_share_that_is_dropped(self):
        for dtype, p in itertools.product((torch.float32, torch.float64, torch.bfloat16), (0.1, 0.5, 0.75)):
            with self.subTest(dtype=dtype, p=p):
                weights = self.weights(200, 128, p, dtype).cpu()
                self.assertAlmostEqual((weights == 0).double().mean().item(), p, delta=0.005)
                torch.testing.assert_close(weights[weights != 0].mean().item(), 1 / 128 / (1 - p), rtol=1e-2, atol=0)
        self.assertEqual(self.weights(5, 4, 1.0).abs().sum().item(), 0)

    def test_calls_differ_and_a_seed_repeats_them(self):
        first, second = self.weights(20, 30, 0.5), self.weights(20, 30, 0.5)
        self.assertFalse(torch.equal(first, second))
        torch.manual_seed(0)
        self.assertTrue(torch.equal(self.weights(20, 30, 0.5), first))

    def test_backward_drops_what_forward_dropped(self):
        for dtype in (torch.float32, torch.bfloat16):
            query, key, value = (each.to("xpud").requires_grad_() for each in inputs(2, 2, 2, 9, 14, 8, 14, dtype))
            torch.manual_seed(3)
            out = F.scaled_dot_product_attention(query, key, value, dropout_p=0.3)
            gradient = torch.randn(out.shape, dtype=dtype)
            out.backward(gradient.to("xpud"))
            torch.manual_seed(3)
            identity = torch.eye(14, dtype=torch.float32, device="xpud").expand(2, 2, 14, 14)
            kept = F.scaled_dot_product_attention(query.float(), key.float(), identity, dropout_p=0.3).detach().cpu().double() != 0
            leaves = [each.detach().cpu().double().requires_grad_() for each in (query, key, value)]
            weights = torch.softmax(leaves[0] @ leaves[1].mT / 8**0.5, -1) * kept / 0.7
            (weights @ leaves[2]).backward(gradient.double())
            for mine, leaf in zip((query, key, value), leaves):
                torch.testing.assert_close(mine.grad.cpu().double(), leaf.grad, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])

    def test_checkpoints_compute_the_same(self):
        results = []
        for wrap in (lambda run, *args: run(*args), lambda run, *args: checkpoint(run, *args, use_reentrant=False),
                     lambda run, *args: checkpoint(run, *args, use_reentrant=True)):  # fmt: skip
            torch.manual_seed(5)
            leaves = [each.to("xpud").requires_grad_() for each in inputs(1, 2, 2, 8, 8, 16, 16)]
            out = wrap(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5), *leaves)
            out.square().sum().backward()
            results.append([out.detach(), *(leaf.grad for leaf in leaves)])
        for other in results[1:]:
            for one, two in zip(results[0], other):
                self.assertTrue(torch.equal(one, two))

    def test_compiled(self):
        def attend(query, key, value):
            return F.scaled_dot_product_attention(query, key, value, dropout_p=0.5)

        leaves = [each.to("xpud").requires_grad_() for each in inputs(1, 2, 2, 40, 40, 16, 16)]
        out = torch.compile(attend, fullgraph=True)(*leaves)
        gradient = torch.randn(out.shape).to("xpud")
        out.backward(gradient)
        # The gradient of value is linear in the weights that forward used: sum(out gradient) = sum(value dvalue).
        torch.testing.assert_close((leaves[2] * leaves[2].grad).sum(), (out * gradient).sum(), rtol=1e-3, atol=1e-2)

    def test_a_module_trains(self):
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.2, batch_first=True).to("xpud")
        x = torch.randn(3, 5, 32).to("xpud").requires_grad_()
        before = torch.xpud.fallback_counts()
        layer(x).square().sum().backward()
        self.assertTrue(x.grad.isfinite().all())
        self.assertEqual(torch.xpud.fallback_counts(), before)

    def test_a_wrong_probability_is_refused(self):
        tensors = [each.to("xpud") for each in inputs(1, 1, 1, 3, 3, 4, 4)]
        for p in (-0.1, 1.5):
            with self.assertRaisesRegex(RuntimeError, "dropout probability has to be between 0 and 1"):
                F.scaled_dot_product_attention(*tensors, dropout_p=p)


class Cost(unittest.TestCase):
    def test_memory_is_linear_in_the_length(self):
        peaks = {}
        for length in (1024, 4096):
            leaves = [torch.randn(1, 2, length, 32, device="xpud", requires_grad=True) for _ in range(3)]
            torch.xpud.synchronize()
            torch.xpud.reset_peak_memory_stats()
            before = torch.xpud.memory_allocated()
            F.scaled_dot_product_attention(*leaves, is_causal=True, dropout_p=0.1).sum().backward()
            torch.xpud.synchronize()
            peaks[length] = torch.xpud.max_memory_allocated() - before
        self.assertLess(peaks[4096], 4.5 * peaks[1024])
        self.assertLess(peaks[4096], 2 * 4096 * 4096 * 4 / 8, "less than an eighth of the scores")

    def test_results_repeat_bit_for_bit(self):
        torch.manual_seed(0)
        tensors = [each.to("xpud") for each in inputs(2, 4, 2, 300, 700, 64, 64)]
        gradient = torch.randn(2, 4, 300, 64).to("xpud")
        first, second = (gradients(tensors, gradient, enable_gqa=True) for _ in range(2))
        for one, two in zip(first, second):
            self.assertTrue(torch.equal(one, two))


if __name__ == "__main__":
    unittest.main()
