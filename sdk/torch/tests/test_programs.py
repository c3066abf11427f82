"""Programs of a few lines that once gave a wrong number, crashed or were refused. Each asserts the behaviour of PyTorch's CPU or CUDA.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_programs.py

Programs that once crashed (CRASHED) run in a separate process with `python -c`; the others run in this one.
"""

import textwrap
import unittest
import warnings

import torch
import torch_xpud  # noqa: F401  also without the entry point
from test_device import run

PREAMBLE = """
import copy, gc, math, warnings, weakref
import torch, torch_xpud
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
d = "xpud"

def refuses(error, words, call):
    try:
        call()
        torch.xpud.synchronize()
    except error as raised:
        assert words in str(raised), raised
    else:
        raise AssertionError(f"not refused: {words}")
"""

MOVES = {
    "shared parameters stay shared": """
        a, b = nn.Linear(3, 3), nn.Linear(3, 3)
        b.weight = a.weight
        model = nn.Sequential(a, b)
        before = [id(p) for p in model.parameters()]
        for move in (lambda m: m.to(d), lambda m: m.half(), lambda m: m.float(), lambda m: m.cpu(), lambda m: m.xpud(), lambda m: m.to(d, torch.float64),
                     lambda m: m.to(memory_format=torch.preserve_format)):
            move(model)
            assert [id(p) for p in model.parameters()] == before and model[0].weight is model[1].weight
        assert model[0].weight.device.type == d
    """,
    "convolution weights keep their identity in another memory format": """
        model = nn.Conv2d(2, 4, 3).to(d)
        weight = model.weight
        model.to(memory_format=torch.channels_last)
        assert model.weight is weight and weight.is_contiguous(memory_format=torch.channels_last)
    """,
    "an optimizer made before the move updates the model": """
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        model.to(d)
        before = model.weight.detach().clone()
        model(torch.ones(1, 2, device=d)).sum().backward()
        optimizer.step()
        assert_close(model.weight, before - 1)
    """,
    "gradients move with their parameters": """
        model = nn.Linear(2, 1)
        model(torch.ones(1, 2)).sum().backward()
        gradient = model.weight.grad
        model.to(d)
        assert model.weight.grad is gradient and gradient.device.type == d
        model(torch.ones(1, 2, device=d)).sum().backward()
        assert_close(model.weight.grad.cpu(), torch.full((1, 2), 2.0))
    """,
    "a graph made before the move sends its gradients to where the parameter was": """
        model = nn.Linear(2, 1)
        out = model(torch.ones(1, 2))
        accumulator = out.grad_fn.next_functions[-1][0]
        model.to(d)
        model(torch.ones(1, 2, device=d)).sum().backward()  # creates its own accumulator
        assert model.weight.grad.device.type == d
    """,
    "hooks and weak references stay": """
        model = nn.Linear(2, 1)
        seen = []
        model.weight.register_hook(lambda g: seen.append(g.device.type))
        reference = weakref.ref(model.weight)
        model.to(d)
        model(torch.ones(1, 2, device=d)).sum().backward()
        assert seen == [d] and reference() is model.weight
    """,
    "parametrizations move": """
        model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        other = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
        for m in (model, other):
            expected = m.eval()(torch.ones(1, 3))
            before = [id(p) for p in m.parameters()]
            m.to(d)
            assert [id(p) for p in m.parameters()] == before
            assert_close(m(torch.ones(1, 3, device=d)).cpu(), expected)
    """,
    "lazy modules": """
        for move in (lambda m: m.to(d), lambda m: m.xpud()):
            model = move(nn.LazyLinear(4))
            assert model(torch.ones(2, 3, device=d)).shape == (2, 4) and model.weight.device.type == d
    """,
    "from meta by to_empty": """
        with torch.device("meta"):
            model = nn.Linear(3, 2)
        model.to_empty(device=d)
        nn.init.ones_(model.weight); nn.init.zeros_(model.bias)
        assert model(torch.ones(1, 3, device=d)).tolist() == [[3.0, 3.0]]
    """,
    "a tensor subclass keeps its class": """
        class Tagged(torch.Tensor):
            pass
        model = nn.Linear(2, 2)
        model.weight = nn.Parameter(torch.ones(2, 2).as_subclass(Tagged))
        weight = model.weight
        model.to(d)
        assert type(model.weight) is type(weight) and model.weight.device.type == d
    """,
    "data may be assigned between devices": """
        a = torch.ones(3)
        b = a
        a.data = torch.zeros(2, device=d)
        assert b.device.type == d and b.shape == (2,)
        a.data = torch.ones(4)
        assert b.tolist() == [1.0] * 4
        a = torch.ones(3, device=d)
        assert torch._has_compatible_shallow_copy_type(a, torch.ones(1)) and torch._has_compatible_shallow_copy_type(torch.ones(1), a)
        assert not torch._has_compatible_shallow_copy_type(a, torch.ones(1, device="meta"))
    """,
}

