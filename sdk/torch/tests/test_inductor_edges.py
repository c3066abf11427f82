"""torch.compile on xpud at its edges: what is not fused, what is refused, what users see, processes and caches.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_inductor_edges.py
"""

import glob
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from unittest import mock

import torch
import torch._dynamo
import torch_xpud  # noqa: F401  also without the entry point
from test_device import run
from test_inductor import Compiled, needs_loop_kernels
from torch import nn
from torch._inductor import config
from torch_xpud.inductor import compile_graph, scheduling


class Quantized(torch.Tensor):
    """A matrix of int8, with a scale for each row or column."""

    @staticmethod
    def __new__(cls, numbers, scales):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scales.dtype, device=numbers.device)

    def __init__(self, numbers, scales):
        self.numbers, self.scales = numbers, scales

    def __tensor_flatten__(self):
        return ["numbers", "scales"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["numbers"], inner["scales"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args, kwargs=None):
        if function in (torch.ops.aten.detach.default, torch.ops.aten.t.default, torch.ops.aten.alias.default):
            return cls(function(args[0].numbers), function(args[0].scales))
        return function(*(each.numbers * each.scales if isinstance(each, cls) else each for each in args), **(kwargs or {}))


class NotFusedTest(Compiled):
    """What loops do not express runs beside them, and is right."""

    def test_branches(self):
        def branch(x):
            return torch.cond(x.sum() > 0, lambda x: (x * 2).softmax(-1), lambda x: x.sin() - 1, (x,))

        x = torch.rand(3, 4)
        self.compare(branch, x)
        self.compare(branch, -x)

    def test_loops_of_programs(self):
        from torch._higher_order_ops.while_loop import while_loop

        self.compare(lambda i, x: while_loop(lambda i, x: i.sum() < 3, lambda i, x: (i + 1, (x * 1.5).sin()), (i, x)), torch.zeros(1), torch.rand(4))

    def test_scans_of_any_function(self):
        from torch._higher_order_ops.associative_scan import associative_scan

        self.compare(lambda x: associative_scan(lambda a, b: a * b + a, x, 0, combine_mode="generic"), torch.rand(6, 3), strides=False)

    def test_complex_numbers(self):
        x, y = (torch.randn(3, 4, dtype=torch.complex64) for _ in range(2))
        self.compare(lambda x, y: ((x * y + 1).abs(), torch.view_as_real(x * y).sum(-1).sin(), (x @ y.T).real * 2, x.conj().imag + 1), x, y, atol=1e-4)

    def test_jagged_tensors(self):
        values, offsets = torch.randn(7, 4), torch.tensor([0, 2, 3, 7])
        jagged = torch.nested.nested_tensor_from_jagged(values.to("xpud"), offsets.to("xpud"))
        made = torch.compile(lambda x: (x * 2 + 1).sin(), fullgraph=True)(jagged)
        torch.testing.assert_close(made.values().cpu(), (values * 2 + 1).sin())

    def test_tensor_subclasses(self):
        from torch.testing._internal.two_tensor import TwoTensor

        pair = torch.randn(3, 3), torch.randn(3, 3)
        made = torch.compile(lambda x: (x * 2).sin().sum(0), fullgraph=True)(TwoTensor(*(each.to("xpud") for each in pair)))
        for one, other in zip((made.a, made.b), pair):
            torch.testing.assert_close(one.cpu(), (other * 2).sin().sum(0))

    def test_operators_of_programs(self):
        with torch.library._scoped_library("xpud_edges", "DEF") as library:
            library.define("twice(Tensor x) -> Tensor")
            library.define("increase(Tensor(a!) x) -> ()")

            def increase(x):
                x.add_(1)

            library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
            library.impl("increase", increase, "CompositeExplicitAutograd")

            def function(x):
                y = x.sin()
                torch.ops.xpud_edges.increase(y)
                return torch.ops.xpud_edges.twice(y).cos()

            self.compare(function, torch.randn(5))

    def test_frozen_weights(self):
        here = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)).eval()
        x = torch.randn(2, 3, 8, 8)
        with torch.no_grad(), config.patch(freezing=True):
            expected = here(x)
            torch.testing.assert_close(torch.compile(here.to("xpud"), fullgraph=True)(x.to("xpud")).cpu(), expected, atol=1e-5, rtol=1e-4)

    def test_precision_casts_of_eager_execution(self):
        def function(x, y):
            return ((x * y) + x).sin() * y

        x, y = (torch.randn(1000).bfloat16().to("xpud") for _ in range(2))
        with config.patch(emulate_precision_casts=True):
            self.assertTrue(torch.equal(torch.compile(function, fullgraph=True)(x, y), function(x, y)))

    def test_recurrent_layers(self):
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            with self.subTest(kind), torch._dynamo.config.patch(allow_rnn=True):
                torch._dynamo.reset()
                here, x = kind(8, 16), torch.randn(3, 5, 8)
                expected = here(x)[0]
                expected.square().sum().backward()
                wanted = [parameter.grad for parameter in here.parameters()]
                here.zero_grad()
                there = here.to("xpud")
                value = torch.compile(there, fullgraph=True)(x.to("xpud"))[0]
                torch.testing.assert_close(value.detach().cpu(), expected.detach())
                value.square().sum().backward()
                torch.testing.assert_close([parameter.grad.cpu() for parameter in there.parameters()], wanted, atol=1e-4, rtol=1e-4)

    def test_what_inductor_cannot_lower_runs_as_an_operator(self):
        with self.assertLogs("torch_xpud.inductor.choices", "INFO") as said:
            self.compare(lambda x: nn.functional.adaptive_avg_pool2d(x, (None, 3)) + 1, torch.randn(1, 3, 7, 9), dynamic=True)
        self.assertIn("aten._adaptive_avg_pool2d.default run as operators: Inductor cannot lower it", "".join(said.output))

    def test_streams_of_programs(self):
        side = torch.xpud.Stream()

        def function(x):
            y = x * 2
            side.wait_stream(torch.xpud.current_stream())
            with torch.xpud.stream(side):
                z = y.sin()
            torch.xpud.current_stream().wait_stream(side)
            return z + y

        x = torch.randn(5)
        torch.testing.assert_close(torch.compile(function)(x.to("xpud")).cpu(), (x * 2).sin() + x * 2)

    def test_two_devices(self):
        out = run("""
            import os, tempfile
            os.environ["XDG_RUNTIME_DIR"], os.environ["XPUD_ADDRESS"] = tempfile.mkdtemp(), ""
            import torch, torch_xpud

            def function(x, y, v, w):
                a, b = torch.nn.functional.gelu(x @ v), (y @ w).relu()
                sums = (x + 1).sum(0) + (a.to("xpud:1") * b).sum(0).to("xpud:0")
                return a.to("xpud:1") + b, b.to("xpud:0") * 2 + a, sums, (y + 1).sum(0)

            print(torch.xpud.device_count())
            inputs = [torch.randn(33, 33, device=f"xpud:{number % 2}", requires_grad=True) for number in range(4)]
            others = [value.detach().cpu().to("xpud:0").requires_grad_() for value in inputs]
            values, expected = torch.compile(function, fullgraph=True)(*inputs), function(others[0], others[1].to("xpud:1"), others[2], others[3].to("xpud:1"))
            print(*(value.device.index for value in values))
            torch.testing.assert_close(values, expected, atol=1e-4, rtol=1e-4)
            for each in (values, expected):
                sum(value.cpu().square().sum() for value in each).backward()
            for one, other in zip(inputs, others):
                torch.testing.assert_close(one.grad.cpu(), other.grad.cpu(), atol=1e-2, rtol=1e-4)
            print("ok")
        """, XPUD_CPU_DEVICES="2")  # fmt: skip
        self.assertEqual(out.split(), ["2", "1", "0", "0", "1", "ok"])

    def test_recurrent_layers_break_the_graph_by_default(self):
        for kind in (nn.LSTM, nn.GRU):
            with self.subTest(kind):
                torch._dynamo.reset()
                there, x = kind(8, 16).to("xpud"), torch.randn(3, 5, 8, device="xpud")
                torch.testing.assert_close(torch.compile(lambda x, there=there: there(x * 2)[0].sin())(x), there(x * 2)[0].sin())
                with self.assertRaisesRegex(torch._dynamo.exc.Unsupported, "allow_rnn"):
                    torch.compile(there, fullgraph=True)(x)

    def test_integers_in_equal_steps(self):
        for dtype in (torch.int64, torch.int32, torch.uint8):
            with self.subTest(dtype):
                torch._dynamo.reset()
                ranges = ((0, 50, 7), (1.5, 97, 33), (4.3, 9, 50), (2, 50, 1), (9, 1, 4))
                function = lambda dtype=dtype, ranges=ranges: [torch.linspace(*each, dtype=dtype, device="xpud") + 1 for each in ranges]  # noqa: E731
                torch.testing.assert_close(torch.compile(function, fullgraph=True)(), function())

    def test_custom_operators_with_gradients(self):
        with torch.library._scoped_library("xpud_custom", "FRAGMENT"):

            @torch.library.custom_op("xpud_custom::scale", mutates_args=())
            def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
                return x * factor

            @torch.library.custom_op("xpud_custom::increase", mutates_args={"x"})
            def increase(x: torch.Tensor) -> None:
                x.add_(1)

            scale.register_fake(lambda x, factor: torch.empty_like(x))
            scale.register_autograd(lambda ctx, gradient: (gradient * ctx.factor, None),
                                    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]))  # fmt: skip

            def function(x):
                y = scale(x.sin(), 3.0)
                z = y.clone()
                increase(z)
                return (y + z).cos()

            self.compare_gradients(function, torch.randn(5, 7).requires_grad_())

    def test_quantized_weights(self):
        """A subclass that wraps two tensors, as torchao's do."""
        numbers, scales, x = torch.randint(-8, 8, (16, 8), dtype=torch.int8), torch.rand(16, 1), torch.randn(4, 8)
        made = torch.compile(lambda x, w: nn.functional.gelu(nn.functional.linear(x, w)), fullgraph=True)(
            x.to("xpud"), Quantized(numbers.to("xpud"), scales.to("xpud")))  # fmt: skip
        torch.testing.assert_close(made.cpu(), nn.functional.gelu(x @ (numbers * scales).t()), atol=1e-5, rtol=1e-5)


