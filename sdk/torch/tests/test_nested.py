"""Nested tensors of both layouts.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_nested.py
"""

import copy
import unittest

import torch
import torch.nn.functional as F
import torch_xpud  # noqa: F401  also without the entry point
from test_layers import LayerTest, hidden_after
from torch import nn


def cpu_of(value):
    """Returns the value on the CPU, with nested tensors as lists of their parts."""
    if isinstance(value, torch.Tensor):
        return [part.detach().cpu() for part in value.unbind()] if value.is_nested else value.detach().cpu()
    return [cpu_of(each) for each in value] if isinstance(value, (tuple, list)) else value


class NestedTest(LayerTest):
    layout = None

    def setUp(self):
        super().setUp()
        self.parts = [torch.randn(rows, 8) for rows in (3, 1, 5)]
        self.linear = nn.Linear(8, 8)

    def make(self, device, grad=False):
        return torch.nested.nested_tensor(list(self.parts), layout=self.layout, device=device, requires_grad=grad)

    def linear_on(self, device):
        return copy.deepcopy(self.linear).to(device)

    def check(self, name, call, **tolerance):
        """Checks that `call` gives the same on both devices, and that its results are on the device of its arguments."""
        with self.subTest(name):
            actual = call("xpud")
            for each in actual if isinstance(actual, (tuple, list)) else (actual,):
                if isinstance(each, torch.Tensor) and name != "cpu":
                    self.assertEqual(each.device.type, "xpud")
            torch.testing.assert_close(cpu_of(actual), cpu_of(call("cpu")), **tolerance)

    def gradient(self, device, call):
        x, module = self.make(device, grad=True), self.linear_on(device)
        torch.nested.to_padded_tensor(call(x, module), 0.0).square().sum().backward()
        return [x.grad, *(each.grad for each in module.parameters() if each.grad is not None)]

    def common(self):
        make, linear_on = self.make, self.linear_on
        norm = nn.LayerNorm(8)
        with torch.no_grad():
            norm.weight.copy_(torch.rand(8)), norm.bias.copy_(torch.rand(8))
        self.check("made", make)
        self.check("from parts", lambda d: torch.nested.as_nested_tensor([part.to(d) for part in self.parts], layout=self.layout))
        self.check("to", lambda d: make("cpu").to(d))
        self.check("cpu", lambda d: make(d).cpu())
        self.check("dtype", lambda d: make(d).to(torch.float64))
        self.check("unbind", lambda d: list(make(d).unbind()))
        self.check("select", lambda d: make(d)[1])
        self.check("padded", lambda d: torch.nested.to_padded_tensor(make(d), -1.0))
        self.check("padded to a size", lambda d: torch.nested.to_padded_tensor(make(d), 0.5, output_size=(3, 7, 8)))
        self.check("pointwise", lambda d: (lambda x: (x * 2 + x).relu().sin())(make(d)))
        self.check("in place", lambda d: make(d).mul_(2))
        self.check("clone", lambda d: make(d).clone())
        self.check("zeros", lambda d: torch.zeros_like(make(d)))
        self.check("linear", lambda d: linear_on(d)(make(d)))
        self.check("layer norm", lambda d: copy.deepcopy(norm).to(d)(make(d)))
        self.check("softmax", lambda d: F.softmax(make(d), -1))
        self.check("sum", lambda d: torch.sum(make(d), -1, keepdim=True))
        self.check("chunk", lambda d: list(make(d).chunk(2, -1)))
        self.assertIn("xpud", repr(make("xpud")))
        self.check("linear's gradients", lambda d: self.gradient(d, lambda x, m: m(x)))
        self.check("layer norm's gradients", lambda d: self.gradient(d, lambda x, m: copy.deepcopy(norm).to(d)(m(x))), rtol=1e-4, atol=1e-4)
        self.check("softmax's gradients", lambda d: self.gradient(d, lambda x, m: F.softmax(m(x), -1)))
        self.check("gelu's gradients", lambda d: self.gradient(d, lambda x, m: F.gelu(m(x)) * 3))


class JaggedTest(NestedTest):
    layout = torch.jagged

    def test_operators_equal_the_cpus(self):
        self.common()
        self.check("softmax over tokens", lambda d: F.softmax(self.make(d), 1))
        for reduce in ("sum", "mean", "amax"):
            self.check(reduce, lambda d, reduce=reduce: getattr(torch, reduce)(self.make(d), dim=1))
        self.check("values", lambda d: [self.make(d).values(), self.make(d).offsets()])
        self.check("cat", lambda d: torch.cat([self.make(d)] * 2, dim=-1))
        self.check("matmul", lambda d: torch.matmul(self.make(d), torch.ones(8, 4, device=d)))
        self.check("dropout", lambda d: F.dropout(self.make(d), 0.5, False))

    def test_makers_equal_the_cpus(self):
        offsets, lengths = torch.tensor([0, 3, 4, 9]), torch.tensor([2, 1, 4])
        values, padded = torch.cat(self.parts), torch.arange(24.0).view(3, 8)
        self.check("offsets", lambda d: torch.nested.nested_tensor_from_jagged(values.to(d), offsets.to(d)))
        self.check("lengths", lambda d: torch.nested.nested_tensor_from_jagged(values.to(d), offsets.to(d), lengths.to(d)))
        self.check("narrow", lambda d: torch.nested.narrow(padded.to(d), 1, torch.tensor([0, 1, 2]).to(d), torch.tensor([3, 1, 5]).to(d), layout=torch.jagged))
        self.check("masked_select", lambda d: torch.nested.masked_select(padded.to(d), (padded % 3 == 0).to(d)))
        tokens = [torch.tensor([1, 2]), torch.tensor([0])]
        self.check("embedding", lambda d: F.embedding(torch.nested.nested_tensor(tokens, layout=torch.jagged, device=d), padded.view(8, 3).to(d)))

    def attention(self, device, grad):
        x, module = self.make(device, grad), self.linear_on(device)
        heads = module(x).unflatten(-1, [2, 4]).transpose(1, 2)
        out = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)
        if not grad:
            return out
        torch.nested.to_padded_tensor(out, 0.0).square().sum().backward()
        return [out, x.grad, module.weight.grad]

    def test_attention_equals_the_cpus(self):
        self.check("training", lambda d: self.attention(d, True))
        with torch.no_grad():
            self.check("inference", lambda d: self.attention(d, False))


