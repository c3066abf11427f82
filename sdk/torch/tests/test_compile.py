"""torch.compile and torch.export: graphs of forward and backward on xpud, compared with eager execution on the CPU.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_compile.py
"""

import copy
import unittest
import warnings

import torch
import torch._dynamo
import torch._dynamo.testing
import torch_xpud  # noqa: F401  also without the entry point
from test_device import run
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))

    def forward(self, x):
        return self.body(x).square().mean()


class ConvNet(nn.Module):
    """A network whose `flatten` and `view` are valid only for contiguous activations."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.head = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.second(x))
        x = x.reshape(x.shape[0], -1, 8).flatten(1)
        return nn.functional.cross_entropy(self.head(x), torch.zeros(x.shape[0], dtype=torch.int64, device=x.device))


class Compiled(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        warnings.filterwarnings("ignore", message="xpud has no kernel")

    def train(self, model, inputs, optimizer=torch.optim.AdamW, **options):
        """Trains a model on the CPU and, compiled, on xpud; compares losses, gradients of the last step, parameters and buffers."""
        there = copy.deepcopy(model).to("xpud")
        compiled = torch.compile(there, **options)
        here_steps, there_steps = optimizer(model.parameters(), lr=1e-2), optimizer(there.parameters(), lr=1e-2)
        for value in inputs:
            here_steps.zero_grad()
            there_steps.zero_grad()
            loss, loss_there = model(value), compiled(value.to("xpud"))
            torch.testing.assert_close(loss_there.cpu(), loss, atol=1e-4, rtol=1e-4)
            loss.backward()
            loss_there.backward()
            here_steps.step()
            there_steps.step()
        for (name, here), other in zip(model.named_parameters(), there.parameters()):
            torch.testing.assert_close(other.grad.cpu(), here.grad, atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}")
            torch.testing.assert_close(other.detach().cpu(), here.detach(), atol=1e-3, rtol=1e-3)
        for here, other in zip(model.buffers(), there.buffers()):
            torch.testing.assert_close(other.cpu(), here, atol=1e-4, rtol=1e-3)


class TrainingTest(Compiled):
    def test_mlp(self):
        for options in ({}, {"fullgraph": True}, {"mode": "reduce-overhead"}, {"mode": "max-autotune"},
                        {"backend": "xpud"}, {"backend": "aot_eager"}, {"backend": "eager"}):  # fmt: skip
            with self.subTest(options):
                torch._dynamo.reset()
                self.train(Mlp(), [torch.randn(6, 8) for _ in range(3)], **options)

    def test_convolution_net(self):
        self.train(ConvNet(), [torch.randn(2, 3, 8, 8) for _ in range(3)], torch.optim.SGD)  # not Adam, which magnifies noise: a bias before a norm has no gradient

    def test_convolution_net_of_channels_last_images(self):
        model = ConvNet().to(memory_format=torch.channels_last)
        self.train(model, [torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last) for _ in range(2)], torch.optim.SGD)

    def test_buffers_are_mutated_in_the_graph(self):
        class Counts(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))
                self.register_buffer("seen", torch.zeros(3))

            def forward(self, x):
                self.seen += x.detach().sum(0)
                return (x * self.weight * self.seen).sum()

        self.train(Counts(), [torch.randn(4, 3) for _ in range(3)], torch.optim.SGD)

    def test_graph_breaks(self):
        class Breaks(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x):
                x = self.first(x)
                torch._dynamo.graph_break()
                if x.sum().item() > 0:
                    x = x * 2
                return self.second(torch.tanh(x)).square().mean()

        self.train(Breaks(), [torch.randn(4, 4) for _ in range(3)])

    def test_activation_checkpointing_with_dropout(self):
        """The backward pass recomputes the forward pass with the same random numbers."""

        def body(x, weight):
            return nn.functional.dropout(torch.sin(x @ weight), 0.5)

        def loss(x, weight):
            return torch.utils.checkpoint.checkpoint(body, x, weight, use_reentrant=False).sum()

        for device, backend in (("xpud", "inductor"), ("xpud", "aot_eager"), ("cpu", "aot_eager")):
            with self.subTest(device=device, backend=backend):
                torch._dynamo.reset()
                weight = torch.eye(32, device=device, requires_grad=True)
                x = torch.full((64, 32), 0.5, device=device)
                value = torch.compile(loss, fullgraph=True, backend=backend)(x, weight)
                value.backward()
                # Each kept element adds 2 sin(0.5) to the value and 2 cos(0.5) * 0.5 to its column of the gradient, in every row.
                kept = value.item() / (2 * torch.sin(torch.tensor(0.5)).item())
                self.assertTrue(0.3 < kept / x.numel() < 0.7)
                self.assertAlmostEqual(weight.grad[0].sum().item(), kept * torch.cos(torch.tensor(0.5)).item(), places=1)

    def test_activation_checkpointing(self):
        class Checkpointed(Mlp):
            def forward(self, x):
                return torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False).square().mean()

        self.train(Checkpointed(), [torch.randn(6, 8) for _ in range(2)], fullgraph=True)

    def test_autocast(self):
        model = Mlp()
        there = copy.deepcopy(model).to("xpud")

        def step(model, x, kind):
            with torch.autocast(kind, dtype=torch.bfloat16):
                return model.body(x)

        x = torch.randn(6, 8)
        value = torch.compile(step, fullgraph=True)(there, x.to("xpud"), "xpud")
        expected = step(there, x.to("xpud"), "xpud")
        self.assertEqual(value.dtype, expected.dtype)
        torch.testing.assert_close(value, expected, atol=2e-2, rtol=2e-2)  # fused operations do not round between
        value.float().sum().backward()
        self.assertTrue(all(each.grad is not None for each in there.parameters()))

    def test_dropout_is_random_and_has_its_own_backward(self):
        compiled = torch.compile(lambda x: nn.functional.dropout(x, 0.25) * 3, fullgraph=True)
        x = torch.ones(10000, device="xpud", requires_grad=True)
        first, second = compiled(x), compiled(x)
        self.assertFalse(torch.equal(first, second))
        self.assertAlmostEqual((first == 0).float().mean().item(), 0.25, delta=0.03)
        first.sum().backward()
        torch.testing.assert_close(x.grad, first.detach())

    def test_attention(self):
        def attend(q, k, v):
            q, k, v = (each.unflatten(-1, (4, -1)).transpose(1, 2) for each in (q, k, v))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return mixed.transpose(1, 2).flatten(2)

        here = [torch.randn(2, 6, 32, requires_grad=True) for _ in range(3)]
        there = [each.detach().to("xpud").requires_grad_() for each in here]
        expected, value = attend(*here), torch.compile(attend, fullgraph=True)(*there)
        torch.testing.assert_close(value.cpu(), expected, atol=1e-4, rtol=1e-4)
        expected.square().sum().backward()
        value.square().sum().backward()
        for one, other in zip(here, there):
            torch.testing.assert_close(other.grad.cpu(), one.grad, atol=1e-4, rtol=1e-3)

    def test_optimizer_step(self):
        model = Mlp()
        there = copy.deepcopy(model).to("xpud")
        optimizers = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.optim.SGD(there.parameters(), lr=0.1, momentum=0.9)
        step = torch.compile(optimizers[1].step)
        for _ in range(3):
            x = torch.randn(6, 8)
            model(x).backward()
            there(x.to("xpud")).backward()
            optimizers[0].step()
            step()
        for here, other in zip(model.parameters(), there.parameters()):
            torch.testing.assert_close(other.detach().cpu(), here.detach(), atol=1e-4, rtol=1e-3)


class TransformersTest(Compiled):
    def compare(self, model, tokens):
        class Loss(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, ids):
                return self.model(input_ids=ids)[0].square().mean()

        self.train(Loss(), tokens, torch.optim.SGD)

    def test_bert(self):
        from transformers import BertConfig, BertModel

        config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=32,
                            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
        self.compare(BertModel(config, add_pooling_layer=False), [torch.randint(0, 50, (2, 7)) for _ in range(2)])

    def test_llama(self):
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
                             max_position_embeddings=32, use_cache=False)  # fmt: skip
        self.compare(LlamaForCausalLM(config), [torch.randint(0, 50, (2, length)) for length in (7, 9)])


class GraphTest(Compiled):
    def test_batch_sizes_do_not_recompile_each(self):
        for options in ({}, {"dynamic": True}):
            with self.subTest(options):
                torch._dynamo.reset()
                counter = torch._dynamo.testing.CompileCounterWithBackend("xpud")
                model = Mlp().to("xpud")
                compiled = torch.compile(model, backend=counter, **options)
                for size in (3, 5, 8, 13, 21):
                    x = torch.randn(size, 8, device="xpud")
                    torch.testing.assert_close(compiled(x), model(x))
                self.assertLessEqual(counter.frame_count, 2)

    def test_inputs_are_mutated(self):
        def change(x, y):
            x.mul_(2)
            y[1:] += x[:-1]
            return x.t() + y

        here = torch.randn(4, 4), torch.randn(4, 4)
        there = [each.to("xpud") for each in here]
        torch.testing.assert_close(torch.compile(change, fullgraph=True)(*there).cpu(), change(*here))
        torch.testing.assert_close(there[0].cpu(), here[0])
        torch.testing.assert_close(there[1].cpu(), here[1])

    def test_outputs_that_alias_inputs_share_memory(self):
        there = torch.zeros(2, 3, device="xpud")
        view, doubled = torch.compile(lambda x: (x.t()[1:], x * 2), fullgraph=True)(there)
        self.assertEqual(view.untyped_storage().data_ptr(), there.untyped_storage().data_ptr())
        view.fill_(5)
        self.assertEqual(there.tolist(), [[0, 5, 5], [0, 5, 5]])
        self.assertEqual(doubled.sum().item(), 0)

    def test_functions_that_only_make_tensors(self):
        made = torch.compile(lambda n: torch.arange(n, device="xpud") * 2, fullgraph=True)(5)
        self.assertEqual((made.device.type, made.tolist()), ("xpud", [0, 2, 4, 6, 8]))

    def test_constants_and_moves(self):
        table = torch.arange(4.0, device="xpud")
        value = torch.compile(lambda x: x.to("xpud") + table, fullgraph=True)(torch.ones(4))
        self.assertEqual(value.tolist(), [1, 2, 3, 4])
        self.assertEqual(torch.compile(lambda x: (x * 2).cpu() + 1, fullgraph=True)(table).tolist(), [1, 3, 5, 7])

    def test_layouts_that_differ_from_the_fake_tensors(self):
        """If an operator's kernel returns another layout than its fake, its strides and later views must be the fake's."""
        with torch.library._scoped_library("xpud_test", "DEF") as library:
            library.define("turned(Tensor x) -> Tensor")
            library.define("turned_pair(Tensor x) -> (Tensor, Tensor)")
            turned = lambda x: (x + 1).transpose(0, -1).contiguous().transpose(0, -1)  # noqa: E731
            library.impl("turned", turned, "PrivateUse1")
            library.impl("turned", lambda x: torch.empty_like(x).contiguous(), "Meta")
            library.impl("turned_pair", lambda x: (turned(x), x + 1), "PrivateUse1")
            library.impl("turned_pair", lambda x: (torch.empty_like(x), torch.empty_strided(x.shape, (1, 2, 6), device=x.device)), "Meta")

            def views(x):
                pair = torch.ops.xpud_test.turned_pair(x)
                return torch.ops.xpud_test.turned(x).view(6, 4), pair[0].view(-1), pair[1].permute(2, 1, 0).view(-1), pair[1] * 1

            for options in ({}, {"dynamic": True}):
                torch._dynamo.reset()
                x = torch.arange(24.0).view(2, 3, 4)
                first, second, third, fourth = torch.compile(views, fullgraph=True, **options)(x.to("xpud"))
                self.assertEqual(first.tolist(), (x + 1).view(6, 4).tolist())
                self.assertEqual(second.tolist(), (x + 1).view(-1).tolist())
                self.assertEqual(third.tolist(), (x + 1).permute(2, 1, 0).flatten().tolist())
                self.assertEqual(fourth.stride(), (1, 2, 6))

    def test_layouts_in_the_bodies_of_control_flow(self):
        weight = torch.randn(4, 3, 3, 3)

        def branch(x, weight):  # a view that only a channels-last convolution allows
            return torch.cond(x.sum() > 0, lambda x: (nn.functional.conv2d(x, weight) * 2).permute(0, 2, 3, 1).view(2, -1), lambda x: x.new_zeros(2, 64), (x,))

        x = torch.rand(2, 3, 6, 6).to(memory_format=torch.channels_last)
        value = torch.compile(branch, fullgraph=True)(x.to("xpud"), weight.to("xpud"))
        torch.testing.assert_close(value.cpu(), (nn.functional.conv2d(x, weight) * 2).permute(0, 2, 3, 1).reshape(2, -1), atol=1e-5, rtol=1e-5)

    def test_streams_in_graphs(self):
        side = torch.xpud.Stream()

        def on_side(x):
            with torch.xpud.stream(side):
                y = x + 1
            side.synchronize()
            return y * 2

        self.assertEqual(torch.compile(on_side)(torch.ones(3, device="xpud")).tolist(), [4, 4, 4])

    def test_device_interface(self):
        torch.compile(lambda x: x)
        interface = torch._dynamo.device_interface.get_interface_for_device(torch.device("xpud", 0))
        self.assertEqual(interface.current_device(), torch.xpud.current_device())
        self.assertEqual(interface.device_count(), torch.xpud.device_count())
        self.assertTrue(interface.is_available() and interface.is_bf16_supported() and interface.is_dtype_supported(torch.bfloat16))
        self.assertFalse(interface.is_triton_capable())
        self.assertEqual(interface.get_raw_stream(0), interface.current_stream().stream_id)
        self.assertTrue(interface.get_device_properties(0).total_memory > 0)
        event = interface.Event()
        event.record(interface.current_stream())
        interface.synchronize()
        with interface.device(0):
            self.assertEqual(interface.exchange_device(0), 0)
        self.assertTrue(event.query())

    def test_errors_are_pytorchs(self):
        with self.assertRaises(torch._dynamo.exc.Unsupported):
            torch.compile(lambda x: x * x.sum().item() if x.sum() > 0 else x, fullgraph=True)(torch.ones(2, device="xpud"))
        with self.assertRaises(torch._dynamo.exc.TorchRuntimeError):
            torch.compile(lambda x: x @ x)(torch.ones(2, 3, device="xpud"))
        with self.assertRaises(torch._dynamo.exc.BackendCompilerFailed):
            torch.compile(lambda x: x + 1, backend="xpud", options={"fast": True})(torch.ones(2, device="xpud"))
        with self.assertRaisesRegex(RuntimeError, "Unexpected optimization option"):
            torch.compile(lambda x: x + 1, options={"no_such_option": True})

    def test_export(self):
        model = Mlp().to("xpud").eval()
        x = torch.randn(3, 8, device="xpud")
        program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        torch.testing.assert_close(program.module()(x), model(x))
        torch.testing.assert_close(torch.compile(program.module())(x), model(x))
        longer = torch.randn(5, 8, device="xpud")
        torch.testing.assert_close(program.module()(longer), model(longer))


class ProcessTest(unittest.TestCase):
    def test_importing_torch_does_not_import_dynamo(self):
        out = run("""
            import sys, torch, torch_xpud
            print(sorted(name for name in ("torch._dynamo", "torch._inductor", "torch_xpud.dynamo") if name in sys.modules))
        """)
        self.assertEqual(out.strip(), "[]")

    def test_a_daemon_without_loop_kernels_is_said_once(self):
        out = run("""
            import warnings
            import torch, torch_xpud
            from torch_xpud import _C
            _C.loop_kernels_supported = lambda: False
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for n in range(3):
                    assert torch.compile(lambda x: x * n)(torch.ones(2, device="xpud")).tolist() == [n, n]
            print(sum("this daemon has no loop kernels" in str(each.message) for each in said))
        """)
        self.assertEqual(out.strip(), "1")

    def test_settings_are_for_graphs_of_xpud_alone(self):
        out = run("""
            import torch, torch_xpud
            from torch._inductor import compile_fx, config
            seen = []
            def inner(graph, *args, **kwargs):
                seen.append((config.split_reductions, config.layout_optimization))
                raise NotImplementedError("no C++ compiler is needed to know that the graph came here")
            compile_fx._compile_fx_main = inner
            before = config.split_reductions, config.layout_optimization
            for device in ("cpu", "xpud", "cpu"):
                torch._dynamo.reset()
                try:
                    torch.compile(torch.nn.Linear(3, 3, device=device), mode="max-autotune")(torch.ones(2, 3, device=device))
                except Exception as error:
                    assert "no C++ compiler is needed" in str(error), error
            print(seen == [before, (False, False), before], before == (config.split_reductions, config.layout_optimization))
        """)
        self.assertEqual(out.strip(), "True True")

    def test_inductor_by_its_name(self):
        out = run("""
            import torch, torch_xpud
            from torch._inductor import metrics
            print(torch._dynamo.optimize("inductor")(lambda x: x + 1)(torch.ones(2, device="xpud")).tolist(), metrics.generated_kernel_count)
        """)
        self.assertEqual(out.strip(), "[2.0, 2.0] 1")

    def test_cpu_and_xpud_models_in_one_process(self):
        out = run("""
            import torch, torch_xpud
            torch.manual_seed(0)
            here = torch.nn.Linear(3, 3)
            there = torch.nn.Linear(3, 3).to("xpud")
            there.load_state_dict(here.state_dict())
            here, there = torch.compile(here), torch.compile(there)
            x = torch.ones(2, 3)
            torch.testing.assert_close(there(x.to("xpud")).cpu(), here(x))
            print(torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"] + torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"])
        """)
        self.assertEqual(out.strip(), "2")


if __name__ == "__main__":
    unittest.main()