class PrecisionTest(Compiled):
    """16-bit values are computed in float32 and rounded when they are stored."""

    CHAINS = {
        "a chain": lambda x, y: ((x * y + x).sin() * y - x).exp(),
        "gelu": lambda x, y: nn.functional.gelu(x * y) + x,
        "layer norm": lambda x, y: nn.functional.layer_norm(x * 3 + y, (64,)) * y,
        "softmax": lambda x, y: torch.softmax(x * y * 2, -1) * y,
        "RMS norm": lambda x, y: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * y,
        "columns": lambda x, y: (x * y).sum(0) + y.sum(0),
        "silu": lambda x, y: nn.functional.silu(x) * y + x,
        "log softmax": lambda x, y: torch.log_softmax(x - y, -1),
    }

    def test_errors_against_float64(self):
        for dtype in (torch.bfloat16, torch.float16):
            for name, function in self.CHAINS.items():
                with self.subTest(name, dtype=dtype):
                    torch._dynamo.reset()
                    x, y = (torch.randn(48, 64).to(dtype) for _ in range(2))
                    exact = function(x.double(), y.double())
                    there = x.to("xpud"), y.to("xpud")
                    error = (torch.compile(function, fullgraph=True)(*there).cpu().double() - exact).abs().max().item()
                    eager = (function(*there).cpu().double() - exact).abs().max().item()
                    self.assertLessEqual(error, 2 * eager)
                    self.assertLessEqual(error, 1.01 * torch.finfo(dtype).eps / 2 * exact.abs().max().item())  # one rounding