WRONG = {
    "batch and instance norm update their statistics": """
        x = torch.randn(4, 3, 5, 5)
        for layer in (nn.BatchNorm2d(3), nn.BatchNorm2d(3, momentum=None), nn.InstanceNorm2d(3, track_running_stats=True)):
            other = copy.deepcopy(layer).to(d)
            for _ in range(3):
                layer(x); other(x.to(d))
            assert_close(other.running_mean.cpu(), layer.running_mean)
            assert_close(other.running_var.cpu(), layer.running_var)
            assert_close(other.eval()(x.to(d)).cpu(), layer.eval()(x))
        mean, var = torch.zeros(3, device=d), torch.ones(3, device=d)
        torch.native_batch_norm(x.to(d), None, None, mean, var, True, 0.5, 1e-5)
        assert_close(mean.cpu(), x.mean((0, 2, 3)) * 0.5)
        torch.batch_norm_update_stats(x.to(d), mean, var, 1.0)
        assert_close(mean.cpu(), x.mean((0, 2, 3)))
    """,
    "parts of complex tensors are views": """
        x = torch.zeros(3, dtype=torch.complex64, device=d)
        x.real = torch.ones(3, device=d)
        x.imag[1:] = 2
        assert x.tolist() == [1, 1 + 2j, 1 + 2j]
        torch.view_as_real(x)[0] = 5
        torch.view_as_complex(torch.view_as_real(x))[2] = 7j
        assert x.tolist() == [5 + 5j, 1 + 2j, 7j]
    """,
    "numbers that a type cannot hold are refused": """
        x, mask = torch.zeros(3, dtype=torch.uint8, device=d), torch.tensor([True, False, True], device=d)
        words = "value cannot be converted to type uint8_t without overflow"
        for value in (300, torch.tensor(300), torch.tensor(300, device=d)):
            refuses(RuntimeError, words, lambda: x.masked_fill_(mask, value))
        refuses(RuntimeError, words, lambda: x.fill_(300))
        refuses(RuntimeError, words, lambda: torch.full((2,), 300, dtype=torch.uint8, device=d))
        refuses(RuntimeError, words, lambda: x.clamp(0, 300))
        assert x.masked_fill(mask, -1).tolist() == [255, 0, 255] and x.masked_fill(mask, 1.7).tolist() == [1, 0, 1]
        refuses(RuntimeError, "Half without overflow", lambda: torch.zeros(3, dtype=torch.half, device=d).masked_fill_(mask, -1e9))
    """,
    "f64 attention has gradients in f64": """
        q = torch.randn(2, 2, 5, 4, dtype=torch.double, requires_grad=True)
        p = q.detach().to(d).requires_grad_()
        for t in (q, p):
            F.scaled_dot_product_attention(t, t, t).square().sum().backward()
        assert_close(p.grad.cpu(), q.grad, rtol=1e-12, atol=1e-12)
    """,
    "complex linear has conjugated gradients": """
        x, w = torch.randn(3, dtype=torch.complex64), torch.randn(2, 3, dtype=torch.complex64)
        gradients = []
        for device in ("cpu", d):
            leaves = [t.clone().to(device).requires_grad_() for t in (x, w)]
            F.linear(*leaves).abs().square().sum().backward()
            gradients.append([t.grad.cpu() for t in leaves])
        assert_close(gradients[1], gradients[0])
    """,
    "a wider out= does not widen the computation": """
        t = torch.tensor(33000.0, dtype=torch.half, device=d)
        assert torch.add(t, t, out=torch.empty((), dtype=torch.double, device=d)).item() == math.inf
        yes = torch.tensor([True], device=d)
        assert torch.add(yes, yes, out=torch.zeros(1, dtype=torch.long, device=d)).item() == 1
    """,
    "16-bit attention's gradients are as exact as the CPU's": """
        torch.manual_seed(0)
        values = [torch.randn(4, 4, 6, 8, dtype=torch.bfloat16) * 4 for _ in range(3)]
        results = {}
        for device, dtype in ((d, torch.bfloat16), ("cpu", torch.bfloat16), ("cpu", torch.double)):
            leaves = [t.to(device, dtype).detach().clone().requires_grad_() for t in values]
            F.scaled_dot_product_attention(*leaves).square().sum().backward()
            results[device, dtype] = [t.grad.cpu().double() for t in leaves]
        for ours, cpu, exact in zip(*results.values()):
            assert (ours - exact).abs().max() <= 4 * (cpu - exact).abs().max() + 1e-2 * exact.abs().max()
    """,
    "is_set_to knows its own memory": """
        x = torch.zeros(4, device=d)
        assert x.is_set_to(x.view(4)) and not x.is_set_to(x.clone()) and not x.is_set_to(x[1:])
    """,
    "eval-mode attention in f16 is finite": """
        torch.manual_seed(0)
        layer = nn.MultiheadAttention(64, 4, batch_first=True).eval()
        x = torch.randn(2, 6, 64) * 300
        before = torch.xpud.fallback_counts()
        with torch.no_grad():
            expected = layer(x, x, x)[0]
            got = copy.deepcopy(layer).to(d).half()(*[x.to(d).half()] * 3)[0]
            assert got.isfinite().all() and torch.xpud.fallback_counts() == before
            assert F.cosine_similarity(got.float().cpu().flatten(), expected.flatten(), dim=0) > 0.99
    """,
    "random numbers keep to their ranges": """
        for dtype in (torch.half, torch.bfloat16, torch.float):
            assert torch.rand(5_000_000, dtype=dtype, device=d).max() < 1
        assert torch.empty(50_000_000, device=d).exponential_().min() > 0
        assert F.gumbel_softmax(torch.zeros(1_000_000, 4, device=d)).isfinite().all()
    """,
    "what lies on the CPU is refused at once": """
        x = torch.ones(2, 4, device=d)
        same = "Expected all tensors to be on the same device"
        for call in (lambda: F.layer_norm(x, (4,), torch.ones(4)), lambda: torch.cat([x, torch.ones(2, 4)]), lambda: F.linear(x, torch.ones(3, 4)),
                     lambda: F.embedding(torch.tensor([1]), x), lambda: F.nll_loss(x, torch.tensor([1, 2])), lambda: torch.nonzero(x, out=torch.zeros(0, dtype=torch.long)),
                     lambda: torch.sort(x, out=(torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.long))), lambda: torch.cdist(x, torch.ones(2, 4)),
                     lambda: torch.mm(torch.ones(2, 2), torch.ones(2, 2), out=torch.ones(2, 2, device=d)), lambda: torch.stack([x, torch.ones(2, 4)])):
            refuses(RuntimeError, same, call)
        mask = torch.ones(2, 4, dtype=torch.bool)
        refuses(RuntimeError, same, lambda: torch.ops.aten.native_dropout_backward(x, mask, 2.0))
        assert x.sum().item() == 8  # no error comes later
    """,
    "out= of another type, or whose elements share memory, is refused": """
        x = torch.rand(3, 3, device=d)
        refuses(RuntimeError, "Expected out tensor to have dtype", lambda: torch.nonzero(x, out=torch.zeros(0, device=d)))
        refuses(RuntimeError, "Expected out tensor to have dtype", lambda: torch.mm(x, x, out=torch.zeros(3, 3, dtype=torch.double, device=d)))
        shares = "single memory location"
        refuses(RuntimeError, shares, lambda: torch.mm(x, x, out=torch.zeros(3, device=d).expand(3, 3)))
        refuses(RuntimeError, shares, lambda: torch.zeros(3, device=d).expand(3, 3).copy_(x))
        refuses(RuntimeError, shares, lambda: torch.zeros(3, device=d).expand(3, 3).add_(x))
        memory = torch.rand(10, device=d)
        refuses(RuntimeError, shares, lambda: torch.where(x.view(-1) > 2, memory[1:], memory[1:], out=memory[:-1]))
        assert torch.zeros(3, device=d).expand(3, 3).masked_fill_(torch.eye(3, dtype=torch.bool, device=d), 1).sum().item() == 9
    """,
}

