"""torch.compile through Inductor: fused loops as loop kernels, compared with eager execution on the CPU.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_inductor.py
"""

import contextlib
import copy
import math
import tempfile
import textwrap
import unittest
import warnings
from unittest import mock

import torch
import torch._dynamo
import torch_xpud  # noqa: F401  also without the entry point
from command_counts import XPUCTL
from test_device import run
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config, metrics
from torch._inductor.utils import run_and_get_code
from torch.utils.flop_counter import FlopCounterMode
from torch_xpud import _C
from torch_xpud.inductor.ops_handler import LoopOps, Unsupported

needs_loop_kernels = unittest.skipUnless(_C.loop_kernels_supported(), "this daemon has no loop kernels")


def moved(values, device="xpud"):
    return [value.detach().to(device).requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value for value in values]


@needs_loop_kernels
class Compiled(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        counters.clear()
        metrics.reset()
        patched = contextlib.ExitStack()
        patched.enter_context(config.patch(force_disable_caches=True))  # what is counted is what was generated
        self.addCleanup(patched.close)
        self.addCleanup(warnings.resetwarnings)
        warnings.filterwarnings("ignore", message="xpud has no kernel")

    def compare(self, function, *inputs, kernels=None, atol=1e-5, rtol=1e-5, strides=True, **options):
        """Runs a function on the CPU and, compiled, on xpud. `kernels`: how many it may have. Returns xpud's result."""
        here, there = moved(inputs, "cpu"), moved(inputs)
        expected = function(*here)
        value = torch.compile(function, fullgraph=True, **options)(*there)
        self.check(value, expected, atol, rtol, strides)
        for one, other in zip(there, here):
            if isinstance(one, torch.Tensor):  # inputs that are changed
                torch.testing.assert_close(one.detach().cpu(), other.detach(), atol=atol, rtol=rtol, equal_nan=True)
        if kernels is not None:
            self.assertEqual(metrics.generated_kernel_count, kernels)
        return value

    def check(self, value, expected, atol, rtol, strides):
        if isinstance(expected, (tuple, list)):
            for one, other in zip(value, expected, strict=True):
                self.check(one, other, atol, rtol, strides)
        elif isinstance(expected, torch.Tensor):
            torch.testing.assert_close(value.detach().cpu(), expected.detach(), atol=atol, rtol=rtol, equal_nan=True)
            if strides:
                self.assertEqual(value.stride(), expected.stride())
        else:
            self.assertEqual(value, expected)

    def compare_gradients(self, function, *inputs, atol=1e-4, rtol=1e-4, **options):
        here, there = moved(inputs, "cpu"), moved(inputs)
        expected, value = function(*here), torch.compile(function, fullgraph=True, **options)(*there)
        torch.testing.assert_close(value.detach().cpu(), expected.detach(), atol=atol, rtol=rtol)
        weight = torch.randn_like(expected)
        (expected * weight).sum().backward()
        (value * weight.to("xpud")).sum().backward()
        for one, other in zip(there, here):
            if isinstance(one, torch.Tensor) and one.requires_grad:
                torch.testing.assert_close(one.grad.cpu(), other.grad, atol=atol, rtol=rtol)


class FusionTest(Compiled):
    def test_a_chain_of_operations_is_one_kernel(self):
        self.compare(lambda x, y: torch.relu(x.sin() * y + 1).tanh().sigmoid(), torch.randn(7, 5), torch.randn(5), kernels=1)

    def test_layer_norm_is_one_kernel(self):
        norm = lambda x, w, b: nn.functional.layer_norm(x + 1, (16,), w, b)  # noqa: E731
        self.compare(norm, torch.randn(6, 16), torch.randn(16), torch.randn(16), kernels=1)

    def test_softmax_is_one_kernel(self):
        self.compare(lambda x, y: torch.softmax(x * y, -1), torch.randn(3, 4, 33), torch.randn(33), kernels=1)

    def test_log_softmax_over_an_outer_dimension(self):
        self.compare(lambda x: torch.log_softmax(x, 0), torch.randn(33, 12), kernels=1)

    def test_batch_norm_is_one_kernel(self):
        def norm(x, mean, var):
            return nn.functional.batch_norm(x, mean, var, training=True).relu()

        self.compare(norm, torch.randn(4, 3, 8, 8), torch.zeros(3), torch.ones(3), kernels=1, atol=1e-4)

    def test_a_loop_that_reads_rows_and_columns(self):
        self.compare(lambda x: (x - x.mean(0)) + (x - x.mean(1, keepdim=True)), torch.randn(40, 33), atol=1e-4)

    def test_gelu(self):
        for approximate in ("none", "tanh"):
            torch._dynamo.reset()
            self.compare(lambda x, approximate=approximate: nn.functional.gelu(x * 2, approximate=approximate), torch.randn(100))

    def test_transposes(self):
        self.compare(lambda x, y: ((x.t() + y).contiguous(), x.permute(1, 0) * 2), torch.randn(5, 9), torch.randn(9, 5))

    def test_cat_and_stack(self):
        self.compare(lambda x, y: (torch.cat([x.sin(), y * 2, x], 1), torch.stack([x, y], -1)), torch.randn(4, 3), torch.randn(4, 3))

    def test_embedding_and_sum(self):
        self.compare(lambda table, ids, x: (nn.functional.embedding(ids, table) + x).sum(-1), torch.randn(50, 24), torch.randint(0, 50, (3, 7)),
                     torch.randn(7, 24), kernels=1)  # fmt: skip

    def test_an_index_out_of_range_raises(self):
        table, ids = torch.randn(5, 3, device="xpud"), torch.tensor([1, 7], device="xpud")
        with self.assertRaises(IndexError):
            torch.compile(lambda table, ids: table[ids] * 2)(table, ids).cpu()

    def test_reductions(self):
        x = torch.randn(6, 40)
        self.compare(lambda x: (x.sum(1), x.amax(0), x.amin(), x.prod(1), (x > 0).any(1), (x > 0).all(0), x.mean()), x, rtol=1e-4, atol=1e-4)
        self.compare(lambda x: (x.argmax(1), x.argmin(0), x.argmax(), x.max(1), x.min(0)), x)
        self.compare(lambda x: (x.var(1), x.std(0), x.var(), torch.var_mean(x, 1)), x, rtol=1e-4, atol=1e-4)
        self.compare(lambda x: ((x * 10).int().sum(1), (x * 10).to(torch.uint8).sum(), (x > 0).sum(0)), x.abs())

    def test_extremes_of_nan(self):
        x = torch.randn(4, 20)
        x[1, 3] = float("nan")
        self.compare(lambda x: (x.amax(1), x.argmax(1), x.amin(1), torch.relu(x), torch.maximum(x, -x)), x)

    def test_reductions_of_transposed_tensors(self):
        self.compare(lambda x: (x.t().sum(1), x.transpose(0, 1).argmax(), x.permute(1, 0).flatten().argmin()), torch.randn(9, 13), atol=1e-4)

    def test_scans(self):
        self.compare(lambda x: (x.cumsum(1), (x * 0.1 + 1).cumprod(0), torch.cumsum(x > 0, 0)), torch.randn(5, 17), atol=1e-4, rtol=1e-4)
        self.compare(lambda x: (torch.cummax(x, 1), torch.logcumsumexp(x, 0)), torch.randn(5, 17))

    def test_integers_and_shifts(self):
        x, y = torch.randint(-100, 100, (40,)), torch.randint(1, 9, (40,))
        self.compare(lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x / y, x << 2, x >> 1, x & y, ~x), x, y)

    def test_bool(self):
        x, y = torch.rand(20) > 0.5, torch.rand(20) > 0.5
        self.compare(lambda x, y: (x & y, x | y, x ^ y, ~x, x + y, x * y, x == y, torch.where(x, 1.0, 2.0), x.float() - 1), x, y)

    def test_padding_and_masks(self):
        x = torch.randn(2, 3, 6, 6)
        pad = nn.functional.pad
        self.compare(lambda x: (pad(x, (1, 2, 0, 1), value=3.0) * 2, torch.tril(x[0, 0]), pad(x, (1, 1, 1, 1), mode="reflect")), x)

    def test_pooling_and_upsampling(self):
        x = torch.randn(1, 2, 8, 8)
        self.compare(lambda x: (nn.functional.avg_pool2d(x, 3, 2, 1), nn.functional.interpolate(x, scale_factor=2, mode="bilinear")), x)

    def test_gather_scatter(self):
        x, index = torch.randn(5, 6), torch.randint(0, 5, (4, 6))
        self.compare(lambda x, index: (x.gather(0, index), torch.zeros_like(x).scatter_add(0, index, x[:4]), x.index_select(1, index[0])), x, index,
                     atol=1e-4)  # fmt: skip

    def test_searches(self):
        self.compare(lambda x, edges: (torch.bucketize(x, edges), torch.bucketize(x, edges, right=True)), torch.randn(30), torch.linspace(-1, 1, 7))

    def test_many_operands(self):
        values = [torch.randn(10) for _ in range(100)]
        self.compare(lambda *values: sum(value.sin() for value in values), *values, atol=1e-4)

    def test_nothing(self):
        self.compare(lambda x: (x * 2, x.sum(), x.sum(0)), torch.randn(0, 4))


