"""Layers for which PyTorch has separate operators on accelerators: recurrent networks, the encoder's fast path, histograms.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_layers.py
"""

import copy
import itertools
import unittest

import command_counts
import torch
import torch_xpud  # noqa: F401  also without the entry point
from torch import nn
from torch.nn.utils import rnn as packing


def to_device(value):
    """Returns the same structure with its tensors on the device, as leaves with the same requires_grad."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("xpud").requires_grad_(value.requires_grad)
    if isinstance(value, packing.PackedSequence):
        return value.to("xpud")
    return type(value)(to_device(each) for each in value) if isinstance(value, (tuple, list)) else value


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for each in value for tensor in tensors_of(each)] if isinstance(value, (tuple, list)) else []


class LayerTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.before = torch.xpud.fallback_counts()

    def assert_no_fallback(self, allowed=()):
        new = {name: count for name, count in torch.xpud.fallback_counts().items() if count != self.before.get(name, 0) and name not in allowed}
        self.assertEqual(new, {})

    def assert_close(self, actual, expected, **tolerance):
        actual, expected = tensors_of(actual), tensors_of(expected)
        self.assertEqual(len(actual), len(expected))
        for ours, theirs in zip(actual, expected):
            self.assertEqual(ours.dtype, theirs.dtype)
            torch.testing.assert_close(ours.detach().cpu(), theirs.detach().cpu(), **tolerance)


def gradients(module, arguments, call=None):
    """Returns the module's results, and the gradients of its arguments and parameters. Each element of a result has a different weight."""
    results = (call or module)(*arguments)
    floating = [each for each in tensors_of(results) if each.requires_grad]
    loss = sum((each * torch.linspace(0.5, 1.5, each.numel(), dtype=each.dtype).view(each.shape).to(each.device)).sum() for each in floating)
    wanted = [each for each in tensors_of(arguments) if each.requires_grad] + list(module.parameters())
    return results, torch.autograd.grad(loss, wanted, allow_unused=True)