class RefusalTest(Compiled):
    def test_a_cpp_wrapper(self):
        x = torch.ones(3, device="xpud")
        with self.assertRaisesRegex(torch._dynamo.exc.BackendCompilerFailed, "no cpp_wrapper"):
            torch.compile(lambda x: x + 1, options={"cpp_wrapper": True})(x)
        torch._dynamo.reset()
        with config.patch(cpp_wrapper=True), self.assertRaisesRegex(torch._dynamo.exc.BackendCompilerFailed, "no cpp_wrapper"):
            torch.compile(lambda x: x + 1)(x)

    def test_triton_kernels_of_programs(self):
        def triton_kernel_wrapper_mutation(x):
            return x

        graph = torch.fx.Graph()
        graph.output((graph.call_function(triton_kernel_wrapper_mutation, (graph.placeholder("x"),)),))
        with self.assertRaisesRegex(NotImplementedError, "no Triton kernels"):
            compile_graph(torch.fx.GraphModule({}, graph), [torch.ones(2, device="xpud")])

    def test_ahead_of_time(self):
        program = torch.export.export(nn.Linear(3, 3).to("xpud"), (torch.ones(2, 3, device="xpud"),))
        with self.assertRaisesRegex(NotImplementedError, "AOTInductor does not compile for xpud"):
            torch._inductor.aoti_compile_and_package(program)

    def test_fallbacks_that_are_forbidden(self):
        out = run("""
            import torch, torch_xpud
            try:
                torch.compile(lambda x: torch.fft.rfft(x.sin()).abs())(torch.ones(8, device="xpud"))
            except NotImplementedError as error:
                print(error)
        """, XPUD_FALLBACK="error")  # fmt: skip
        self.assertIn("no kernel for aten::_fft_r2c", out)