class MasksTest(Compiled):
    """Masks of attention that the traced program makes, as transformers does."""

    INPUTS = tuple(torch.randn(2, 4, 9, 16) for _ in range(3))

    @staticmethod
    def attention(mask):
        def function(q, k, v):
            i = torch.arange(q.shape[-2], device=q.device)
            return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask(i[:, None], i[None, :])[None, None].expand(q.shape[0], 1, -1, -1))

        return function

    def test_masks_that_need_not_be_read(self):
        lowest = torch.finfo(torch.float32).min
        for mask, said in ((lambda i, j: (j >= 0) & (i >= 0), "hides nothing"), (lambda i, j: j <= i, "is_causal"),
                           (lambda i, j: torch.where(j <= i, 0.0, lowest), "is_causal")):
            torch._dynamo.reset()
            metrics.reset()
            with self.assertLogs("torch_xpud.inductor.masks", "INFO") as lines:
                self.compare(self.attention(mask), *self.INPUTS, kernels=0)
            self.assertIn(said, lines.output[0])
            torch._dynamo.reset()
            self.compare_gradients(self.attention(mask), *(each.clone().requires_grad_() for each in self.INPUTS))

    def test_other_masks_are_kept(self):
        padding = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
        for mask in (lambda i, j: (j <= i) & (j > i - 3), lambda i, j: j >= i, lambda i, j: torch.where(j <= i, 0.0, -1.0)):
            torch._dynamo.reset()
            with self.assertNoLogs("torch_xpud.inductor.masks", "INFO"):
                self.compare(self.attention(mask), *self.INPUTS)
        with self.assertNoLogs("torch_xpud.inductor.masks", "INFO"):  # it depends on an input
            self.compare(lambda q, k, v, p: nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=p[:, None, None]), *self.INPUTS, padding)