class RecurrentTest(LayerTest):
    def check(self, module, arguments, call=None, **tolerance):
        there = copy.deepcopy(module).to("xpud")
        expected = gradients(module, arguments, None if call is None else lambda *a: call(module, *a))
        actual = gradients(there, to_device(arguments), None if call is None else lambda *a: call(there, *a))
        for ours, theirs in zip(actual[1], expected[1]):
            self.assertEqual(ours is None, theirs is None)
        self.assert_close(actual, expected, **tolerance)

    def state_of(self, module, batch, dtype):
        layers = module.num_layers * (2 if module.bidirectional else 1)
        shape = () if batch is None else (batch,)
        hidden = torch.randn(layers, *shape, module.proj_size or module.hidden_size, dtype=dtype, requires_grad=True)
        if module.mode != "LSTM":
            return hidden
        return hidden, torch.randn(layers, *shape, module.hidden_size, dtype=dtype, requires_grad=True)

    def test_networks_equal_the_cpus(self):
        for kind, bias, bidirectional, batch_first in itertools.product((nn.LSTM, nn.GRU, nn.RNN), (True, False), (True, False), (True, False)):
            module = kind(5, 7, 2, bias=bias, bidirectional=bidirectional, batch_first=batch_first)
            x = torch.randn(3, 4, 5, requires_grad=True)
            with self.subTest(kind=kind.__name__, bias=bias, bidirectional=bidirectional, batch_first=batch_first):
                self.check(module, (x,))
                self.check(module, (x, self.state_of(module, 3 if batch_first else 4, torch.float32)))
        self.assert_no_fallback()

    def test_projections_relu_and_unbatched_input(self):
        for module in (nn.LSTM(5, 7, 2, proj_size=3), nn.LSTM(5, 7, proj_size=3, bias=False, bidirectional=True), nn.RNN(5, 7, nonlinearity="relu"),
                       nn.GRU(5, 7)):  # fmt: skip
            with self.subTest(module=str(module)):
                self.check(module, (torch.randn(3, 4, 5, requires_grad=True), self.state_of(module, 4, torch.float32)))
                self.check(module, (torch.randn(3, 5, requires_grad=True), self.state_of(module, None, torch.float32)))
        self.assert_no_fallback()

    def test_double_precision(self):
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            module = kind(5, 7, 2, bidirectional=True).double()
            self.check(module, (torch.randn(3, 4, 5, dtype=torch.double, requires_grad=True), self.state_of(module, 4, torch.double)), rtol=1e-9, atol=1e-10)
        self.assert_no_fallback()

    def test_half_precision_rounds_once(self):
        for kind, dtype in itertools.product((nn.LSTMCell, nn.GRUCell), (torch.float16, torch.bfloat16)):
            exact = kind(5, 7).to(dtype)
            there = copy.deepcopy(exact).to("xpud")
            x, hidden = torch.randn(4, 5).to(dtype), torch.randn(4, 7).to(dtype)
            state = (hidden, hidden) if kind is nn.LSTMCell else hidden
            wide = (hidden.double(), hidden.double()) if kind is nn.LSTMCell else hidden.double()
            expected = exact.double()(x.double(), wide)
            for ours, theirs in zip(tensors_of(there(x.xpud(), to_device(state))), tensors_of(expected)):
                self.assertEqual(ours.dtype, dtype)
                # the two products of a gate are rounded, then the state
                torch.testing.assert_close(ours.detach().cpu().double(), theirs.detach(), rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)

    def test_autocast(self):
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            module = kind(5, 7, 2, bidirectional=True)
            there = copy.deepcopy(module).to("xpud")
            x = torch.randn(3, 4, 5, requires_grad=True)
            y = to_device(x)
            with torch.autocast("xpud", dtype=torch.bfloat16):
                actual = gradients(there, (y,))
            self.assertEqual(tensors_of(actual[0])[0].dtype, torch.bfloat16)
            for ours, theirs in zip(tensors_of(actual), tensors_of(gradients(module, (x,)))):
                torch.testing.assert_close(ours.detach().cpu().float(), theirs.detach(), rtol=0.05, atol=0.05 * theirs.abs().max().item())
        self.assert_no_fallback()

    def test_packed_sequences(self):
        for kind, enforce_sorted in itertools.product((nn.LSTM, nn.GRU, nn.RNN), (True, False)):
            module = kind(5, 7, 2, bidirectional=True)
            lengths = torch.tensor([6, 4, 1] if enforce_sorted else [4, 1, 6])

            def call(module, x, lengths=lengths, enforce_sorted=enforce_sorted):
                packed = packing.pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
                result, state = module(packed)
                return packing.pad_packed_sequence(result)[0], state

            self.check(module, (torch.randn(6, 3, 5, requires_grad=True),), call)
        packed = packing.pack_sequence([torch.randn(4, 5), torch.randn(2, 5)])
        self.assert_close(module.to("xpud")(packed.to("xpud"))[0].data, module.cpu()(packed)[0].data)

    def test_cells_equal_the_cpus(self):
        for kind, bias in itertools.product((nn.LSTMCell, nn.GRUCell, nn.RNNCell), (True, False)):
            module = kind(5, 7, bias=bias)
            x, hidden, cell = (torch.randn(4, width, requires_grad=True) for width in (5, 7, 7))
            self.check(module, (x,))
            self.check(module, (x, (hidden, cell) if kind is nn.LSTMCell else hidden))
            self.check(module, (x[0].detach().requires_grad_(),))
        self.assert_no_fallback()

    def test_gradient_of_one_state_alone(self):
        for which in (0, 1):
            module = nn.LSTMCell(5, 7)
            self.check(module, (torch.randn(4, 5, requires_grad=True),), lambda module, x, which=which: module(x)[which])

    def test_strides_are_the_cpus(self):
        for kind, bidirectional, batch_first, learns in itertools.product((nn.LSTM, nn.GRU, nn.RNN), (True, False), (True, False), (True, False)):
            module = kind(5, 7, 2, bidirectional=bidirectional, batch_first=batch_first)
            there = copy.deepcopy(module).to("xpud")
            x = torch.randn(3, 4, 5)
            with self.subTest(kind=kind.__name__, bidirectional=bidirectional, batch_first=batch_first, learns=learns), torch.set_grad_enabled(learns):
                for ours, theirs in zip(tensors_of(there(x.xpud())), tensors_of(module(x))):
                    self.assertEqual(ours.stride(), theirs.stride())
                    self.assertEqual(ours.requires_grad, theirs.requires_grad)
        self.assert_no_fallback()

    def test_a_step_is_a_few_commands(self):
        # one product and one kernel for each step, and some for all of them
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            module, x = kind(8, 8).to("xpud"), torch.randn(32, 2, 8).xpud()
            with torch.no_grad():
                module(x)
                before = command_counts.executed()
                module(x)
                self.assertLess(command_counts.executed() - before, 2 * 32 + 24)

    def test_inference_equals_training(self):
        for kind, lengths in itertools.product((nn.LSTM, nn.GRU, nn.RNN), (None, torch.tensor([6, 4, 1]))):
            module = kind(5, 7, 2, bidirectional=True).to("xpud")
            x = torch.randn(6, 3, 5).xpud()
            x = x if lengths is None else packing.pack_padded_sequence(x, lengths)
            learning = tensors_of(module(x)[1])
            with torch.inference_mode():
                self.assert_close(tensors_of(module(x)[1]), learning)

    def test_results_may_be_changed_in_place(self):
        module = nn.LSTM(5, 7).to("xpud")
        output, (hidden, cell) = module(torch.randn(3, 4, 5).xpud())
        hidden.detach_()
        cell.mul_(2)
        output.mul_(3).sum().backward()
        self.assertGreater(module.weight_hh_l0.grad.abs().sum().item(), 0)

    def test_an_unused_result_has_no_gradient(self):
        for kind, which in itertools.product((nn.LSTM, nn.GRU, nn.RNN), (0, 1)):
            module = kind(5, 7, 2, bidirectional=True)
            x = torch.randn(3, 4, 5, requires_grad=True)
            self.check(module, (x,), lambda m, x, which=which: tensors_of(m(x)[which])[-1])

    def test_frozen_weights(self):
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            module = kind(5, 7, 2)
            there = copy.deepcopy(module).to("xpud")
            x = torch.randn(3, 4, 5, requires_grad=True)
            y = to_device(x)
            for each in (module, there):
                each.requires_grad_(False)
            module(x)[0].sum().backward()
            there(y)[0].sum().backward()
            self.assert_close(y.grad, x.grad)
            self.assertIsNone(there.weight_hh_l0.grad)

    def test_dropout_between_layers(self):
        module = nn.LSTM(8, 64, 2, dropout=0.5).to("xpud")
        x = torch.randn(3, 4, 8).xpud()
        torch.manual_seed(1)
        first = module(x)[0]
        torch.manual_seed(1)
        self.assertTrue(torch.equal(module(x)[0], first))
        self.assertFalse(torch.equal(module(x)[0], first))
        module.eval()
        self.assertTrue(torch.equal(module(x)[0], module(x)[0]))

    def test_second_derivatives_of_networks(self):
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            module = kind(3, 4, 2, bidirectional=True).double()
            there = copy.deepcopy(module).to("xpud")

            def second(module, x):
                first = torch.autograd.grad(module(x)[0].square().sum(), (x, *module.parameters()), create_graph=True)
                return torch.autograd.grad(sum(each.square().sum() for each in first), (x, *module.parameters()))

            x = torch.randn(3, 2, 3, dtype=torch.double, requires_grad=True)
            self.assert_close(second(there, to_device(x)), second(module, x), rtol=1e-9, atol=1e-10)

    def test_halves_are_as_exact_as_the_cpus(self):
        for kind, dtype in itertools.product((nn.LSTM, nn.GRU, nn.RNN), (torch.bfloat16, torch.float16)):
            exact = kind(16, 24, 2, bidirectional=True).to(dtype)
            x = torch.randn(6, 3, 16).to(dtype)
            there, here = copy.deepcopy(exact).to("xpud"), copy.deepcopy(exact)
            expected = gradients(exact.double(), (x.double().requires_grad_(),))
            ours, theirs = gradients(there, (x.xpud().requires_grad_(),)), gradients(here, (x.clone().requires_grad_(),))
            for actual, cpu, want in zip(*map(tensors_of, (ours, theirs, expected))):
                scale = want.abs().max().item()
                error, limit = (((each.detach().cpu().double() - want.detach()).abs().max() / scale).item() for each in (actual, cpu))
                self.assertLess(error, 3 * limit + 2 * torch.finfo(dtype).eps)
        self.assert_no_fallback()

    def test_second_derivatives(self):
        for kind in (nn.LSTMCell, nn.GRUCell):
            module = kind(3, 4).double()
            there = copy.deepcopy(module).to("xpud")
            x = torch.randn(2, 3, dtype=torch.double, requires_grad=True)

            def second(module, x):
                result = tensors_of(module(x))[0]
                first = torch.autograd.grad(result.square().sum(), (x, *module.parameters()), create_graph=True)
                return torch.autograd.grad(sum(each.square().sum() for each in first), (x, *module.parameters()))

            self.assert_close(second(there, to_device(x)), second(module, x), rtol=1e-9, atol=1e-10)

    def test_training_equals_the_cpus(self):
        here = nn.ModuleDict({"rnn": nn.LSTM(6, 8, 2, batch_first=True), "head": nn.Linear(8, 3)})
        there = copy.deepcopy(here).to("xpud")
        x, target = torch.randn(5, 7, 6), torch.randint(3, (5,))
        losses = []
        for modules, device in ((here, "cpu"), (there, "xpud")):
            optimizer = torch.optim.AdamW(modules.parameters(), lr=0.05)
            losses.append([])
            for _ in range(4):
                loss = nn.functional.cross_entropy(modules["head"](modules["rnn"](x.to(device))[0][:, -1]), target.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
        torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-4, atol=1e-5)

    def test_sizes_that_do_not_fit_are_refused(self):
        gates, state = torch.zeros(2, 28, device="xpud"), torch.zeros(2, 7, device="xpud")
        with self.assertRaises(RuntimeError):
            torch.ops.aten._thnn_fused_lstm_cell(gates, gates[:1], state)
        with self.assertRaises(RuntimeError):
            torch.ops.aten._thnn_fused_lstm_cell(gates, gates, state[:, :6])
        with self.assertRaises(RuntimeError):
            torch.ops.aten._thnn_fused_gru_cell(gates[:, :21], gates[:, :21], state, torch.zeros(21, device="xpud"), None)