class SeenTest(Compiled):
    def test_kernels_that_were_written(self):
        with mock.patch.object(scheduling, "_PROGRESS_INTERVAL", 0.0), self.assertLogs("torch_xpud.inductor.scheduling", "INFO") as said:
            self.compare(lambda x: ((x + 1) @ x).sin() @ x + 2, torch.randn(4, 4), atol=1e-4)
        self.assertEqual([record.getMessage() for record in said.records], ["1 of 3 kernels", "2 of 3 kernels", "3 of 3 kernels"])

    def test_a_quick_compilation_says_nothing(self):
        with self.assertNoLogs("torch_xpud.inductor.scheduling", "INFO"):
            self.compare(lambda x: (x + 1) * 2, torch.randn(4))

    def test_logs_show_each_kernel_with_its_operators(self):
        program = """
            import torch, torch_xpud
            compiled = torch.compile(lambda x, w: torch.nn.functional.layer_norm(x.sin(), (8,), w))
            for n in (3, 4):
                compiled(torch.ones(n, 8, device="xpud"), torch.ones(8, device="xpud"))
        """
        with tempfile.TemporaryDirectory() as folder:
            out = run("import sys\nsys.stderr = sys.stdout\n" + textwrap.dedent(program), TORCHINDUCTOR_CACHE_DIR=folder,
                      TORCH_LOGS="output_code,fusion,schedule,recompiles,perf_hints")  # fmt: skip
            for expected in ("layer_norm => ", "call sin.float32", "reduce sum.float32", "loop_fused_native_layer_norm_sin_0 = loop_kernel(",
                             "fusing op", "Recompiling function", "tensor 'x' size mismatch"):  # fmt: skip
                self.assertIn(expected, out)
            run(program, TORCHINDUCTOR_CACHE_DIR=f"{folder}/other", TORCH_COMPILE_DEBUG="1", TORCH_COMPILE_DEBUG_DIR=folder)
            (file, *_) = glob.glob(f"{folder}/**/output_code.py", recursive=True)
            with open(file) as written:
                self.assertIn("call sin.float32", written.read())
            (script, *_) = glob.glob(f"{folder}/**/fx_graph_runnable.py", recursive=True)
            done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, cwd=folder)  # what the minifier starts from
            self.assertEqual(done.returncode, 0, done.stderr)


