"""`python -m torch_xpud`: programs written for cuda, xpu and hpu run unchanged. Each test runs a program in a process of its own, and several claims
share a program, because starting one takes seconds."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

from torch_xpud.translate import source

ANNOUNCEMENT = "runs on xpud; cuda, xpu and hpu mean xpud in it"


class LauncherTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return str(path)

    def launch(self, *arguments, status=0, launcher=("-m", "torch_xpud"), **options):
        environment = {name: value for name, value in os.environ.items() if name != "XPUD_TRANSLATE"}
        done = subprocess.run([sys.executable, "-W", "ignore", *launcher, *arguments], capture_output=True, text=True, cwd=self.folder, env=environment,
                              timeout=300, **options)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def run_program(self, text, *arguments, **options):
        done = self.launch(self.write("program.py", text), *arguments, **options)
        self.assertEqual(done.stderr.count(ANNOUNCEMENT), 1)
        return done

    def test_the_program_sees_what_plain_python_shows(self):
        self.write("helper.py", "import sys\npath = sys.path[0]")
        program = self.write("program.py", """
            '''Documentation.'''
            import pickle, sys
            import helper
            class Local:
                pass
            print(sys.argv[1:], sys.argv[0] == __file__, __name__, __doc__, __package__, __spec__, helper.path == sys.path[0])
            print(type(pickle.loads(pickle.dumps(Local()))) is Local, sys.modules['__main__'].Local is Local, 'torch_xpud' in globals())
            sys.exit(7)
            """)
        plain = self.launch(program, "a", "--b", status=7, launcher=())
        self.assertEqual(self.launch(program, "a", "--b", status=7).stdout, plain.stdout)

    def test_modules(self):
        self.write("package/__init__.py", "")
        self.write("package/__main__.py", """
            import sys, torch
            from . import part
            print(sys.argv[1:], __name__, __package__, __spec__.name, sys.path[0], part.on_cuda(torch.ones(1).cuda()))
            """)
        self.write("package/part.py", "def on_cuda(x):\n    return x.device.type == 'cuda' and x.is_cuda")
        out = self.launch("-m", "package", "a").stdout
        self.assertEqual(out.split(), f"['a'] __main__ package package.__main__ {self.folder.resolve()} True".split())

    def test_errors_of_usage(self):
        self.assertIn("can't open file", self.launch("absent.py", status=2).stderr)
        self.assertIn("python -m torch_xpud script.py", self.launch(status=2).stderr)
        self.assertIn("python -m torch_xpud script.py", self.launch("--help").stdout)
        failing = self.launch(self.write("program.py", "x = 1\nraise KeyError('here')"), status=1).stderr
        self.assertIn("program.py\", line 2", failing)
        self.assertIn("KeyError: 'here'", failing)

    def test_a_training_loop_for_cuda(self):
        self.run_program("""
            import torch
            from torch.cuda.amp import GradScaler, autocast, custom_bwd, custom_fwd

            class Double(torch.autograd.Function):
                @staticmethod
                @custom_fwd(cast_inputs=torch.float32)
                def forward(ctx, x):
                    return x * 2
                @staticmethod
                @custom_bwd
                def backward(ctx, gradient):
                    return gradient * 2
            with autocast():
                assert Double.apply(torch.ones(2, device="cuda", dtype=torch.half)).dtype is torch.float32
            assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            torch.manual_seed(0); torch.cuda.manual_seed_all(0)
            torch.backends.cudnn.benchmark = True
            torch.backends.cuda.matmul.allow_tf32 = True
            model = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))).cuda()
            optimizer, scaler, losses = torch.optim.Adam(model.parameters(), 1e-2), GradScaler(), []
            data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.arange(32) % 2)
            for inputs, labels in torch.utils.data.DataLoader(data, 8, num_workers=1, pin_memory=True):
                inputs, labels = inputs.cuda(non_blocking=True), labels.to(device, non_blocking=True)
                with autocast():
                    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                    assert model(inputs).dtype is torch.bfloat16
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                losses.append(loss.item())
            assert losses[-1] < 2 and scaler.is_enabled()
            torch.cuda.synchronize()
            torch.save(model.state_dict(), "model.pt")
            for place in ("cuda", "cuda:0", torch.device("cuda", 0), {"xpud:0": "cuda:0"}):
                assert all(value.device.type == "cuda" for value in torch.load("model.pt", map_location=place).values())
            assert torch.xpud.fallback_counts() == {}, torch.xpud.fallback_counts()
            """)

    def test_names_of_devices(self):
        self.run_program("""
            import pickle, torch
            x = torch.ones(3, device="cuda")
            assert str(x.device) == "cuda:0" and "cuda" in str(x.device) and x.device.type in ("cuda", "mps") and str(x.device).startswith("cuda")
            assert not x.device.type != "cuda" and not x.device.type not in ["cuda"] and x.is_cuda and not torch.ones(1).is_cuda
            assert torch.ones(1).device.type != "cuda" and not torch.ones(1).device.type == "cuda"
            everywhere = [torch.zeros(2, device=torch.device("cuda:0")), torch.tensor([1.0], device="cuda:0"), torch.ones(1).to("cuda"),
                          torch.ones(1).to(device="cuda", dtype=torch.half), torch.ones(1).cuda(0), x.new_zeros(2, device="cuda"),
                          torch.randn(2, generator=torch.Generator(device="cuda").manual_seed(1), device="cuda"), torch.ones(1, device="xpu"),
                          torch.ones(1).xpu(), torch.ones(1, device="hpu"), torch.ones(1).hpu(), torch.empty_like(torch.ones(1), device="cuda"),
                          torch.nn.Linear(2, 2, device="cuda").weight, torch.nn.Linear(2, 2).to("cuda").weight, torch.nn.Linear(2, 2).cuda().weight,
                          torch.cuda.FloatTensor([1.0, 2.0]), torch.cuda.FloatTensor(2, 3), torch.ones(1).type("torch.cuda.HalfTensor"),
                          torch.ones(1).type(torch.cuda.LongTensor), torch.as_tensor([1], device="cuda"), torch.arange(3, device="cuda")]
            assert {str(each.device) for each in everywhere} == {"xpud:0"}
            assert isinstance(x, torch.cuda.FloatTensor) and not isinstance(x, torch.cuda.HalfTensor)
            assert isinstance(x.device, torch.device) and isinstance(torch.Generator("cuda"), torch.Generator) and torch.device("cuda", 0) == x.device
            assert pickle.loads(pickle.dumps(torch.device("cuda"))) == torch.device("cuda")
            torch.set_default_device("cuda")
            assert torch.ones(1).is_cuda
            """)

    def test_streams_memory_and_properties(self):
        self.run_program("""
            import torch
            stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
            with torch.cuda.stream(stream):
                x = torch.ones(1000, device="cuda") * 2
            torch.cuda.current_stream().wait_stream(stream)
            event.record()
            event.synchronize()
            assert isinstance(stream, torch.cuda.Stream) and x.sum().item() == 2000
            properties = torch.cuda.get_device_properties(0)
            assert properties.total_memory > 0 and properties.name == torch.cuda.get_device_name() and properties.multi_processor_count > 0
            assert torch.cuda.get_device_capability() >= (8, 0) and torch.cuda.is_bf16_supported()
            assert torch.cuda.memory_allocated() >= 4000 and torch.cuda.max_memory_allocated() >= 4000 and torch.cuda.mem_get_info()[1] > 0
            assert torch.cuda.memory.memory_allocated() == torch.cuda.memory_allocated() and "allocated" in torch.cuda.memory_summary()
            torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats(); torch.cuda.ipc_collect(); torch.cuda.set_device("cuda:0")
            with torch.cuda.device(0), torch.cuda.nvtx.range("part"):
                torch.cuda.nvtx.range_push("x"); torch.cuda.nvtx.range_pop()
            state = torch.cuda.get_rng_state()
            first = torch.rand(2, device="cuda")
            torch.cuda.set_rng_state(state)
            assert torch.equal(first, torch.rand(2, device="cuda"))
            for name, call in {"CUDAGraph": torch.cuda.CUDAGraph, "utilization": torch.cuda.utilization}.items():
                try:
                    call()
                except NotImplementedError as error:
                    assert str(error) == f"torch.cuda.{name} has no equivalent on xpud", error
                else:
                    raise AssertionError(name)
            """)

    def test_devices_that_a_program_does_not_mention_are_not_there(self):
        self.run_program("""
            import importlib.util, torch
            assert torch.cuda.is_available() and not getattr(torch, "x" "pu").is_available() and not hasattr(torch, "h" "pu")
            assert importlib.util.find_spec("hab" "ana_frameworks") is None
            """)

    def test_the_profiler(self):
        done = self.run_program("""
            import torch, warnings
            from torch.profiler import ProfilerActivity, profile
            with warnings.catch_warnings(record=True) as caught, profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
                warnings.simplefilter("always")
                torch.ones(3, device="cuda") + 1
            rows = {event.key: event for event in profiled.key_averages()}
            from torch_xpud import _C
            assert bool(rows["aten::add"].self_device_time_total) == _C.records_activities == (not caught), (rows["aten::add"], caught)
            torch.cuda.memory._record_memory_history()
            x = torch.ones(3, device="cuda")
            assert torch.cuda.memory._snapshot()["device_traces"][0]
            with torch.cuda.nvtx.range("a range"):
                pass
            """)
        self.assertNotIn("Failed to record CUDA event", done.stderr)

    def test_programs_for_xpu_and_hpu(self):
        self.run_program("""
            import torch
            import habana_frameworks.torch.core as htcore
            import intel_extension_for_pytorch as ipex
            assert torch.xpu.is_available() and torch.hpu.is_available() and torch.hpu.random.get_rng_state().dtype is torch.uint8 and torch.xpu.device_count() == torch.hpu.device_count() == 1
            model = torch.nn.Linear(4, 2).to("hpu")
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            with torch.autocast("hpu", torch.bfloat16):
                loss = model(torch.ones(3, 4, device="hpu")).float().sum()
            loss.backward()
            htcore.mark_step()
            optimizer.step()
            torch.hpu.synchronize(); torch.xpu.synchronize()
            assert torch.xpu.get_device_properties(0).total_memory > 0 and torch.xpu.memory_allocated() == torch.hpu.memory_allocated()
            assert ipex.optimize(model.eval(), dtype=torch.bfloat16).weight.dtype is torch.bfloat16
            try:
                import habana_frameworks.torch.hpex
            except ModuleNotFoundError:
                pass
            """)

    def test_names_of_the_vendors_packages(self):
        self.run_program("""
            import torch
            import intel_extension_for_pytorch as ipex
            import habana_frameworks.torch.core as htcore
            from habana_frameworks.torch.utils.library_loader import load_habana_module
            from habana_frameworks.torch.utils.internal import is_lazy
            import habana_frameworks.torch.utils.debug, habana_frameworks.torch.utils.experimental
            load_habana_module()
            assert not is_lazy()
            ipex.set_fp32_math_mode(ipex.FP32MathMode.BF32, device="xpu")
            assert ipex.get_fp32_math_mode(device="xpu") == ipex.FP32MathMode.FP32
            for module in (torch.xpu, torch.hpu):
                with module.amp.autocast(enabled=True, dtype=torch.bfloat16):
                    product = torch.ones(2, 2, device="xpu") @ torch.ones(2, 2, device="xpu")
                assert product.dtype == torch.bfloat16
                with module.amp.autocast(enabled=False):
                    assert (torch.ones(2, 2, device="xpu") @ torch.ones(2, 2, device="xpu")).dtype == torch.float32
                scaler = module.amp.GradScaler(init_scale=4.0)
                assert scaler.scale(torch.ones(1, device="xpu")).item() == 4
            model = ipex.llm.optimize(torch.nn.Linear(3, 2).eval().to("xpu"), dtype=torch.bfloat16)
            assert model.weight.dtype == torch.bfloat16
            for backend in ("hpu_backend", "ipex"):
                model = torch.nn.Linear(3, 2).to("hpu")
                compiled = torch.compile(model, backend=backend)
                torch._dynamo.reset()
                x = torch.ones(4, 3, device="hpu")
                torch.testing.assert_close(compiled(x), model(x))
            """)

    def test_the_older_profiler(self):
        self.run_program("""
            import torch
            x = torch.ones(64, 64, device="cuda")
            for options in ({"use_cuda": True}, {"use_device": "cuda"}):
                with torch.autograd.profiler.profile(**options) as profiled:
                    (x @ x).sum().item()
                assert {row.key: row for row in profiled.key_averages()}["aten::mm"].device_time_total > 0
            """)

    def test_what_only_builds_for_cuda_have(self):
        self.run_program("""
            import torch
            import torch.cuda.comm as comm
            with torch.autograd.profiler.emit_nvtx(record_shapes=True):
                assert torch.ones(2, device="cuda").add(1).sum().item() == 4
            for choose in (torch.backends.cuda.preferred_linalg_library, torch.backends.cuda.preferred_blas_library):
                assert choose("magma" if "linalg" in choose.__name__ else "cublaslt") == choose()
            x = torch.arange(6.0, device="cuda").reshape(3, 2)
            assert torch.equal(comm.broadcast(x.cpu(), [0])[0], x) and torch.equal(comm.broadcast_coalesced([x, x + 1], ["cuda:0"])[0][1], x + 1)
            assert torch.equal(comm.reduce_add([x, x.cpu()], 0), 2 * x) and torch.equal(comm.reduce_add_coalesced([[x], [x]])[0], 2 * x)
            assert torch.equal(comm.scatter(x, [0], [3])[0], x) and torch.equal(comm.gather([x, x], 1), torch.cat([x, x], 1))
            assert comm.gather([x, x], destination="cpu").device.type == "cpu"
            out = torch.empty(6, 2, device="cuda")
            assert comm.gather([x, x], out=out) is out and torch.equal(out, torch.cat([x, x]))
            for wrong in (lambda: comm.broadcast(x, [0, 1]), lambda: comm.scatter(x, [0, 1]), lambda: comm.scatter(x, [0], [2]), lambda: comm.broadcast(x)):
                try:
                    wrong()
                    raise AssertionError("accepted")
                except (NotImplementedError, RuntimeError):
                    pass
            """)

    def test_compiled_and_scripted_functions(self):
        self.run_program("""
            import torch
            def move(x):
                return x.to("cuda") + torch.ones(3, device="cuda")
            assert torch.compile(move)(torch.ones(3)).tolist() == [2, 2, 2]
            assert torch.compile(lambda x: x * 2)(torch.ones(3, device="cuda")).is_cuda
            @torch.jit.script
            def scripted(x: torch.Tensor):
                return x + torch.zeros([3])
            assert scripted(torch.ones(3)).tolist() == [1, 1, 1]
            """)

    def test_process_groups_and_child_processes(self):
        self.run_program("""
            import os, subprocess, sys
            import torch, torch.distributed as dist
            import torch.multiprocessing as mp
            def work(rank, queue):
                queue.put((torch.cuda.is_available(), str(torch.ones(1).cuda().device), __name__))
            if __name__ == "__main__":
                context = mp.get_context("spawn")
                queue = context.Queue()
                mp.spawn(work, (queue,), nprocs=1)
                assert queue.get(timeout=60) == (True, "xpud:0", "__mp_main__")
                child = subprocess.run([sys.executable, "-c", "import torch; print(torch.ones(1).cuda().device)"], capture_output=True, text=True)
                assert child.stdout == "xpud:0\\n", child
                dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
                model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda(), device_ids=[0])
                model(torch.ones(1, 2).cuda()).sum().backward()
                value = torch.ones(2, device="cuda")
                dist.all_reduce(value)
                assert value.tolist() == [1, 1]
                dist.destroy_process_group()
            """)

    def test_without_a_device_it_does_not_use_the_cpu(self):
        program = self.write("program.py", "import torch\nprint('cuda' if torch.cuda.is_available() else 'cpu')")
        done = subprocess.run([sys.executable, "-m", "torch_xpud", program], capture_output=True, text=True, timeout=120,
                              env=os.environ | {"XPUD_ADDRESS": str(self.folder / "absent.sock")})
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertIn("no xpud device can be reached", done.stderr)


class SourceTest(unittest.TestCase):
    def evaluate(self, text, **names):
        code = source.compile_program(f"result = {text}", "program.py")
        scope = names | {source.EQUAL: source._equal, source.INSIDE: source._inside, source.FLAG: source._flag}
        exec(code, scope)
        return scope["result"]

    def test_comparisons_hold_for_both_names(self):
        for text in ("x == 'cuda'", "'cuda' == x", "x in ('cuda', 'cpu')", "x in ['xpu', 'cuda']", "'cuda' in x", "x.startswith('cuda')", "not x != 'cuda'",
                     "not x not in {'cuda'}", "x + ':0' == 'cuda:0'", "x.startswith('cuda', 0)"):
            for x, expected in (("cuda", True), ("xpud", True), ("cpu", "cpu" in text)):
                self.assertEqual(bool(self.evaluate(text, x=x)), expected, (text, x))

    def test_other_expressions_are_left(self):
        self.assertEqual(self.evaluate("['cuda', x == 'cpu', {'cuda': 1}['cuda'], 'cuda' < x, x.endswith('cuda')]", x="xpud"), ["cuda", False, 1, True, False])
        self.assertEqual(self.evaluate("f'{x}' == 'a'", x="a"), True)
        self.assertEqual(self.evaluate("1 < x < 3", x=2), True)

    def test_positions_stay(self):
        code = source.compile_program("x = 'a'\nif x == 'cuda':\n    pass\nraise ValueError", "program.py")
        try:
            exec(code, {source.EQUAL: source._equal})
        except ValueError as error:
            self.assertEqual(error.__traceback__.tb_next.tb_lineno, 4)
        else:
            self.fail("no exception")


if __name__ == "__main__":
    unittest.main()