def hidden_after(lengths, tokens):
    """True where a token is padding."""
    return torch.arange(tokens) >= torch.tensor(lengths).unsqueeze(1)


@torch.no_grad()
def both(module, *tensors, **named):
    """Returns the module's results on the device and on the CPU."""
    there = copy.deepcopy(module).to("xpud")
    on_device = {name: to_device(value) for name, value in named.items()}
    return there(*(tensor.xpud() for tensor in tensors), **on_device), module(*tensors, **named)


class EncoderTest(LayerTest):
    masks = {
        "none": {},
        "padding": {"key_padding_mask": hidden_after((6, 3, 1), 6)},
        "source": {"attn_mask": torch.ones(6, 6).triu(1).bool()},
        "both": {"key_padding_mask": hidden_after((6, 3, 1), 6), "attn_mask": torch.ones(6, 6).triu(1).bool()},
        "each": {"attn_mask": (torch.arange(6 * 6 * 12).view(12, 6, 6) % 7 == 3)},
        "nothing visible": {"key_padding_mask": hidden_after((6, 0, 2), 6)},
    }

    def test_attention_equals_the_cpus(self):
        module = nn.MultiheadAttention(16, 4, batch_first=True).eval()
        x = torch.randn(3, 6, 16)
        for (name, masks), need, average in itertools.product(self.masks.items(), (True, False), (True, False)):
            with self.subTest(mask=name, need_weights=need, average=average), torch.no_grad():
                there, y = copy.deepcopy(module).to("xpud"), x.xpud()
                ours, weights = there(y, y, y, need_weights=need, average_attn_weights=average, **{key: mask.xpud() for key, mask in masks.items()})
                theirs, their_weights = module(x, x, x, need_weights=need, average_attn_weights=average, **masks)
                torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True)
                self.assertEqual(weights is None, their_weights is None)
                if need:
                    torch.testing.assert_close(weights.cpu(), their_weights, equal_nan=True)
        self.assert_no_fallback()

    def test_queries_keys_and_values_may_differ(self):
        q, k, v = (torch.randn(2, 5, 8) for _ in range(3))
        weights = torch.randn(24, 8), torch.randn(24), torch.randn(8, 8), torch.randn(8)
        for tensors in ((q, k, v), (q, k, k), (q, q, q)):
            expected = torch._native_multi_head_attention(*tensors, 8, 2, *weights)
            moved = {id(each): each.xpud() for each in tensors}
            there = [moved[id(each)] for each in tensors]
            self.assert_close(torch._native_multi_head_attention(*there, 8, 2, *(each.xpud() for each in weights)), expected)
        self.assert_no_fallback()

    def test_half_precision_stays_finite(self):
        for dtype, need in itertools.product((torch.float16, torch.bfloat16), (True, False)):
            module = nn.MultiheadAttention(64, 4, batch_first=True).eval()
            with torch.no_grad():
                for weight in module.parameters():
                    weight.mul_(3)
                x = (torch.randn(2, 6, 64) * 80).to(dtype)
                expected, _ = copy.deepcopy(module).to(dtype).double()(x.double(), x.double(), x.double())
                y = x.xpud()
                there = copy.deepcopy(module).to(dtype).to("xpud")
                actual, weights = there(y, y, y, need_weights=need)
                # the scores far exceed f16's maximum, 65504
                q, k, _ = nn.functional.linear(x.float(), module.in_proj_weight, module.in_proj_bias).chunk(3, 2)
                self.assertGreater((q @ k.mT).abs().max().item(), 65504)
            self.assertTrue(actual.isfinite().all().item())
            self.assertEqual(actual.dtype, dtype)
            if need:
                self.assertTrue(weights.isfinite().all().item())
            # rounding a score may move a weight to another token, so only most elements are compared
            wrong = (actual.cpu().double() - expected).abs() > 0.05 * expected.abs().max()
            self.assertLess(wrong.double().mean().item(), 0.1)
        self.assert_no_fallback()

    def test_encoder_layers_equal_the_cpus(self):
        x = torch.randn(3, 6, 16)
        for activation, norm_first, (name, masks) in itertools.product(("relu", "gelu"), (True, False), self.masks.items()):
            if name == "each":
                continue
            module = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation=activation, norm_first=norm_first).eval()
            masks = {{"key_padding_mask": "src_key_padding_mask", "attn_mask": "src_mask"}[key]: mask for key, mask in masks.items()}
            with self.subTest(activation=activation, norm_first=norm_first, mask=name):
                ours, theirs = both(module, x, **masks)
                torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True)
        self.assert_no_fallback()

    def test_encoder_layer_in_other_types(self):
        for dtype, tolerance in ((torch.float64, 1e-10), (torch.float16, 0.02), (torch.bfloat16, 0.1)):
            module = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval().to(dtype)
            x = torch.randn(3, 6, 16).to(dtype)
            ours, _ = both(module, x, src_key_padding_mask=hidden_after((6, 3, 1), 6))
            expected = copy.deepcopy(module).double()(x.double(), src_key_padding_mask=hidden_after((6, 3, 1), 6))
            self.assertEqual(ours.dtype, dtype)
            torch.testing.assert_close(ours.cpu().double(), expected, rtol=tolerance, atol=tolerance)
        self.assert_no_fallback()

    def test_fast_path_under_autocast(self):
        module = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
        x = torch.randn(3, 6, 16)
        with torch.no_grad(), torch.autocast("xpud", dtype=torch.bfloat16):
            actual = copy.deepcopy(module).to("xpud")(x.xpud())
        self.assertEqual(actual.dtype, torch.float32)
        torch.testing.assert_close(actual.cpu(), module(x).detach(), rtol=0.1, atol=0.1)
        self.assert_no_fallback()

    def test_whole_encoder_equals_the_cpus(self):
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        module = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False).eval()
        x = torch.randn(3, 6, 16)
        for masks in ({}, {"src_key_padding_mask": hidden_after((6, 3, 1), 6)}, {"mask": torch.ones(6, 6).triu(1).bool()}):
            ours, theirs = both(module, x, **masks)
            torch.testing.assert_close(ours.cpu(), theirs)
        self.assert_no_fallback()

    def test_wrong_masks_are_refused(self):
        x, weights = torch.randn(2, 5, 8, device="xpud"), [torch.randn(*size, device="xpud") for size in ((24, 8), (24,), (8, 8), (8,))]
        for mask, kind in ((torch.zeros(2, 5), None), (torch.zeros(2, 4), 1), (torch.zeros(2, 5), 0), (torch.zeros(5, 5), 2), (torch.zeros(5, 5), 7)):
            with self.assertRaises(RuntimeError):
                torch._native_multi_head_attention(x, x, x, 8, 2, *weights, mask.bool().xpud(), mask_type=kind)


