"""torch.xpud under PyTorch's device-neutral interfaces: torch.accelerator, checkpoints, default devices, lazy modules, profilers.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_api.py
"""

import unittest

import torch
import torch.utils.benchmark
import torch.utils.checkpoint
import torch_xpud  # noqa: F401  also without the entry point
from test_device import run
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AcceleratorTest(unittest.TestCase):
    REFUSED = {  # with PyTorch's own messages
        "Graph": "not supported on device type",
        "get_device_capability": "doesn't support getting device capabilities",
    }

    def test_every_public_function(self):
        torch.ones(3, device="xpud")
        arguments = {"device_index": (0,), "set_device_idx": (0,), "set_device_index": (0,), "set_stream": (torch.accelerator.current_stream(),)}
        names = [(torch.accelerator, name) for name in torch.accelerator.__all__]
        names += [(torch.accelerator.memory, name) for name in torch.accelerator.memory.__all__]
        for module, name in names:
            with self.subTest(name):
                if name in self.REFUSED:
                    with self.assertRaisesRegex(RuntimeError, self.REFUSED[name]):
                        getattr(module, name)()
                elif name == "empty_host_cache":  # runs in a separate process, because it has crashed
                    run("import torch; torch.ones(2, device='xpud').cpu(); torch.accelerator.empty_host_cache()")
                else:
                    getattr(module, name)(*arguments.get(name, ()))

    def test_memory_numbers_are_torch_xpuds(self):
        held = torch.ones(1 << 20, device="xpud")
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
            self.assertEqual(getattr(torch.accelerator, name)(), getattr(torch.xpud, name)())
        self.assertGreaterEqual(torch.xpud.memory_allocated(), held.nbytes)
        torch.xpud.reset_accumulated_memory_stats()
        self.assertEqual(torch.xpud.memory_stats()["num_ooms"], 0)
        self.assertEqual(torch.accelerator.get_memory_info()[1], torch.xpud.mem_get_info()[1])

    def test_device_module(self):
        self.assertIs(torch.get_device_module("xpud"), torch.xpud)
        self.assertIs(torch.get_device_module(), torch.xpud)


class DefaultDeviceTest(unittest.TestCase):
    def test_device_as_context(self):
        with torch.device("xpud"):
            made = [torch.ones(2), torch.tensor([1]), torch.randn(2), torch.arange(3), nn.Linear(2, 2).weight]
        self.assertEqual({each.device.type for each in made}, {"xpud"})
        self.assertEqual(torch.ones(1).device.type, "cpu")

    def test_default_device(self):
        torch.set_default_device("xpud")
        try:
            model = nn.Linear(4, 4)
            optimizer = torch.optim.Adam(model.parameters())
            for (batch,) in DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2, shuffle=True, generator=torch.Generator("xpud")):
                model(batch).sum().backward()
                optimizer.step()
            self.assertEqual((model.weight.grad.device.type, torch.get_default_device().type), ("xpud", "xpud"))
        finally:
            torch.set_default_device(None)


class RandomStateTest(unittest.TestCase):
    def test_fork_rng(self):
        for options in ({}, {"devices": [0]}):
            torch.xpud.manual_seed(1)
            expected = torch.rand(3, device="xpud")
            torch.xpud.manual_seed(1)
            with torch.random.fork_rng(device_type="xpud", **options):
                torch.rand(5, device="xpud")
            torch.testing.assert_close(torch.rand(3, device="xpud"), expected, atol=0, rtol=0)

    def test_checkpoints_repeat_random_numbers(self):
        """The gradient uses the mask of the forward pass."""
        for reentrant in (True, False):
            x = torch.ones(1000, device="xpud", requires_grad=True)
            y = torch.utils.checkpoint.checkpoint(lambda x: nn.functional.dropout(x * 2, 0.5), x, use_reentrant=reentrant)
            expected = torch.rand(1, device="xpud")  # a checkpoint must not move the generator
            y.sum().backward()
            torch.testing.assert_close(x.grad, y.detach(), atol=0, rtol=0)
            self.assertFalse(torch.equal(torch.rand(1, device="xpud"), expected))

    def test_checkpoints_keep_autocast(self):
        for reentrant in (True, False):
            x = torch.ones(4, 4, device="xpud", requires_grad=True)
            with torch.autocast("xpud", dtype=torch.bfloat16):
                y = torch.utils.checkpoint.checkpoint(lambda x: x @ x, x, use_reentrant=reentrant)
            y.sum().backward()
            self.assertEqual((y.dtype, x.grad.dtype), (torch.bfloat16, torch.float32))

    def test_initialized_is_asked_without_connecting(self):
        self.assertEqual(run("import torch, torch_xpud; print(torch.xpud._initialized); torch.ones(1, device='xpud'); print(torch.xpud._initialized)").split(),
                         ["False", "True"])  # fmt: skip


class LazyModuleTest(unittest.TestCase):
    def test_moved_before_the_first_forward(self):
        for move in (lambda module: module.to("xpud"), lambda module: module.xpud(), lambda module: module.xpud(0),
                     lambda module: module.xpud().half().float()):  # fmt: skip
            for lazy, shape in ((nn.LazyLinear(4), (5, 3)), (nn.LazyBatchNorm1d(), (5, 3)), (nn.LazyConv2d(2, 3), (1, 3, 5, 5))):
                module = move(lazy)
                module(torch.ones(shape, device="xpud")).sum().backward()
                self.assertEqual({each.device.type for each in (*module.parameters(), *module.buffers())}, {"xpud"})
                self.assertTrue(all(type(each) is nn.Parameter and each.grad is not None for each in module.parameters()))

    def test_made_on_the_device(self):
        self.assertEqual(nn.LazyLinear(4, device="xpud")(torch.ones(5, 3, device="xpud")).shape, (5, 4))


class ToolsTest(unittest.TestCase):
    def test_pinned_batches(self):
        data = TensorDataset(torch.arange(8.0).view(4, 2))
        for options in ({}, {"num_workers": 1}):
            batches = [batch for (batch,) in DataLoader(data, batch_size=2, pin_memory=True, **options)]
            self.assertTrue(all(batch.is_pinned() for batch in batches))
            self.assertEqual(sum(batch.to("xpud", non_blocking=True).sum().item() for batch in batches), 28)

    def test_timer(self):
        x = torch.ones(8, 8, device="xpud")
        self.assertGreater(torch.utils.benchmark.Timer("x @ x", globals={"x": x}).timeit(3).median, 0)

    def test_profiler(self):
        activities = torch.profiler.ProfilerActivity
        for options in ({}, {"activities": [activities.CPU, activities.PrivateUse1]}, {"record_shapes": True, "profile_memory": True, "with_stack": True}):
            with torch.profiler.profile(**options) as profile:
                x = torch.ones(8, 8, device="xpud")
                (x @ x).sum().item()
            self.assertIn("aten::mm", [event.key for event in profile.key_averages()])
            profile.key_averages().table()


if __name__ == "__main__":
    unittest.main()
