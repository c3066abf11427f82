"""xpud beside another accelerator: loading it changes nothing, the first use sets it up, and a program that uses both is told what PyTorch allows.

On a machine without another accelerator, PyTorch is made to report one. CudaTest runs where PyTorch has a real one.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

import torch
import torch_xpud  # noqa: F401  also without the entry point

# Loads the back ends as `import torch` does, with a CUDA device that PyTorch reports.
REPORTED = """
    import ctypes, os, sys
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch
    before = set(dir(torch)), list(sys.meta_path), torch.cuda.is_available, torch.Tensor.to, torch.ones
    load = ctypes.CDLL
    ctypes.CDLL = lambda name, *rest, **options: load(None if name == "libcuda.so.1" else name, *rest, **options)
    torch.backends.cuda.is_built, torch.cuda.device_count = lambda: True, lambda: {devices}
    torch._import_device_backends()
    ctypes.CDLL = load
    is_set_up = lambda: torch._C._get_privateuse1_backend_name() == "xpud"
    """

# Each is the first use in a process of its own.
USES = """
    torch.device("xpud")
    torch.device("xpud:0")
    torch.device("xpud", 0)
    torch.ones(3, device="xpud")
    torch.ones(3).to("xpud")
    torch.ones(3).xpud()
    torch.nn.Linear(2, 2).to("xpud")
    torch.nn.Linear(2, 2).xpud()
    torch.ones(3).untyped_storage().xpud()
    torch.xpud.is_available()
    torch.get_device_module("xpud").synchronize()
    torch.Generator("xpud")
    torch.autocast("xpud")
    torch.set_default_device("xpud"); torch.ones(3)
    torch.load(saved, map_location="xpud:0")
    torch.load(saved, map_location=torch.device("xpud"))
    torch.zeros_like(torch.ones(3), device="xpud")
    from torch.xpud.memory import memory_allocated; memory_allocated()
    import torch.xpud as module; module.manual_seed(1)
    """


def lines(text):
    return textwrap.dedent(text).strip().splitlines()


class BesideTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, text, devices=1, **environment):
        program = textwrap.dedent(REPORTED).replace("{devices}", str(devices)) + textwrap.dedent(text)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_loading_changes_nothing(self):
        done = self.run_program("""
            assert not is_set_up() and "torch_xpud._C" not in sys.modules
            assert set(dir(torch)) - before[0] == {"xpud"}
            assert (list(sys.meta_path), torch.cuda.is_available, torch.Tensor.to, torch.ones) == before[1:]
            assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::add.Tensor", "PrivateUse1")
            assert not torch.ones(1).is_xpud and not hasattr(torch.xpud, "__warningregistry__")
            model = torch.nn.Linear(3, 3)
            model(torch.ones(2, 3)).sum().backward()
            try:
                torch.device("xpuds")
            except RuntimeError as error:
                assert "device type at start of device string: xpuds" in str(error), error
            assert not is_set_up()
            """)
        self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_loading_starts_no_daemon_and_opens_no_socket(self):
        daemon = self.folder / "daemon"  # stands for the program xpud, and leaves a mark
        daemon.write_text("#!/bin/sh\ntouch $0.started\nexit 1\n")
        daemon.chmod(0o755)
        environment = {"XDG_RUNTIME_DIR": str(self.folder), "XPUD_DAEMON": str(daemon), "XPUD_ADDRESS": ""}
        for devices in (0, 1):  # without another accelerator, too
            with self.subTest(devices=devices):
                self.run_program("""
                    opened = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")]
                    assert not any(name.startswith(("socket:", "/memfd:")) for name in opened), opened
                    """, devices=devices, **environment)
                self.assertEqual(list(self.folder.iterdir()), [daemon])
        self.run_program("""
            try:
                torch.ones(1, device="xpud")
                raise AssertionError("there is a daemon")
            except RuntimeError:
                pass
            """, **environment)
        self.assertTrue((self.folder / "daemon.started").exists())

    def test_without_another_accelerator_it_is_set_up_at_once(self):
        self.run_program("assert is_set_up() and torch.accelerator.current_accelerator().type == 'xpud'", devices=0)

    def test_each_first_use_sets_it_up(self):
        torch.save(torch.arange(3.0), self.folder / "saved")
        self.run_program(f"saved = {str(self.folder / 'saved')!r}\nuses = {lines(USES)!r}\n" + textwrap.dedent("""
            for use in uses:
                child = os.fork()
                if child == 0:
                    try:
                        exec(use)
                        assert is_set_up(), "not set up"
                        assert torch.ones(3, device="xpud").add(1).cpu().tolist() == [2.0] * 3
                        assert torch.accelerator.current_accelerator().type == "xpud"
                        os._exit(0)
                    except BaseException as error:
                        print(f"{use}: {type(error).__name__}: {error}", file=sys.stderr)
                        os._exit(1)
                assert os.waitpid(child, 0)[1] == 0, use
            assert not is_set_up()
            """))

    def test_a_tensor_that_was_saved_on_xpud(self):
        torch.save(torch.arange(3.0, device="xpud"), self.folder / "saved")
        self.run_program(f"""
            assert torch.load({str(self.folder / "saved")!r}, map_location="cpu").tolist() == [0, 1, 2] and not is_set_up()
            assert torch.load({str(self.folder / "saved")!r}).is_xpud and is_set_up()
            """)

    def test_threads_that_use_it_first_together(self):
        self.run_program("""
            import threading
            results, start = [], threading.Barrier(8)
            def use():
                start.wait()
                results.append(torch.ones(3, device="xpud").sum().item())
            threads = [threading.Thread(target=use) for _ in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert results == [3.0] * 8, results
            """)

    def test_a_program_that_uses_both_is_told_once(self):
        both = """
            torch.cuda.is_initialized = lambda: {used}
            torch.ones(3, device="xpud"); torch.ones(3, device="xpud")
            """
        told = self.run_program(both.replace("{used}", "True")).stderr
        self.assertEqual(told.count("This process uses xpud and cuda. PyTorch has one accelerator for each process"), 1, told)
        self.assertNotIn("This process uses", self.run_program(both.replace("{used}", "False")).stderr)
        later = self.run_program("torch.ones(3, device='xpud')\nfor call, _ in torch.cuda._queued_calls[2:]: call()")  # what initialising CUDA does
        self.assertEqual(later.stderr.count("This process uses xpud and cuda"), 1)

    def test_a_failure_of_the_first_use_is_the_same_at_the_next(self):
        self.run_program("""
            sys.modules["torch_xpud._C"] = None  # importing it fails
            for _ in range(2):
                for use in (lambda: torch.ones(3, device="xpud"), lambda: torch.ones(3).xpud(), lambda: torch.xpud.is_available()):
                    try:
                        use()
                        raise AssertionError("used")
                    except (RuntimeError, ImportError) as error:
                        assert "_C" in str(error), error
            """)

    def test_the_launcher_uses_it(self):
        (self.folder / "program.py").write_text("import torch\nprint(torch.ones(2, device='cuda').device)\n")
        done = self.run_program(f"""
            import runpy
            sys.argv = ["torch_xpud", {str(self.folder / "program.py")!r}]
            try:
                runpy.run_module("torch_xpud", run_name="__main__", alter_sys=True)
            except SystemExit as end:
                assert not end.code
            """)
        self.assertEqual(done.stdout.strip(), "xpud:0")


class DecisionTest(unittest.TestCase):
    """accelerators.usable_beside()."""

    def test_this_machine(self):
        from torch_xpud import accelerators

        built = torch.backends.cuda.is_built() or torch.xpu._is_compiled() or torch.backends.mps.is_built()
        self.assertIn(accelerators.usable_beside(), ("cuda", "xpu", "mps", None) if built else (None,))


HAS_CUDA = torch.backends.cuda.is_built() and torch.cuda.device_count() > 0

TRAIN = """
    import sys, time, torch
    def train(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).to(device)
        optimizer, x, y = torch.optim.AdamW(model.parameters()), torch.randn(512, 64).to(device), torch.randint(8, (512,)).to(device)
        losses = []
        for _ in range(20):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses
    """


@unittest.skipUnless(HAS_CUDA, "PyTorch has no usable CUDA device here: this PyTorch is " + torch.__version__)
class CudaTest(unittest.TestCase):
    def run_program(self, text, **environment):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(TRAIN) + textwrap.dedent(text)], capture_output=True, text=True,
                              env=os.environ | environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_training_on_cuda_is_as_without_the_package(self):
        without = self.run_program("print(train('cuda'))", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        beside = self.run_program("print(train('cuda'))\nassert 'torch_xpud._C' not in sys.modules")
        self.assertEqual((beside.stdout, beside.stderr), (without.stdout, without.stderr))

    def test_forks_can_use_cuda(self):
        self.run_program("""
            import os
            child = os.fork()
            if child == 0:
                os._exit(0 if torch.ones(3, device="cuda").sum().item() == 3 else 1)
            assert os.waitpid(child, 0)[1] == 0
            """)

    def test_after_an_xpud_use(self):
        done = self.run_program("""
            assert train("xpud")[-1] < 2
            with torch.no_grad():
                assert torch.ones(3, device="cuda").mul(2).sum().item() == 6
            try:
                train("cuda")
                raise AssertionError("PyTorch trains on two accelerators now: mend ADVICE in waiting.py and README.md")
            except RuntimeError as error:
                assert "opt_ready_stream" in str(error), error
            """)
        self.assertEqual(done.stderr.count("This process uses xpud and cuda"), 1, done.stderr)

    def test_xpud_after_training_on_cuda(self):
        done = self.run_program("train('cuda')\nassert train('xpud')[-1] < 2")
        self.assertEqual(done.stderr.count("This process uses xpud and cuda"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