class GroupedProductTest(LayerTest):
    """Products of groups of rows with matrices of their own, as mixtures of experts have them. ATen's composition reads where the groups end, and waits for it."""

    def test_every_form_and_its_gradients(self):
        ends = torch.tensor([8, 8, 32], dtype=torch.int32)
        forms = [((32, 16), (3, 16, 24), ends), ((3, 16, 32), (3, 32, 24), None), ((16, 32), (32, 24), ends), ((3, 16, 32), (32, 24), torch.tensor([8, 16, 24], dtype=torch.int32))]
        for (left, right, offsets), dtype in itertools.product(forms, (torch.float32, torch.bfloat16, torch.float16)):
            with self.subTest(left=left, right=right, dtype=dtype):
                here = [torch.randn(size).to(dtype).requires_grad_() for size in (left, right)]
                there = to_device(here)
                expected = torch._grouped_mm(*here, offsets)
                actual = torch._grouped_mm(*there, None if offsets is None else offsets.xpud())
                gradient = torch.randn_like(expected)
                tolerance = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 4e-2}
                self.assert_close(actual, expected, **tolerance)
                self.assert_close(torch.autograd.grad(actual, there, gradient.xpud()), torch.autograd.grad(expected, here, gradient), **tolerance)
        self.assert_no_fallback()