CRASHED = {
    "strided and pending complex copies": """
        x = torch.randn(3, 4, dtype=torch.complex64)
        y = x.to(d)
        assert_close(y[::2].clone().cpu(), x[::2])
        for change in (lambda t: t.conj(), lambda t: t.t().conj(), lambda t: t.conj()[1:, ::2], lambda t: t._neg_view(), lambda t: t.conj().imag, lambda t: t.conj()._neg_view()):
            assert torch.equal(change(y).cpu(), change(x).resolve_conj().resolve_neg())
            assert torch.equal(change(y).clone().cpu(), change(x).clone())
            assert torch.equal((change(y) + 1).cpu(), change(x) + 1)
        a, b = torch.zeros(3, 4, dtype=torch.complex64), torch.zeros(3, 4, dtype=torch.complex64, device=d)
        a.conj().copy_(x); b.conj().copy_(y)
        assert torch.equal(b.cpu(), a)
        assert torch.equal(y.conj_physical_().cpu(), x.conj_physical_())
    """,
    "the host's cache can be emptied": """
        x = torch.ones(1000).pin_memory()
        if hasattr(torch.accelerator.memory, "empty_host_cache"):  # from torch 2.12
            torch.accelerator.memory.empty_host_cache()
        torch.accelerator.memory.empty_cache()
        assert x.sum().item() == 1000 and x.is_pinned()
    """,
}

