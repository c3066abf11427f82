"""torch.distributed with one process, DataParallel with one device, and the refusal of more."""

import os
import subprocess
import sys
import unittest

import torch
import torch.distributed as dist
from torch import nn


class OneProcessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        cls.value = torch.arange(4.0, device="xpud")

    @classmethod
    def tearDownClass(cls):
        dist.destroy_process_group()

    def same(self, actual):
        self.assertEqual((actual.device.type, actual.tolist()), ("xpud", self.value.tolist()))

    def test_the_default_backend_is_xpud(self):
        self.assertEqual(dist.get_default_backend_for_device("xpud"), "xpud")
        self.assertEqual(dist.get_world_size(), 1)

    def test_a_group_for_one_device(self):
        script = ("import torch, torch.distributed as dist\n"
                  "dist.init_process_group('xpud', store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device('xpud:0'))\n"
                  "x = torch.ones(3, device='xpud'); dist.all_reduce(x); assert x.tolist() == [1, 1, 1]; dist.destroy_process_group()")
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_reductions_leave_the_value(self):
        for call in (dist.all_reduce, lambda x: dist.reduce(x, 0), lambda x: dist.broadcast(x, 0)):
            copy = self.value.clone()
            call(copy)
            self.same(copy)
        self.assertTrue(dist.all_reduce(self.value.clone(), async_op=True).wait())

    def test_gathering_and_scattering_copy(self):
        def empty():
            return torch.zeros(4, device="xpud")
        target = empty()
        for call in (lambda: dist.all_gather([target], self.value), lambda: dist.gather(self.value, [target]), lambda: dist.scatter(target, [self.value]),
                     lambda: dist.reduce_scatter(target, [self.value]), lambda: dist.all_gather_single(target, self.value),
                     lambda: dist.reduce_scatter_single(target, self.value), lambda: dist.all_to_all_single(target, self.value),
                     lambda: dist.all_to_all([target], [self.value])):
            target.zero_()
            call()
            self.same(target)

    def test_objects_barriers_and_groups(self):
        found = [None]
        dist.all_gather_object(found, {"a": 1})
        self.assertEqual(found, [{"a": 1}])
        dist.barrier()
        group = dist.new_group([0])
        dist.all_reduce(self.value.clone(), group=group)

    def test_distributed_data_parallel(self):
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to("xpud")
        wrapped = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to("xpud"))
        wrapped.module.load_state_dict(plain.state_dict())
        inputs = torch.randn(6, 4).to("xpud")
        for model in (plain, wrapped):
            model(inputs).square().sum().backward()
        for expected, actual in zip(plain.parameters(), wrapped.parameters()):
            torch.testing.assert_close(actual.grad.cpu(), expected.grad.cpu())

    def test_device_mesh_and_distributed_tensors(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        placed = distribute_tensor(self.value.view(2, 2), init_device_mesh("xpud", (1,)), [Shard(0)])
        torch.testing.assert_close((placed @ placed).full_tensor().cpu(), self.value.view(2, 2).cpu() @ self.value.view(2, 2).cpu())


class RefusalTest(unittest.TestCase):
    def test_two_processes(self):
        program = "import torch, torch.distributed as dist; dist.init_process_group(store=dist.FileStore('{path}', 2), rank={rank}, world_size=2); " \
                  "dist.all_reduce(torch.ones(1, device='xpud'))"
        path = f"/tmp/xpud-store-{os.getpid()}"
        self.addCleanup(lambda: os.path.exists(path) and os.unlink(path))
        done = subprocess.run([sys.executable, "-c", program.format(path=path, rank=0)], capture_output=True, text=True, timeout=120)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("xpud has no collectives between processes yet (this group has 2)", done.stderr)

    def test_gloo_serves_cpu_tensors_only(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        dist.all_reduce(torch.ones(2))
        with self.assertRaisesRegex(RuntimeError, "No backend type associated with device type xpud"):
            dist.all_reduce(torch.ones(2, device="xpud"))


class DataParallelTest(unittest.TestCase):
    def test_inputs_move_to_the_device(self):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        expected = model(torch.ones(4, 3))
        wrapped = nn.DataParallel(model)
        self.assertEqual(next(wrapped.parameters()).device.type, "xpud")
        for inputs in (torch.ones(4, 3), torch.ones(4, 3, device="xpud")):
            torch.testing.assert_close(wrapped(inputs).cpu(), expected)
        torch.testing.assert_close(nn.DataParallel(model, device_ids=[0])(input=torch.ones(4, 3)).cpu(), expected)
        torch.testing.assert_close(nn.parallel.data_parallel(model, torch.ones(4, 3), [0]).cpu(), expected)

    def test_nested_inputs(self):
        class Sum(nn.Module):
            def forward(self, pair, scale=None):
                return pair[0] + pair[1]["more"] * scale["by"]
        result = nn.DataParallel(Sum())((torch.ones(2), {"more": torch.ones(2)}), scale={"by": 3})
        self.assertEqual((result.device.type, result.tolist()), ("xpud", [4, 4]))

    def test_more_devices_are_refused(self):
        wrapped = nn.DataParallel(nn.Linear(3, 2))
        with self.assertRaisesRegex(NotImplementedError, "DataParallel on xpud has one device, not 2"):
            wrapped.scatter((torch.ones(4, 3),), {}, [0, 1])


if __name__ == "__main__":
    unittest.main()