def new_gelu(x):
    """As transformers writes it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


@unittest.skipUnless(_C.product_activations(0), "this device's library computes no activations")
class ActivationsTest(Compiled):
    """Products that compute the activation of their result."""

    FUNCTIONS = {
        "relu": nn.functional.relu,
        "gelu": nn.functional.gelu,
        "gelu by tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
        "gelu by erf, in its parts": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
        "gelu by tanh, in its parts": new_gelu,
    }

    def code(self, function, *inputs, **options):
        """Returns the result and the wrapper's code."""
        torch._dynamo.reset()
        metrics.reset()
        value, (code,) = run_and_get_code(torch.compile(function, fullgraph=True, **options), *inputs)
        return value, code

    def compare_fused(self, function, *inputs, kernels=0, products=1, **options):
        """Compares with the CPU, and counts kernels and products with an activation."""
        value, code = self.code(function, *moved(inputs), **options)
        self.check(value, function(*moved(inputs, "cpu")), 1e-5, 1e-5, True)
        self.assertEqual((code.count("activated_product.default("), metrics.generated_kernel_count), (products, kernels))

    def test_errors_against_float64(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            for name, function in self.FUNCTIONS.items():
                with self.subTest(name, dtype=dtype), torch.no_grad():
                    model = nn.Sequential(nn.Linear(96, 160), nn.Linear(160, 48)).to(dtype)
                    x = torch.randn(2, 40, 96).to(dtype)
                    exact = function(model[0].double()(x.double()))
                    there, value = model[0].to(dtype).to("xpud"), x.to("xpud")
                    eager = (function(there(value)).cpu().double() - exact).abs().max().item()
                    made, code = self.code(lambda x, there=there, function=function: function(there(x)), value)
                    self.assertEqual((code.count("activated_product.default("), metrics.generated_kernel_count), (1, 0))
                    self.assertEqual((made.dtype, made.stride()), (dtype, exact.stride()))
                    self.assertLessEqual((made.cpu().double() - exact).abs().max().item(), 2 * eager)

    def test_an_mlp_has_products_and_nothing_else(self):
        model = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 8)).to("xpud")
        with torch.no_grad():
            _, code = self.code(model, torch.randn(3, 5, 24, device="xpud"))
        self.assertEqual((code.count("activated_product.default("), code.count("addmm("), metrics.generated_kernel_count), (2, 1, 0))

    def test_what_keeps_a_product_without_its_activation(self):
        a, b = torch.randn(5, 8), torch.randn(8, 6)
        gelu = nn.functional.gelu
        self.compare_fused(lambda a, b: gelu(y := a @ b) + y, a, b, products=0, kernels=1)  # needed twice
        self.compare_fused(lambda a, b: gelu((a @ b) * 1.01), a, b, products=0, kernels=1)
        self.compare_fused(lambda a, b: nn.functional.silu(a @ b), a, b, products=0, kernels=1)
        self.compare_fused(lambda a, b: gelu(torch.addmm(a[:, :6], a, b)), a, b, products=0, kernels=1)  # no row
        self.compare_fused(lambda a, b: gelu(torch.addmm(a[0, :6], a, b, alpha=2)), a, b, products=0, kernels=1)
        _, code = self.code(lambda a, b: gelu((a @ b).bfloat16()).float(), a.to("xpud"), b.to("xpud"))  # rounded before
        self.assertNotIn("activated_product", code)
        with config.patch(emulate_precision_casts=True):
            _, code = self.code(lambda a, b: gelu(a @ b), a.bfloat16().to("xpud"), b.bfloat16().to("xpud"))
        self.assertNotIn("activated_product", code)

    def test_what_follows_the_activation_is_a_kernel(self):
        self.compare_fused(lambda a, b, c: nn.functional.gelu(a @ b) * c + 1, torch.randn(5, 8), torch.randn(8, 6), torch.randn(6), kernels=1)

    def test_layouts_and_sizes(self):
        for name in ("relu", "gelu", "gelu by tanh"):
            function = self.FUNCTIONS[name]
            for a, b in ((torch.randn(8, 5).t(), torch.randn(6, 8).t()), (torch.randn(5, 16)[:, ::2], torch.randn(8, 12)[:, 3:9]),
                         (torch.randn(1, 8), torch.randn(8, 6)), (torch.randn(5, 0), torch.randn(0, 6)), (torch.randn(0, 8), torch.randn(8, 6)),
                         (torch.randn(3, 5, 8), torch.randn(3, 8, 6)), (torch.randn(3, 8, 5).mT, torch.randn(3, 6, 8).mT)):  # fmt: skip
                with self.subTest(name, a=a.shape, b=b.shape):
                    self.compare_fused(lambda a, b, function=function: function(a @ b), a, b)
                    if a.dim() == 2:
                        self.compare_fused(lambda a, b, c, function=function: function(torch.addmm(c, a, b)), a, b, torch.randn(6))

    def test_nan_and_infinities(self):
        for dtype in (torch.float32, torch.bfloat16):
            a, b = torch.ones(200, 64, dtype=dtype), torch.ones(64, 512, dtype=dtype)
            for at, value in enumerate((float("nan"), float("inf"), float("-inf"), -1.0)):
                b[0, at] = value * 100
            there = b.to("xpud")
            for name, function in self.FUNCTIONS.items():
                torch._dynamo.reset()
                compiled = torch.compile(lambda a, b, function=function: function(a @ b), dynamic=False)
                for rows in (1, 200, 200, 200):  # also with packed weights
                    with self.subTest(name, rows=rows, dtype=dtype):
                        value, product = a[:rows].to("xpud"), a[:rows] @ b
                        expected = product.relu() if name == "relu" else function(value @ there).cpu()
                        self.check(compiled(value, there), expected, 1e-2, 1e-2, True)

    def test_gradients(self):
        for layer in (nn.GELU(), nn.GELU("tanh"), nn.ReLU()):
            with self.subTest(layer):
                torch._dynamo.reset()
                x, first, bias, second = torch.randn(6, 16), torch.randn(24, 16), torch.randn(24), torch.randn(8, 24)
                self.compare_gradients(lambda x, w, b, v, layer=layer: nn.functional.linear(layer(nn.functional.linear(x, w, b)), v),
                                       *(each.requires_grad_() for each in (x, first, bias, second)))  # fmt: skip

    def test_symbolic_sizes(self):
        compiled = torch.compile(lambda x, w, b: nn.functional.gelu(nn.functional.linear(x, w, b)), dynamic=True, fullgraph=True)
        for rows in (3, 8, 1):
            x, w, b = torch.randn(2, rows, 16), torch.randn(24, 16), torch.randn(24)
            self.check(compiled(*moved((x, w, b))), nn.functional.gelu(nn.functional.linear(x, w, b)), 1e-5, 1e-5, True)
        self.assertEqual(metrics.generated_kernel_count, 0)

    def test_operations_are_counted(self):
        counted = []
        x, w, b = torch.randn(6, 16, device="xpud"), torch.randn(24, 16, device="xpud"), torch.randn(24, device="xpud")
        for function in (nn.functional.linear, torch.compile(lambda x, w, b: nn.functional.gelu(nn.functional.linear(x, w, b)))):
            function(x, w, b)
            with FlopCounterMode(display=False) as counter:
                function(x, w, b)
            counted.append(counter.get_total_flops())
        self.assertEqual(counted, [2 * 6 * 16 * 24] * 2)

    def test_the_operator_refuses_what_does_not_fit(self):
        a, b = torch.ones(2, 3, device="xpud"), torch.ones(3, 4, device="xpud")
        with self.assertRaisesRegex(ValueError, "no activation mish"):
            torch.ops.xpud.activated_product(None, a, b, "mish")
        with self.assertRaisesRegex(RuntimeError, "of sizes"):
            torch.ops.xpud.activated_product(None, b, a, "relu")
        with self.assertRaises(RuntimeError):
            torch.ops.xpud.activated_product(torch.ones(3, device="xpud"), a, b, "relu")