# Half of its runs were aborted while the interpreter ended.
ENDS_WITH_A_BACKWARD_PASS = """
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.view_as(x)

        @staticmethod
        def backward(context, gradient):
            return gradient

    x = y = torch.ones(8, device=d, requires_grad=True)
    for _ in range(200):
        y = Same.apply(y)
    y.backward(torch.ones_like(x))
    del y
"""

REFUSED = {
    "convolutions": """
        torch.manual_seed(0)
        for layer, shape in ((nn.Conv1d(4, 6, 3, padding="same"), (2, 4, 9)), (nn.Conv2d(4, 8, 3, stride=2, groups=2), (2, 4, 9, 9)),
                             (nn.Conv3d(2, 3, 2, dilation=2), (1, 2, 6, 6, 6)), (nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), (2, 4, 5, 5)),
                             (nn.Conv2d(3, 4, 3, bias=False), (3, 7, 7))):
            other = copy.deepcopy(layer).to(d)
            x = torch.randn(shape, requires_grad=True)
            y = x.detach().to(d).requires_grad_()
            layer(x).square().sum().backward(); other(y).square().sum().backward()
            assert_close(y.grad.cpu(), x.grad, rtol=1e-3, atol=1e-3)
            for p, q in zip(layer.parameters(), other.parameters()):
                assert_close(q.grad.cpu(), p.grad, rtol=1e-3, atol=1e-3)
    """,
    "group norm of a channels-last input": """
        x = torch.randn(4, 6, 2, 3).to(memory_format=torch.channels_last)
        layer = nn.GroupNorm(3, 6)
        got, expected = copy.deepcopy(layer).to(d)(x.to(d)), layer(x)
        assert_close(got.cpu(), expected)
        assert got.stride() == expected.stride()
    """,
    "recurrent layers and cells": """
        torch.manual_seed(0)
        x = torch.randn(5, 3, 4)
        for layer, inputs in ((nn.LSTM(4, 6, 2), (x,)), (nn.GRU(4, 6, bidirectional=True), (x,)), (nn.LSTMCell(4, 6), (x[0],)), (nn.GRUCell(4, 6), (x[0],))):
            other = copy.deepcopy(layer).to(d)
            first = lambda out: out[0] if isinstance(out, tuple) else out
            a, b = first(layer(*inputs)), first(other(*[i.to(d) for i in inputs]))
            assert_close(b.cpu(), a)
            a.square().sum().backward(); b.square().sum().backward()
            for p, q in zip(layer.parameters(), other.parameters()):
                assert_close(q.grad.cpu(), p.grad, rtol=1e-4, atol=1e-5)
    """,
    "histc of integers": """
        assert torch.histc(torch.tensor([0, 1, 1, 3], device=d), bins=4, min=0, max=3).tolist() == [1, 2, 0, 1]
    """,
    "clamp and where with two numbers": """
        x = torch.arange(8, device=d).view(2, 4)
        assert x.t().clamp(1.5, 5).tolist() == x.cpu().t().clamp(1.5, 5).tolist()
        assert x[:, ::2].clamp(2, 5).tolist() == [[2, 2], [4, 5]]
        assert torch.where(x[:, ::2] > 2, 1, 2.5).tolist() == [[2.5, 2.5], [1, 1]]
    """,
    "leaky and randomised relu backward": """
        x = torch.tensor([-1.0, 2.0], device=d, requires_grad=True)
        F.leaky_relu(x, 0.1).sum().backward()
        assert_close(x.grad.cpu(), torch.tensor([0.1, 1.0]))
        x = torch.tensor([-1.0, 2.0], device=d, requires_grad=True)
        y = F.rrelu(x, training=True)
        y.sum().backward()
        assert_close(x.grad, torch.stack([-y[0].detach(), x.new_ones(())]))
    """,
    "as_strided beyond the view": """
        x = torch.arange(10.0, device=d)
        assert x[2:4].as_strided((3,), (1,), 5).tolist() == [5, 6, 7]
        y = torch.arange(10.0, device=d, requires_grad=True)
        torch.as_strided(y * 1, (3, 2), (2, 1), 1).sum().backward()
        assert y.grad.tolist() == [0, 1, 1, 1, 1, 1, 1, 0, 0, 0]
        assert torch.as_strided_copy(x[2:4], (3,), (1,), 5).tolist() == [5, 6, 7]
        assert torch.as_strided_scatter(x, torch.zeros(2, device=d), (2,), (3,), 1).tolist() == [0, 0, 2, 3, 0, 5, 6, 7, 8, 9]
    """,
    "tensor_split by a tensor of sections": """
        x = torch.arange(8.0, device=d)
        assert [len(t) for t in torch.tensor_split(x, torch.tensor([2, 3]))] == [2, 1, 5]
        assert [len(t) for t in torch.tensor_split(x, torch.tensor(4))] == [2, 2, 2, 2]
    """,
    "jagged tensors": """
        parts = [torch.ones(2, 3), torch.ones(4, 3) * 2]
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged, device=d)
        assert_close((nested * 2).to_padded_tensor(0.0).cpu(), torch.nested.nested_tensor(parts, layout=torch.jagged).mul(2).to_padded_tensor(0.0))
    """,
    "compressed sparse tensors say what to do": """
        for call in (lambda: torch.eye(2, device=d).to_sparse_csr(), lambda: torch.eye(2).to_sparse_csr().to(d)):
            refuses(NotImplementedError, "xpud has no sparse tensors", call)
    """,
    "DLPack": """
        x = torch.arange(6.0, device=d)
        y = torch.from_dlpack(x[2:])
        y.zero_()
        assert x.tolist() == [0, 1, 0, 0, 0, 0] and x.__dlpack_device__()[0] == 12
    """,
    "torch.compile and torch.export": """
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).to(d)
        x = torch.randn(5, 3, device=d)
        assert_close(torch.compile(model)(x), model(x))
        assert_close(torch.export.export(model, (x,)).module()(x), model(x))
    """,
}