class DistanceTest(LayerTest):
    def test_distances_and_their_gradients(self):
        for p, (rows, others) in itertools.product((0, 0.5, 1, 1.5, 2, 3, float("inf")), ((5, 4), (30, 4))):
            x, y = torch.randn(2, rows, 6, requires_grad=True), torch.randn(1, others, 6, requires_grad=True)
            with torch.no_grad():
                x[0, 0] = y[0, 1]  # a distance of 0
            u, v = to_device((x, y))
            with self.subTest(p=p, rows=rows):
                actual, expected = torch.cdist(u, v, p), torch.cdist(x, y, p)
                self.assert_close(actual, expected, rtol=1e-4, atol=1e-3 if p == 2 else 1e-5)
                if p != 2:  # by a product, a distance of 0 is not exact
                    weights = torch.randn_like(expected)
                    self.assert_close(torch.autograd.grad(actual, (u, v), weights.xpud()), torch.autograd.grad(expected, (x, y), weights), rtol=1e-3, atol=1e-4)
        self.assert_no_fallback()

    def test_pairs_of_rows(self):
        for p in (0, 1, 2, 2.5, float("inf")):
            x = torch.randn(7, 5, requires_grad=True)
            y = to_device(x)
            actual, expected = nn.functional.pdist(y, p), nn.functional.pdist(x, p)
            self.assert_close(actual, expected)
            weights = torch.randn_like(expected)
            self.assert_close(torch.autograd.grad(actual, y, weights.xpud()), torch.autograd.grad(expected, x, weights), rtol=1e-4, atol=1e-5)
        self.assertEqual(nn.functional.pdist(torch.ones(1, 3).xpud()).shape, (0,))
        self.assert_no_fallback()