class TypesTest(Compiled):
    def test_bfloat16_is_computed_in_float32(self):
        x = torch.randn(64, 64).bfloat16()
        value = self.compare(lambda x: nn.functional.gelu(x * 1.5) + x, x, kernels=1, atol=2e-2, rtol=2e-2)
        exact = nn.functional.gelu(x.float() * 1.5) + x.float()
        self.assertTrue(torch.equal(value.cpu(), exact.bfloat16()) or (value.cpu() - exact).abs().max() < 2e-2)

    def test_float16_and_float64(self):
        for dtype, tolerance in ((torch.float16, 1e-2), (torch.float64, 1e-12)):
            torch._dynamo.reset()
            self.compare(lambda x: (x.softmax(-1), x.exp().sum(0)), torch.randn(8, 8, dtype=dtype), atol=tolerance, rtol=tolerance)

    def test_views_as_another_type(self):
        self.compare(lambda x: x.view(torch.int32) + 1, torch.randn(8))


class TrapsTest(Compiled):
    def test_zero_dim_cpu_operands_are_scalars(self):
        x = torch.randn(5)
        there = x.to("xpud")
        scale = torch.tensor(2.5)
        for function in (lambda x, s: s * x, lambda x, s: x - s, lambda x, s: torch.where(x > 0, s, x), lambda x, s: s.double() * x):
            torch._dynamo.reset()
            value = torch.compile(function, fullgraph=True)(there, scale)
            self.assertEqual(value.device.type, "xpud")
            torch.testing.assert_close(value.cpu(), function(x, scale))
        torch.testing.assert_close(torch.compile(lambda x: torch.tensor(2.0) * x)(there).cpu(), 2 * x)

    def test_a_tensor_and_zero_dim_tensors_of_the_device(self):
        self.compare(lambda x, s: s * x + s, torch.randn(5), torch.tensor(3.0))

    def test_adamw_without_a_cpp_compiler(self):
        out = run("""
            import copy, os, torch, torch_xpud
            os.environ["PATH"] = os.environ["CXX"] = "/nowhere"
            torch.manual_seed(0)
            for settings in ({"foreach": False}, {"foreach": True}, {"fused": True}):
                torch._dynamo.reset()
                here = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
                there = copy.deepcopy(here).to("xpud")
                optimizers = torch.optim.AdamW(here.parameters(), lr=0.1), torch.optim.AdamW(there.parameters(), lr=0.1, **settings)
                step = torch.compile(optimizers[1].step)
                for _ in range(3):
                    x = torch.randn(2, 4)
                    for model, value in ((here, x), (there, x.to("xpud"))):
                        model.zero_grad()
                        model(value).square().sum().backward()
                    optimizers[0].step()
                    step()
                for one, other in zip(here.parameters(), there.parameters()):
                    torch.testing.assert_close(other.detach().cpu(), one.detach(), atol=1e-3, rtol=1e-3)
            print("ok")
        """)
        self.assertEqual(out.strip(), "ok")

    def test_cpu_parts_of_a_graph(self):
        def function(x, y):
            return x * 2 + y.to("xpud"), (x.cpu() + y).sin()

        x, y = torch.randn(4), torch.randn(4)
        first, second = torch.compile(function, fullgraph=True)(x.to("xpud"), y)
        torch.testing.assert_close(first.cpu(), x * 2 + y)
        torch.testing.assert_close(second, (x + y).sin())

    def test_mutated_inputs(self):
        def change(x, y):
            x.mul_(2).add_(y)
            y[1:] += x[:-1]
            return x.t() + y

        self.compare(change, torch.randn(4, 4), torch.randn(4, 4))

    def test_gradients_of_what_was_computed_from_a_changed_input(self):
        def function(x, seen):
            seen += x.detach().sum(0)
            return x * seen

        self.compare_gradients(function, torch.randn(4, 3, requires_grad=True), torch.zeros(3))

    def test_slices_that_are_written(self):
        def function(x):
            y = torch.zeros(6, 4, device=x.device)
            y[1:3] = x[:2]
            y[:, 2] = 5
            return y

        self.compare(function, torch.randn(3, 4))

    def test_strides_are_those_of_the_fake_tensors(self):
        x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        weight = torch.randn(6, 3, 3, 3)
        self.compare(lambda x: (x * 2, x.transpose(1, 2) + 1, x.sum(1)), x)
        torch._dynamo.reset()
        convolved = torch.compile(lambda x, w: nn.functional.conv2d(x, w).relu(), fullgraph=True)(x.to("xpud"), weight.to("xpud"))
        eager = nn.functional.conv2d(x.to("xpud"), weight.to("xpud")).relu()
        self.assertEqual(convolved.stride(), eager.stride())
        torch.testing.assert_close(convolved, eager, atol=1e-4, rtol=1e-4)

    def test_random_state_in_compiled_functions(self):
        def function(x):
            torch.xpud.manual_seed(3)
            return x + torch.rand(4, device="xpud")

        x = torch.zeros(4, device="xpud")
        with config.patch(fallback_random=True):
            compiled = torch.compile(function)
            torch.testing.assert_close(compiled(x), compiled(x))

    def test_the_cpu_stays_inductor_s(self):
        compiled = torch.compile(lambda x: x + 1, backend="eager")
        self.assertEqual(compiled(torch.ones(2)).tolist(), [2, 2])

    def test_cpu_tensors_are_changed(self):
        def change(x, y, count):
            count.add_(1)
            y[1:3].mul_(2)
            return x * count, y.t().contiguous()

        x, y, count = torch.randn(4), torch.randn(4, 3), torch.tensor(3.0)
        expected_y, expected_count = y.clone(), count.clone()
        expected = change(x, expected_y, expected_count)
        value = torch.compile(change, fullgraph=True)(x.to("xpud"), y, count)
        torch.testing.assert_close(value[0].cpu(), expected[0])
        torch.testing.assert_close((value[1], y, count), (expected[1], expected_y, expected_count))

    def test_what_kernels_cannot_express_runs_as_operators(self):
        """Also if only the writing of a loop finds it."""
        missing = mock.patch.object(LoopOps, "exp2", side_effect=Unsupported("an exp2"), create=True)
        with missing, self.assertLogs("torch_xpud.inductor.choices", "INFO") as said:
            self.compare(lambda x: torch.exp2(x * 2).sum(-1) + 1, torch.randn(5, 6))
        self.assertIn("run as operators", "".join(said.output))

    def test_positions_are_the_program_s(self):
        self.compare(lambda x: (x.transpose(0, 1).argmax(), x.permute(2, 0, 1).argmin(), x.flip(0).argmax()), torch.randn(4, 5, 6))

    def test_parts_of_a_concatenation(self):
        self.compare(lambda x: torch.cat([x.sin(), x.sin() * 2 + x.sum(1, keepdim=True), x], 1), torch.randn(4, 5))

    def test_items(self):
        with torch._dynamo.config.patch(capture_scalar_outputs=True):
            self.compare(lambda x, n: x * n.item(), torch.randn(4), torch.tensor(3))