@needs_loop_kernels
class ProcessTest(unittest.TestCase):
    INTERRUPTED = """
        import os, signal, sys, threading, time
        import torch, torch_xpud
        from torch._inductor import config
        config.force_disable_caches = True
        model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.LayerNorm(i), torch.nn.Linear(i, i + 1), torch.nn.GELU()) for i in range(40, 70)])
        model, x = model.to("xpud"), torch.randn(4, 40, device="xpud")
        compiled = torch.compile(model)
        begun, at = threading.Event(), []

        def interrupt(delay):
            begun.wait()
            time.sleep(delay)
            at.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        def interrupt_again(ignored):
            # Python ignores what is raised in a callback of a weak reference.
            if ignored.exc_type is not KeyboardInterrupt:
                return sys.__unraisablehook__(ignored)
            threading.Thread(target=interrupt, args=(0.1,), daemon=True).start()

        sys.unraisablehook = interrupt_again
        threading.Thread(target=interrupt, args=(DELAY,), daemon=True).start()
        try:
            IN_COMPILATION and begun.set()
            y = compiled(x)
            begun.set()
            y.cpu()  # waits for the kernels
            time.sleep(30)
            print("not interrupted")
        except KeyboardInterrupt:
            print(round(time.monotonic() - at[-1], 3))
        torch.testing.assert_close(compiled(x), model(x), atol=1e-3, rtol=1e-3)
        print("goes on")
    """

    def interrupted(self, in_compilation, delay):
        out = run(self.INTERRUPTED.replace("IN_COMPILATION", str(in_compilation)).replace("DELAY", str(delay))).split("\n")
        self.assertLess(float(out[0]), 0.2)
        self.assertEqual(out[1], "goes on")

    def test_ctrl_c_while_a_graph_is_compiled(self):
        self.interrupted(True, 2.5)

    def test_ctrl_c_while_kernels_are_compiled(self):
        self.interrupted(False, 0.05)

    def test_threads(self):
        compiled = torch.compile(lambda x: (x.sin() * 2).softmax(-1))
        made = {}

        def compute(number):
            for _ in range(3):
                made[number] = compiled(torch.full((number + 2, 8), float(number), device="xpud"))

        threads = [threading.Thread(target=compute, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in range(4):
            torch.testing.assert_close(made[number].cpu(), torch.full((number + 2, 8), 1 / 8))

    def test_a_forked_child(self):
        out = run("""
            import os
            import torch, torch_xpud
            compiled = torch.compile(lambda x: x.sin() * 2, fullgraph=True)
            if os.fork() == 0:  # before the parent used the device
                print(compiled(torch.zeros(1, device="xpud")).item(), flush=True)
                os._exit(0)
            os.wait()
            print(compiled(torch.zeros(2, device="xpud")).sum().item(), flush=True)
            if os.fork() == 0:
                try:
                    compiled(torch.zeros(2, device="xpud"))
                except RuntimeError as error:
                    print("forked subprocess" in str(error), flush=True)
                os._exit(0)
            os.wait()
        """)
        self.assertEqual(out.split(), ["0.0", "0.0", "True"])

    def test_a_daemon_that_dies(self):
        out = run("""
            import os, pathlib, signal, tempfile, time
            folder = os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp()
            os.environ["XPUD_ADDRESS"] = ""
            import torch, torch_xpud
            compiled = torch.compile(lambda x: (x.sin() * 2).softmax(-1), fullgraph=True)
            x = torch.ones(2, 4, device="xpud")
            print(compiled(x).sum().item())
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if folder.encode() in (process / "cmdline").read_bytes():
                        os.kill(int(process.name), signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(0.5)
            try:
                compiled(x).cpu()
            except torch.AcceleratorError as error:
                print("lost" in str(error))
            print(compiled(torch.ones(2, 4, device="xpud")).sum().item())
        """)
        self.assertEqual(out.split(), ["2.0", "True", "2.0"])


@needs_loop_kernels
class CacheTest(unittest.TestCase):
    PROGRAM = """
        import os, pathlib, sys
        import torch, torch_xpud
        from torch._dynamo.utils import counters
        from torch._inductor import metrics
        artifacts = pathlib.Path(os.environ["XPUD_TEST_ARTIFACTS"])
        if artifacts.exists():
            torch.compiler.load_cache_artifacts(artifacts.read_bytes())
        x = torch.arange(12.0, device="xpud").view(3, 4)
        y = torch.compile(lambda x: x.softmax(-1) * 3)(x)
        if not artifacts.exists():
            artifacts.write_bytes(torch.compiler.save_cache_artifacts()[0])
        print(round(y.sum().item(), 3), counters["aot_autograd"]["autograd_cache_hit"], counters["inductor"]["fxgraph_cache_hit"])
    """

    def test_saved_artifacts(self):
        with tempfile.TemporaryDirectory() as folder:
            made = [run(self.PROGRAM, TORCHINDUCTOR_CACHE_DIR=f"{folder}/{number}", XPUD_TEST_ARTIFACTS=f"{folder}/artifacts").split() for number in range(2)]
        self.assertEqual(made, [["9.0", "0", "0"], ["9.0", "1", "1"]])

    def test_a_daemon_without_loop_kernels_does_not_get_a_cached_graph(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache", "XPUD_TEST_ARTIFACTS": f"{folder}/artifacts"}
            self.assertEqual(run(self.PROGRAM, **environment).split(), ["9.0", "0", "0"])
            older = "import torch, torch_xpud\ntorch_xpud._C.loop_kernels_supported = lambda: False\n" + textwrap.dedent(self.PROGRAM)
            self.assertEqual(run(older, **environment).split(), ["9.0", "0", "0"])

    def test_corrupt_entries_are_misses(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache", "XPUD_TEST_ARTIFACTS": f"{folder}/artifacts"}
            self.assertEqual(run(self.PROGRAM, **environment).split(), ["9.0", "0", "0"])
            os.remove(environment["XPUD_TEST_ARTIFACTS"])
            entries = [os.path.join(path, name) for kind in ("fxgraph", "aotautograd")
                       for path, _, names in os.walk(f"{folder}/cache/{kind}") for name in names]  # fmt: skip
            self.assertTrue(entries)
            for entry in entries:
                with open(entry, "r+b") as file:
                    file.write(b"not an entry")
            self.assertEqual(run(self.PROGRAM, **environment).split(), ["9.0", "0", "0"])


if __name__ == "__main__":
    unittest.main()