FALLBACKS = {
    "operators with a view of their own output or input see the same memory": """
        x = torch.arange(6.0, device=d)
        refuses(RuntimeError, "single memory location", lambda: torch.logaddexp(x[1:], x[1:], out=x[:-1]))
        y = torch.tensor([3.0, 1.0, 2.0], device=d)
        torch.cumsum(y, 0, out=y)
        assert y.tolist() == [3, 4, 6]
    """,
    "results keep the CPU's strides and shapes": """
        x = torch.randn(5, 2)
        for f in (lambda t: torch.linalg.lstsq(t, t.new_ones(5, 3))[0], lambda t: torch.linalg.qr(t)[0], lambda t: torch.linalg.svd(t)[2], lambda t: t.flip(0).t().sort(0)[0]):
            assert f(x.to(d)).stride() == f(x).stride()
        values, indices = torch.empty(0, device=d), torch.empty(0, dtype=torch.long, device=d)
        torch.sort(x.to(d), 0, out=(values, indices))
        assert_close(values.cpu(), x.sort(0)[0])
    """,
    "random ones follow the device's generator": """
        for draw in (lambda: torch.randperm(100, device=d), lambda: torch.multinomial(torch.ones(50, device=d), 20), lambda: torch.poisson(torch.ones(50, device=d) * 5)):
            state = torch.xpud.get_rng_state()
            host = torch.get_rng_state()
            first, second = draw(), draw()
            assert not torch.equal(first, second) and torch.equal(torch.get_rng_state(), host)
            torch.xpud.set_rng_state(state)
            assert torch.equal(draw(), first)
    """,
    "wide views are gathered, not copied with what lies between": """
        x = torch.arange(100_000.0, device=d).view(1000, 100)
        assert torch.cumsum(x[:, 0], 0).tolist() == torch.arange(0, 100_000, 100.0).cumsum(0).tolist()
        x[:, 1].cumsum_(0)
        assert x[:3, :3].tolist() == [[0, 1, 2], [100, 102, 102], [200, 303, 202]]
    """,
}


class ProgramTest(unittest.TestCase):
    def setUp(self):
        torch.xpud.synchronize()

    def run_here(self, programs):
        for name, program in programs.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(PREAMBLE + textwrap.dedent(program), name, "exec"), {})

    def test_modules_move_as_to_cuda(self):
        self.run_here(MOVES)

    def test_end_after_a_backward_pass(self):
        for _ in range(4):
            run(PREAMBLE + textwrap.dedent(ENDS_WITH_A_BACKWARD_PASS))

    def test_wrong_without_a_word(self):
        self.run_here(WRONG)

    def test_crashed(self):
        for name, program in CRASHED.items():
            with self.subTest(name):
                run(PREAMBLE + textwrap.dedent(program))

    def test_refused(self):
        self.run_here(REFUSED)

    def test_fallbacks(self):
        self.run_here(FALLBACKS)


if __name__ == "__main__":
    unittest.main()