class RandomTest(Compiled):
    def test_dropout_has_its_own_backward(self):
        compiled = torch.compile(lambda x: nn.functional.dropout(x, 0.25) * 3, fullgraph=True)
        x = torch.ones(10000, device="xpud", requires_grad=True)
        first, second = compiled(x), compiled(x)
        self.assertFalse(torch.equal(first, second))
        self.assertAlmostEqual((first == 0).float().mean().item(), 0.25, delta=0.03)
        first.sum().backward()
        torch.testing.assert_close(x.grad, first.detach())

    def test_with_fallback_random_numbers_are_eager_s(self):
        function = lambda x: (nn.functional.dropout(x, 0.5), torch.rand_like(x), torch.randn(4, device="xpud"))  # noqa: E731
        x = torch.randn(50, device="xpud")
        with config.patch(fallback_random=True):
            compiled = torch.compile(function, fullgraph=True)
            torch.xpud.manual_seed(5)
            values = compiled(x)
        torch.xpud.manual_seed(5)
        for value, expected in zip(values, function(x)):
            torch.testing.assert_close(value, expected)

    def test_moments(self):
        def draw(n):
            return torch.rand(n, device="xpud"), torch.randn(n, device="xpud"), torch.randint(-3, 5, (n,), device="xpud")

        rand, randn, randint = torch.compile(draw)(20000)
        self.assertAlmostEqual(rand.mean().item(), 0.5, delta=0.02)
        self.assertTrue(0 <= rand.min().item() and rand.max().item() < 1)
        self.assertAlmostEqual(randn.mean().item(), 0, delta=0.03)
        self.assertAlmostEqual(randn.std().item(), 1, delta=0.03)
        self.assertEqual((randint.min().item(), randint.max().item()), (-3, 4))


