"""xpud tensors in other libraries, files and forked workers: DLPack, pickles, DataLoader. test_multiprocessing.py has tensors that processes share.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_sharing.py
"""

import copy
import gc
import io
import pickle
import unittest
from multiprocessing.reduction import ForkingPickler

import numpy
import torch
import torch.multiprocessing
import torch.utils.dlpack
import torch_xpud  # noqa: F401  also without the entry point
from test_device import run
from torch.utils.data import DataLoader, Dataset

WAIT = 60  # seconds; a process that takes longer hangs


class DlpackTest(unittest.TestCase):
    def test_device_is_an_extension_device(self):
        x = torch.ones(2, device="xpud")
        self.assertEqual(x.__dlpack_device__(), (torch.utils.dlpack.DLDeviceType.kDLExtDev, 0))
        self.assertEqual(torch.nn.Parameter(x).__dlpack_device__()[0], 12)
        self.assertEqual(torch.ones(2).__dlpack_device__()[0], torch.utils.dlpack.DLDeviceType.kDLCPU)

    def test_tensors_share_memory(self):
        x = torch.arange(24.0, device="xpud").view(4, 6)
        for take in (torch.from_dlpack, lambda t: torch.from_dlpack(torch.utils.dlpack.to_dlpack(t)), lambda t: torch.from_dlpack(t.__dlpack__()),
                     lambda t: torch.from_dlpack(t.__dlpack__(max_version=(1, 0))), lambda t: torch.from_dlpack(t, device="xpud:0")):  # fmt: skip
            for view in (x, x[1:], x[:, ::2], x.t(), x[2:, 3:].t(), x[1:1], x[3, 5]):
                shared = take(view)
                self.assertEqual((shared.device, shared.shape, shared.stride()), (view.device, view.shape, view.stride()))
                torch.testing.assert_close(shared, view)
                shared.add_(1)
                torch.testing.assert_close(shared, view)
                view.mul_(2)
                torch.testing.assert_close(shared.cpu(), view.cpu())
                if view.numel():
                    self.assertEqual(shared.data_ptr(), view.data_ptr())

    def test_every_type(self):
        for dtype in (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64):
            x = torch.tensor([0, 1, 1, 0]).to(dtype).to("xpud")
            shared = torch.from_dlpack(x)
            self.assertEqual(shared.dtype, dtype)
            self.assertEqual(shared.tolist(), x.tolist())

    def test_source_may_die_first(self):
        shared = torch.from_dlpack(torch.full((300,), 7.0, device="xpud")[100:])
        gc.collect()
        others = [torch.zeros(300, device="xpud") for _ in range(50)]  # would reuse the memory if it were free
        self.assertEqual(shared.sum().item(), 1400)
        shared.fill_(3)
        self.assertEqual(sum(each.sum().item() for each in others), 0)

    def test_memory_is_freed_with_the_last_sharer_and_used_again(self):
        torch.xpud.synchronize()
        before = torch.xpud.memory_allocated()
        for value in range(20):
            x = torch.full((5000,), float(value), device="xpud")
            shared = torch.from_dlpack(x)
            del x
            self.assertEqual((shared + 1).max().item(), value + 1)
            del shared
        torch.xpud.synchronize()
        self.assertEqual(torch.xpud.memory_allocated(), before)

    def test_what_the_host_knows_follows_writes_through_the_other_tensor(self):
        x = torch.tensor([1, 2, 3], device="xpud")
        shared = torch.from_dlpack(x)
        shared.add_(10)
        self.assertEqual((x.max().item(), x.tolist(), shared.min().item()), (13, [11, 12, 13], 11))
        x[0] = 5
        self.assertEqual((shared.min().item(), bool((shared > 4).all())), (5, True))

    def test_shared_memory_computes_views_and_trains(self):
        x = torch.randn(8, 4)
        shared = torch.from_dlpack(x.to("xpud"))
        torch.testing.assert_close((shared.view(4, 8)[1:] @ shared).cpu(), x.view(4, 8)[1:] @ x, atol=1e-5, rtol=1e-5)
        weight = shared.requires_grad_()
        weight.square().sum().backward()
        torch.testing.assert_close(weight.grad.cpu(), 2 * x)
        torch.testing.assert_close(copy.deepcopy(weight).detach().cpu(), x)

    def test_numpy_says_what_to_do(self):
        x = torch.arange(6.0, device="xpud")
        for options in ({}, {"copy": True}):
            with self.assertRaisesRegex(BufferError, r"on xpud:0, which NumPy cannot read; use x\.cpu\(\)"):
                numpy.from_dlpack(x, **options)
        self.assertEqual(numpy.from_dlpack(x.cpu()).tolist(), x.tolist())

    def test_copies_to_the_host_on_request(self):
        x = torch.arange(6.0, device="xpud").view(2, 3).t()
        there = numpy.from_dlpack(x, device="cpu")
        self.assertEqual(there.tolist(), x.tolist())
        there = torch.from_dlpack(x.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
        self.assertEqual((there.device.type, there.tolist()), ("cpu", x.tolist()))
        self.assertEqual(torch.from_dlpack(x, device="cpu").tolist(), x.tolist())
        for refused in (lambda: numpy.from_dlpack(x, device="cpu", copy=False), lambda: torch.from_dlpack(x, device="cpu", copy=False)):
            with self.assertRaisesRegex(ValueError, "without copying|copy=False"):
                refused()

    def test_copies_on_the_device_on_request(self):
        x = torch.zeros(3, device="xpud")
        torch.from_dlpack(x, copy=True).fill_(1)
        self.assertEqual(x.tolist(), [0, 0, 0])

    def test_gradients_and_conjugates_are_refused_as_elsewhere(self):
        with self.assertRaisesRegex(BufferError, "require gradient"):
            torch.ones(2, device="xpud", requires_grad=True).__dlpack__()
        with self.assertRaisesRegex(BufferError, "conjugate"):
            torch.ones(2, dtype=torch.complex64, device="xpud").conj().__dlpack__()

    def test_subclasses_see_the_call(self):
        class Logged(torch.Tensor):
            calls = []

            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                cls.calls.append(getattr(function, "__name__", str(function)))
                return super().__torch_function__(function, types, args, kwargs or {})

        x = torch.ones(2, device="xpud").as_subclass(Logged)
        self.assertEqual(x.__dlpack_device__()[0], 12)
        self.assertIn("__dlpack_device__", Logged.calls)


# ---- what runs in other processes


class Made(Dataset):
    """Samples that are created on a device."""

    def __init__(self, device):
        self.device = device

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((2,), float(index), device=self.device)


class PicklingTest(unittest.TestCase):
    def test_other_devices_are_shared_as_before(self):
        x = torch.arange(3.0)
        there = pickle.loads(ForkingPickler.dumps(x))
        there[0] = 9
        self.assertEqual(x[0].item(), 9)
        meta = pickle.loads(ForkingPickler.dumps(torch.nn.Parameter(torch.ones(2, device="meta"))))
        self.assertEqual((meta.device.type, type(meta)), ("meta", torch.nn.Parameter))
        self.assertEqual(pickle.loads(ForkingPickler.dumps(torch.ones(2).untyped_storage())).nbytes(), 8)

    def test_ordinary_pickles_and_copies_work(self):
        x = torch.nn.Parameter(torch.arange(3.0, device="xpud"))
        saved = io.BytesIO()
        torch.save(x, saved)
        saved.seek(0)
        for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), torch.load(saved)):
            self.assertEqual((again.device, again.tolist(), type(again)), (x.device, [0, 1, 2], torch.nn.Parameter))


