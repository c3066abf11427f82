"""Pinned memory: CPU tensors in memory that the daemon shares, and copies that do not wait.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_pinned.py
"""

import gc
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import torch
import torch_xpud  # noqa: F401  also without the entry point
from torch.utils.data import DataLoader, TensorDataset

MIB = 1 << 20


def run(program, **environment):
    """Runs a program in a new Python process. Returns its output and its warnings."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})  # fmt: skip
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def occupy():
    """Keeps the device busy for a while."""
    x = torch.ones(1024, 1024, device="xpud")
    for _ in range(10):
        x = x @ x
    return x


class PinnedTest(unittest.TestCase):
    def test_pin_memory_keeps_values_and_is_known(self):
        source = torch.randn(3, 5, 7)
        pinned = source.pin_memory()
        self.assertTrue(pinned.is_pinned())
        self.assertFalse(source.is_pinned())
        self.assertTrue(torch.equal(pinned, source))
        self.assertEqual(pinned.device.type, "cpu")
        self.assertIs(pinned.pin_memory(), pinned)
        self.assertTrue(pinned[1:].is_pinned())

    def test_strides_and_types_are_kept(self):
        for source in (torch.randn(6, 4).t(), torch.arange(9, dtype=torch.int8), torch.randn(4, dtype=torch.complex64),
                       torch.tensor(3.5), torch.zeros(0, 3), torch.tensor([True, False])):  # fmt: skip
            pinned = source.pin_memory()
            self.assertEqual((pinned.dtype, pinned.shape, pinned.stride()), (source.dtype, source.shape, source.stride()))
            self.assertTrue(torch.equal(pinned, source))
            self.assertTrue(torch.equal(pinned.to("xpud").cpu(), source))
            self.assertTrue(torch.equal(pinned.to("xpud", non_blocking=True).cpu(), source))

    def test_factories_take_pin_memory(self):
        if torch.backends.cuda.is_built() and torch.cuda.is_available():
            self.skipTest("PyTorch with CUDA gives CUDA's memory here, whatever other devices there are")
        for made in (torch.empty(1000, pin_memory=True), torch.zeros(3, 4, pin_memory=True), torch.full((2,), 5.0, pin_memory=True),
                     torch.empty_like(torch.ones(5), pin_memory=True), torch.tensor([1, 2], pin_memory=True)):  # fmt: skip
            self.assertTrue(made.is_pinned())
        self.assertEqual(torch.full((2,), 5.0, pin_memory=True).tolist(), [5, 5])

    def test_a_device_tensor_cannot_be_pinned(self):
        on_device = torch.ones(3, device="xpud")
        self.assertFalse(on_device.is_pinned())
        with self.assertRaises(RuntimeError):
            on_device.pin_memory()

    def test_a_blocking_copy_has_ended_when_it_returns(self):
        source, target = torch.randn(4 * MIB).pin_memory(), torch.zeros(4 * MIB).pin_memory()
        expected = source.clone()
        occupy()
        there = source.to("xpud")
        source.zero_()
        self.assertTrue(torch.equal(there.cpu(), expected))
        target.copy_(there)
        self.assertTrue(torch.equal(target, expected))

    def test_a_copy_that_does_not_block_is_there_after_a_wait(self):
        source, target = torch.randn(4 * MIB).pin_memory(), torch.zeros(4 * MIB).pin_memory()
        occupy()
        there = source.to("xpud", non_blocking=True)
        target.copy_(there * 2, non_blocking=True)
        event = torch.xpud.Event()
        event.record()
        event.synchronize()
        self.assertTrue(torch.equal(target, source * 2))
        back = there.to("cpu", non_blocking=True)
        torch.xpud.synchronize()
        self.assertTrue(torch.equal(back, source))

    def test_an_upload_reads_what_an_earlier_download_writes(self):
        source, pinned = torch.arange(8, device="xpud"), torch.zeros(8, dtype=torch.int64).pin_memory()
        occupy()
        pinned.copy_(source, non_blocking=True)
        again = pinned.to("xpud", non_blocking=True)
        self.assertEqual(again.tolist(), list(range(8)))

    def test_ordinary_memory_may_be_changed_at_once_even_so(self):
        source = torch.randn(4 * MIB)
        expected = source.clone()
        there = source.to("xpud", non_blocking=True)
        source.zero_()
        target = torch.zeros(4 * MIB)
        target.copy_(there, non_blocking=True)
        self.assertTrue(torch.equal(target, expected))

    def test_types_and_layouts_are_converted_on_the_way(self):
        source = torch.randn(64, 128).pin_memory()
        there = torch.empty(128, 64, dtype=torch.float16, device="xpud")
        there.copy_(source.t(), non_blocking=True)
        self.assertTrue(torch.equal(there.cpu(), source.t().half()))
        back = torch.empty(64, 128, dtype=torch.float64).pin_memory()
        back.copy_(there.t(), non_blocking=True)
        torch.xpud.synchronize()
        self.assertTrue(torch.equal(back, source.half().double()))

    def test_another_stream_copies_too(self):
        stream = torch.xpud.Stream()
        source = torch.randn(MIB).pin_memory()
        with torch.xpud.stream(stream):
            there = source.to("xpud", non_blocking=True)
            result = there + 1
        torch.xpud.current_stream().wait_stream(stream)
        self.assertTrue(torch.equal(result.cpu(), source + 1))

    def test_memory_is_not_reused_while_a_copy_needs_it(self):
        kept = []
        for i in range(120):
            if i % 20 == 0:
                occupy()
            kept.append(torch.full((100_000,), float(i)).pin_memory().to("xpud", non_blocking=True))  # frees the pinned tensor
        for i, tensor in enumerate(kept):
            self.assertEqual(tensor.min().item(), i)
            self.assertEqual(tensor.max().item(), i)
        occupy()
        for tensor in kept:
            torch.empty(100_000).pin_memory().copy_(tensor, non_blocking=True)  # frees it before it is written
        mine = [torch.full((100_000,), 1000.0 + i).pin_memory() for i in range(120)]
        torch.xpud.synchronize()
        for i, tensor in enumerate(mine):
            self.assertTrue(bool((tensor == 1000.0 + i).all()), i)

    def test_memory_is_reused(self):
        addresses = set()
        for _ in range(50):
            addresses.add(torch.ones(MIB).pin_memory().data_ptr())
            gc.collect()
        self.assertLessEqual(len(addresses), 2)

    def test_a_data_loader_pins(self):
        data = torch.arange(96 * 1000, dtype=torch.float32).reshape(96, 1000)
        for workers in (0, 2):
            loader = DataLoader(TensorDataset(data, torch.arange(96)), batch_size=8, pin_memory=True, num_workers=workers)
            for epoch in range(2):
                total = torch.zeros((), dtype=torch.float64, device="xpud")
                for rows, labels in loader:
                    self.assertTrue(rows.is_pinned() and labels.is_pinned())
                    rows, labels = rows.to("xpud", non_blocking=True), labels.to("xpud", non_blocking=True)
                    total += rows.sum(dtype=torch.float64) + labels.sum()
                self.assertEqual(total.item(), data.double().sum().item() + 95 * 48)

    def test_a_process_that_has_not_connected_connects(self):
        run("""
            import torch, torch_xpud
            x = torch.ones(1000)
            assert not x.is_pinned() and not torch.xpud.is_initialized()
            assert x.pin_memory().is_pinned() and torch.xpud.is_initialized()
            """)

    def test_a_forked_child_is_refused_and_may_drop_what_it_inherits(self):
        out, _ = run("""
            import os, torch, torch_xpud
            x = torch.ones(1000).pin_memory()
            if os.fork() == 0:
                try:
                    torch.ones(3).pin_memory()
                except RuntimeError as error:
                    print("refused" if "forked subprocess" in str(error) else error, flush=True)
                del x
                os._exit(0)
            os.wait()
            print(x.sum().item())
            """)
        self.assertEqual(out.split(), ["refused", "1000.0"])

    def test_without_a_session_memory_is_ordinary(self):
        run("""
            import torch, torch_xpud
            x = torch.arange(10.0).pin_memory()
            assert not x.is_pinned() and x.sum() == 45
            """, XPUD_NULL_DEVICE="1")  # fmt: skip

    def test_beyond_the_limit_memory_is_ordinary_with_one_warning(self):
        daemon = os.environ.get("XPUD_DAEMON") or os.path.join(os.path.dirname(torch_xpud.__file__), "../../bin/xpud")
        if not os.path.exists(daemon):
            self.skipTest("needs the daemon of a build tree")
        with tempfile.TemporaryDirectory() as folder:
            address = os.path.join(folder, "xpud.sock")
            process = subprocess.Popen([daemon, "--socket", address, "--device", "cpu", "--host-memory-limit", "20", "--cache-dir", folder],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            try:
                while not os.path.exists(address):
                    time.sleep(0.01)
                out, warned = run("""
                    import torch, torch_xpud
                    small = torch.ones(1000).pin_memory()
                    large = [torch.full((8 << 20,), 3.0).pin_memory() for _ in range(3)]
                    print(small.is_pinned(), [x.is_pinned() for x in large], [x.to("xpud", non_blocking=True).mean().item() for x in large])
                    """, XPUD_ADDRESS=address)  # fmt: skip
            finally:
                process.terminate()
                process.wait()
        self.assertEqual(out.strip(), "True [False, False, False] [3.0, 3.0, 3.0]")
        self.assertEqual(warned.count("cannot be pinned"), 1, warned)


if __name__ == "__main__":
    unittest.main()