class ShapesTest(Compiled):
    def test_dynamic_sizes_compile_once(self):
        def function(x, y):
            return (x.softmax(-1) * y).sum(0), torch.cat([x, x * 2], 1).t().contiguous()

        compiled = torch.compile(function, dynamic=True, fullgraph=True)
        generated = None
        for rows, columns in ((3, 5), (8, 16), (13, 7)):
            x, y = torch.randn(rows, columns), torch.randn(columns)
            self.check(compiled(x.to("xpud"), y.to("xpud")), function(x, y), 1e-5, 1e-5, True)
            generated = generated or metrics.generated_kernel_count
            self.assertEqual(metrics.generated_kernel_count, generated)

    def test_numbers_that_are_no_integers(self):
        norm = torch.compile(lambda x, eps: nn.functional.layer_norm(x, (8,), eps=eps) * eps, dynamic=True, fullgraph=True)
        for eps in (1e-5, 0.25, 3.5):
            x = torch.randn(3, 8)
            torch.testing.assert_close(norm(x.to("xpud"), eps).cpu(), nn.functional.layer_norm(x, (8,), eps=eps) * eps)

    def test_sizes_as_values(self):
        compiled = torch.compile(lambda x: x / x.shape[0] + x.shape[1] ** 0.5, dynamic=True, fullgraph=True)
        for rows in (3, 8):
            x = torch.randn(rows, 5)
            torch.testing.assert_close(compiled(x.to("xpud")).cpu(), x / rows + 5**0.5)