class DataLoaderTest(unittest.TestCase):
    def test_spawned_workers_that_make_cpu_tensors(self):
        batches = [batch.to("xpud") for batch in DataLoader(Made("cpu"), num_workers=1, multiprocessing_context="spawn", timeout=WAIT, batch_size=2)]
        self.assertEqual(torch.cat(batches).sum(1).tolist(), [0, 2, 4, 6])

    def test_forked_workers_that_make_xpud_tensors(self):
        """Runs in a separate process, which uses the device before it forks."""
        out = run("""
            import torch, torch_xpud
            from test_sharing import DataLoader, Made
            torch.ones(2, device="xpud").sum().item()
            for dataset in (Made("xpud"), torch.utils.data.TensorDataset(torch.ones(4, 2, device="xpud"))):
                try:
                    list(DataLoader(dataset, num_workers=1, multiprocessing_context="fork", timeout=60))
                except RuntimeError as error:
                    print(str(error).strip().splitlines()[-1])
        """)
        self.assertEqual(len(out.strip().splitlines()), 2, out)
        for line in out.strip().splitlines():
            self.assertRegex(line, "fork")

    def test_forked_workers_that_return_cpu_tensors(self):
        out = run("""
            import torch, torch_xpud
            from test_sharing import DataLoader, Made
            torch.ones(2, device="xpud").sum().item()
            loader = DataLoader(Made("cpu"), num_workers=1, multiprocessing_context="fork", timeout=60, pin_memory=True)
            print(sum(batch.to("xpud", non_blocking=True).sum().item() for batch in loader))
        """)
        self.assertEqual(out.strip(), "12.0")


if __name__ == "__main__":
    unittest.main()