class HistogramTest(LayerTest):
    integers = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

    def test_integer_histc_counts_as_cuda_does(self):
        values = torch.tensor([0, 1, 1, 2, 3, 3, 3, 7, 9, 10, 10, 12])
        for dtype in self.integers:
            x = values.to(dtype).xpud()
            for bins, low, high, expected in ((4, 0, 3, [1, 2, 1, 3]), (5, 0, 10, [3, 4, 0, 1, 3]), (3, 1, 9, [6, 0, 2]),
                                              (10, 2, 4, [1, 0, 0, 0, 0, 3, 0, 0, 0, 0])):  # fmt: skip
                actual = torch.histc(x, bins, low, high)
                self.assertEqual(actual.dtype, dtype)
                self.assertEqual(actual.tolist(), expected, (bins, low, high))
            # the data's range: 0 to 12
            self.assertEqual(torch.histc(x, 4).tolist(), [4, 3, 1, 4])
        self.assert_no_fallback()

    def test_integer_histc_agrees_with_floating_bins(self):
        x = torch.randint(0, 64, (4096,))
        self.assertEqual(torch.histc(x.xpud(), 64, 0, 63).tolist(), torch.bincount(x, minlength=64).tolist())
        self.assertEqual(torch.histc(x.xpud(), 8, 0, 64).tolist(), torch.histc(x.double(), 8, 0, 64).long().tolist())
        self.assert_no_fallback()

    def test_edges_of_histc(self):
        x = torch.full((5,), 3, device="xpud")
        self.assertEqual(torch.histc(x, 4).tolist(), [0, 0, 5, 0])
        self.assertEqual(torch.histc(torch.empty(0, dtype=torch.int64, device="xpud"), 3).tolist(), [0, 0, 0])
        self.assertEqual(torch.histc(torch.arange(12, device="xpud").view(3, 4).t()[::2], 2, 0, 11).tolist(), [3, 3])
        out = torch.empty(0, dtype=torch.int64, device="xpud")
        self.assertIs(torch.histc(x, 4, 0, 4, out=out), out)
        self.assertEqual(out.tolist(), [0, 0, 0, 5])
        for arguments in ((0, 0, 4), (-1, 0, 4), (4, 5, 2)):
            with self.assertRaises(RuntimeError):
                torch.histc(x, *arguments)

    def test_floating_histc_falls_back(self):
        x = torch.rand(100)
        torch.testing.assert_close(torch.histc(x.xpud(), 7, 0, 1).cpu(), torch.histc(x, 7, 0, 1))

    def test_bincount_equals_the_cpus(self):
        for dtype in self.integers:
            x = torch.randint(0, 9, (50,)).to(dtype)
            for least in (0, 4, 20):
                self.assert_close(torch.bincount(x.xpud(), minlength=least), torch.bincount(x, minlength=least))
            for weights in (torch.rand(50), torch.rand(50, dtype=torch.double), torch.randint(5, (50,))):
                self.assert_close(torch.bincount(x.xpud(), weights.xpud()), torch.bincount(x, weights))
        empty = torch.empty(0, dtype=torch.int64)
        self.assert_close(torch.bincount(empty.xpud(), minlength=3), torch.bincount(empty, minlength=3))
        self.assert_no_fallback()
        for bad in (torch.tensor([1, -1]), torch.ones(2, 2, dtype=torch.int64)):
            with self.assertRaises(RuntimeError):
                torch.bincount(bad.xpud())
        with self.assertRaises(RuntimeError):
            torch.bincount(torch.ones(3, dtype=torch.int64).xpud(), torch.ones(2).xpud())


if __name__ == "__main__":
    unittest.main()