class Block(nn.Module):
    """A transformer's layer."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(self.first(x)).chunk(3, -1))
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class ModelsTest(Compiled):
    def test_a_transformer_forward_and_backward(self):
        here = nn.Sequential(Block(), Block())
        there = copy.deepcopy(here).to("xpud")
        x = torch.randn(2, 6, 32)
        expected, value = here(x), torch.compile(there, fullgraph=True)(x.to("xpud"))
        torch.testing.assert_close(value.detach().cpu(), expected.detach(), atol=1e-5, rtol=1e-4)
        expected.square().sum().backward()
        value.square().sum().backward()
        for one, other in zip(here.parameters(), there.parameters()):
            torch.testing.assert_close(other.grad.cpu(), one.grad, atol=1e-3, rtol=1e-3)

    def test_kernels_of_a_bert(self):
        from transformers import BertConfig, BertModel

        settings = BertConfig(vocab_size=100, hidden_size=48, num_hidden_layers=6, num_attention_heads=4, intermediate_size=96)  # as MiniLM has
        model = BertModel(settings).eval()
        ids = torch.randint(0, 100, (1, 16))
        with torch.no_grad():
            expected = model(ids)[0]
            value = torch.compile(model.to("xpud"), fullgraph=True)(ids.to("xpud"))[0]
        torch.testing.assert_close(value.cpu(), expected, atol=1e-4, rtol=1e-4)
        fused = bool(_C.product_activations(0))
        self.assertLessEqual(metrics.generated_kernel_count, 5 if fused else 6)  # different ones


class AheadTest(unittest.TestCase):
    """The kernels of a graph are compiled when it is loaded, for their first calls."""

    def compare(self, body):
        """Runs a program with a daemon and caches of its own, where each kernel waits before its first call until nothing is being compiled. Checks that the
        calls compile nothing, and that no class is compiled that they do not use."""
        program = f"""
            import json, subprocess, time
            import torch, torch_xpud
            from torch_xpud.inductor import runtime

            def compiled():
                while True:
                    status = subprocess.run([{XPUCTL!r}, "-o", "json", "status"], check=True, capture_output=True, text=True).stdout
                    state = json.loads(status)["daemon"]["compiler"]
                    if state["running"] + state["waiting"] == 0:
                        return state["compiled"]
                    time.sleep(0.02)

            class Held:
                def __init__(self, *arguments):
                    self.kernel, self.called = make(*arguments), False

                def __call__(self, *arguments):
                    if not self.called:
                        self.called = True
                        ahead.append(compiled())
                    self.kernel(*arguments)

            make, runtime.loop_kernel, ahead = runtime.loop_kernel, Held, []
            x, w, b = (torch.randn(*size, device="xpud", requires_grad=True) for size in ((40, 64), (64,), (64,)))
            ids = torch.randint(0, 40, (40,), device="xpud")
        """
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            environment = {"XDG_RUNTIME_DIR": folder, "XDG_CACHE_HOME": folder, "XPUD_ADDRESS": "", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
            last = "torch.xpud.synchronize()\nprint(len(ahead), ahead[-1], compiled())"
            printed = run("\n".join((textwrap.dedent(program), textwrap.dedent(body), last)), **environment)
        kernels, ahead, made = map(int, printed.split())
        self.assertEqual((ahead, made), (kernels, kernels))
        self.assertGreater(kernels, 3)

    @needs_loop_kernels
    def test_what_is_compiled_before_the_first_call_is_what_the_calls_use(self):
        self.compare("""
            def function(x, w, b, ids):
                y = torch.nn.functional.layer_norm(x * 0.5, (64,), w, b)
                z = torch.cat([y[:, 1:] * 2, (y[:, :5] + 0.5).sin()], 1)
                t = x[ids] * y
                return z.softmax(-1).sum(0), t.t().contiguous() + 0.5, y.sum(0), y.argmax(), torch.stack([y, x])[:, ::2] * 0.5

            values = torch.compile(function, fullgraph=True)(x, w, b, ids)
            sum(value.sum() for value in values).backward()
        """)

    @needs_loop_kernels
    def test_symbolic_sizes_are_those_of_the_first_call(self):
        self.compare("""
            def function(x, w):
                y = (x * w + 0.5).softmax(-1)
                return y.sum(0), (y[:, 3:] @ y[:, 3:].t()).sin() * 0.5, x.amax(1)

            made = torch.compile(function, fullgraph=True, dynamic=True)
            sum(value.sum() for value in made(x, w)).backward()
            made(x[:30], w)
        """)

    @needs_loop_kernels
    def test_kernels_are_made_without_a_device_in_use(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run("""
                from torch_xpud import _C
                from torch_xpud.inductor.runtime import loop_kernel
                kernel = loop_kernel(b"no kernel", "none", [], 0, [3], [3, 3])
                print(kernel.name, _C.is_connected())
            """, XDG_RUNTIME_DIR=folder, XPUD_ADDRESS=""), "none False\n")  # fmt: skip


class CacheTest(unittest.TestCase):
    @needs_loop_kernels
    def test_another_process_lowers_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            code = f"""
                import os
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = {folder!r}
                import torch, torch_xpud
                from torch._dynamo.utils import counters
                x = torch.arange(12.0, device="xpud").view(3, 4).requires_grad_()
                y = torch.compile(lambda x: x.softmax(-1) * 3)(x)
                y.sum().backward()
                print(round(y.sum().item(), 3), counters["aot_autograd"]["autograd_cache_miss"], counters["aot_autograd"]["autograd_cache_hit"])
            """
            first, second = run(code).split(), run(code).split()
        self.assertEqual((first[0], second[0]), ("9.0", "9.0"))
        self.assertEqual((first[1:], second[1:]), (["1", "0"], ["0", "1"]))


if __name__ == "__main__":
    unittest.main()