class StridedTest(NestedTest):
    layout = torch.strided

    def test_operators_equal_the_cpus(self):
        self.common()
        self.check("copy", lambda d: self.make(d).copy_(self.make("cpu") * 2))
        self.check("fill", lambda d: self.make(d).fill_(3))
        self.check("transpose", lambda d: self.make(d).transpose(1, 2).contiguous())
        self.check("matmul", lambda d: torch.matmul(self.make(d), self.make(d).transpose(1, 2)))
        self.check("sizes", lambda d: [self.make(d).size(0), self.make(d).size(2), self.make(d).numel()])
        self.check("sum's gradients", lambda d: self.gradient(d, lambda x, m: torch.sum(x, -1, keepdim=True))[0])
        self.check("dropout", lambda d: F.dropout(self.make(d), 0.5, False))
        self.assert_no_fallback()

    def test_from_and_to_dense_tensors(self):
        padded = torch.randn(3, 4, 5)
        for name, sizes in (("rows", [[4, 5], [0, 5], [2, 5]]), ("both", [[4, 5], [1, 2], [2, 3]])):
            self.check(name, lambda d, sizes=sizes: torch._nested_from_padded(padded.to(d), torch.tensor(sizes)))
        four = torch.randn(2, 3, 4, 5)
        self.check("0213", lambda d: torch._nested_from_padded(four.to(d), torch.tensor([[4, 15], [2, 15]]), True))
        mask = ~hidden_after((4, 1, 2), 4)
        self.check("mask", lambda d: torch._nested_tensor_from_mask(padded.to(d), mask.to(d)))
        for gaps, expected in ((mask, True), (mask.flip(1), False)):
            self.assertEqual(torch._nested_tensor_from_mask_left_aligned(padded.xpud(), gaps.xpud()), expected)
        with self.assertRaisesRegex(RuntimeError, "left-aligned"):
            torch._nested_tensor_from_mask(padded.xpud(), mask.flip(1).xpud())
        with self.assertRaises(RuntimeError):
            torch._nested_from_padded(padded.xpud(), torch.tensor([[5, 5], [0, 5], [2, 5]]))
        self.assert_no_fallback()

    def test_attention_of_heads_equals_the_cpus(self):
        def attend(device):
            x = self.make(device).view(3, -1, 2, 4).transpose(1, 2).contiguous()
            return F.scaled_dot_product_attention(x, x, x)

        self.check("attention", attend)
        self.assert_no_fallback()

    def test_multi_head_attention_equals_the_cpus(self):
        module = nn.MultiheadAttention(8, 2, batch_first=True).eval()

        @torch.no_grad()
        def attend(device, need, average):
            x = self.make(device)
            return copy.deepcopy(module).to(device)(x, x, x, need_weights=need, average_attn_weights=average)

        for need, average in ((False, True), (True, True), (True, False)):
            self.check(f"weights {need} {average}", lambda d, need=need, average=average: attend(d, need, average)[: 1 + need])
        self.assert_no_fallback()

    def test_encoder_with_padding_equals_the_cpus(self):
        module = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
        x, mask = torch.randn(3, 6, 16), hidden_after((6, 3, 1), 6)

        @torch.no_grad()
        def encode(device):
            return copy.deepcopy(module).to(device)(x.to(device), src_key_padding_mask=mask.to(device))

        self.check("encoder", encode)
        for dtype, tolerance in ((torch.float16, 0.02), (torch.bfloat16, 0.1)):
            with torch.no_grad():
                half = copy.deepcopy(module).to(dtype).to("xpud")(x.to(dtype).xpud(), src_key_padding_mask=mask.xpud())
            self.assertEqual(half.dtype, dtype)
            torch.testing.assert_close(half.cpu().float(), encode("cpu"), rtol=tolerance, atol=tolerance)
        self.assert_no_fallback()

    def test_what_is_not_served_says_what_to_use(self):
        with self.assertRaisesRegex(NotImplementedError, "xpud has no aten::cumsum.*jagged"):
            torch.cumsum(self.make("xpud"), 1)


if __name__ == "__main__":
    unittest.main()
