"""Tensors that go from one device to another without the host: against the CPU. A daemon of the test's own, with two CPU devices."""

import atexit
import copy
import itertools
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARIES = ROOT / "build/release/bin"
sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon  # noqa: E402

_folder = tempfile.TemporaryDirectory(prefix="xpud-peers-")
DAEMON = Daemon(BINARIES, pathlib.Path(_folder.name, "log"), "--device", "cpu", "--test-devices", "2")
atexit.register(DAEMON.close)
os.environ["XPUD_ADDRESS"] = str(DAEMON.address)

import torch  # noqa: E402
from torch import nn  # noqa: E402

HERE, THERE = "xpud:0", "xpud:1"


def copied() -> list[int]:
    """Returns the bytes that each device has got from others."""
    torch.xpud.synchronize(0), torch.xpud.synchronize(1)
    return [int(device.get("peer_bytes", 0)) for device in DAEMON.status()["devices"]]


class PeersTest(unittest.TestCase):
    def same(self, actual: torch.Tensor, expected: torch.Tensor, device: str = THERE) -> None:
        self.assertEqual(str(actual.device), device)
        self.assertEqual(actual.dtype, expected.dtype)
        self.assertTrue(torch.equal(actual.cpu(), expected), (actual.cpu(), expected))

    def test_bytes_go_directly(self):
        before = copied()
        host = torch.rand(1000)
        self.same(host.to(HERE).to(THERE), host)
        after = copied()
        self.assertEqual((after[0] - before[0], after[1] - before[1]), (0, 4000))

    def test_every_dtype(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
                      torch.complex64, torch.float8_e4m3fn):
            host = torch.arange(24).reshape(4, 6).to(dtype)
            there = host.to(HERE).to(THERE)
            self.assertEqual(str(there.device), THERE)
            self.assertTrue(torch.equal(there.cpu().to(torch.complex64), host.to(torch.complex64)), dtype)

    def test_layouts(self):
        host = torch.arange(120.0).reshape(2, 3, 4, 5)
        views = {"transposed": lambda x: x.transpose(1, 3), "permuted": lambda x: x.permute(2, 0, 3, 1), "sliced": lambda x: x[:, 1:, ::2, 3:],
                 "selected": lambda x: x[1, :, 2], "expanded": lambda x: x[:1].expand(4, 3, 4, 5), "scalar": lambda x: x[1, 2, 3, 4],
                 "empty": lambda x: x[:, :0], "channels last": lambda x: x.to(memory_format=torch.channels_last), "flipped": lambda x: x.flip(0)}
        for name, view in views.items():
            with self.subTest(name):
                there = view(host.to(HERE)).to(THERE)
                self.same(there, view(host))
                self.assertEqual(there.stride(), view(host).to("cpu", copy=True).stride())

    def test_copy_to_every_layout_of_the_target(self):
        host = torch.arange(24.0).reshape(4, 6)
        targets = {"dense": lambda d: torch.zeros(4, 6, device=d), "transposed": lambda d: torch.zeros(6, 4, device=d).t(),
                   "part": lambda d: torch.zeros(8, 12, device=d)[::2, 3:9], "larger": lambda d: torch.zeros(3, 4, 6, device=d),
                   "half": lambda d: torch.zeros(4, 6, dtype=torch.float16, device=d), "double": lambda d: torch.zeros(4, 6, dtype=torch.float64, device=d),
                   "integer": lambda d: torch.zeros(4, 6, dtype=torch.int32, device=d), "half, transposed": lambda d: torch.zeros(6, 4, device=d).half().t()}
        for (name, make), transposed in itertools.product(targets.items(), (False, True)):
            with self.subTest(name, transposed=transposed):
                source = host.t().contiguous().t() if transposed else host
                self.same(make(THERE).copy_(source.to(HERE)), make("cpu").copy_(source))

    def test_conversion_goes_where_fewer_bytes_have_to_go(self):
        wide, narrow = torch.rand(256, dtype=torch.float32), torch.rand(256).to(torch.float16)
        before = copied()[1]
        self.same(wide.to(HERE).to(THERE, torch.float16), wide.half())
        self.assertEqual(copied()[1] - before, 512)
        self.same(narrow.to(HERE).to(THERE, torch.float32), narrow.float())
        self.assertEqual(copied()[1] - before, 1024)

    def test_pending_conjugation_and_negation(self):
        host = torch.randn(5, 5, dtype=torch.complex64)
        self.same(host.to(HERE).conj().to(THERE).resolve_conj(), host.conj().resolve_conj())
        self.same(host.to(HERE).conj().imag.to(THERE).resolve_neg(), host.conj().imag.resolve_neg())
        target = torch.zeros(5, 5, dtype=torch.complex64, device=THERE)
        target.conj().copy_(host.to(HERE))
        self.same(target, host.conj().resolve_conj())

    def test_sources_may_change_or_go_at_once(self):
        for value in range(50):
            source = torch.full((1 << 16,), float(value), device=HERE)
            there = torch.empty(1 << 16, device=THERE).copy_(source, non_blocking=True)
            source.fill_(-1)
            back = there.to(HERE, non_blocking=True)
            del there
            torch.zeros(1 << 16, device=THERE)
            self.assertEqual((back.min().item(), back.max().item()), (value, value))
            self.assertEqual(source.max().item(), -1)

    def test_streams_order_copies(self):
        host = torch.rand(256, 256)
        here, there = host.to(HERE), torch.zeros(256, 256, device=THERE)
        streams = torch.xpud.Stream(0), torch.xpud.Stream(1)
        torch.xpud.synchronize(0)
        with torch.xpud.stream(streams[0]), torch.xpud.stream(streams[1]):
            expected = host
            for _ in range(20):
                here = here @ here / here.sum()
                expected = expected @ expected / expected.sum()
                there.copy_(here, non_blocking=True)
                there = there + 1
                expected = expected + 1
                here = there.to(HERE, non_blocking=True)
        streams[1].synchronize()
        self.assertTrue(torch.allclose(there.cpu(), expected, rtol=1e-4))

    def test_an_error_before_the_copy_is_raised_after_it(self):
        table, index = torch.rand(4, 8, device=HERE), torch.tensor([9], device=HERE)
        row = table[index].to(THERE)
        with self.assertRaises(IndexError):
            row.cpu()
        with self.assertRaises(IndexError):
            torch.xpud.synchronize(0)
        self.same(table.to(THERE), table.cpu())

    def test_gradients_cross(self):
        host = torch.rand(8, 8)
        results = []
        for first, second in (("cpu", "cpu"), (HERE, THERE)):
            leaf = host.to(first, copy=True).requires_grad_()
            loss = ((leaf * 3).to(second) @ host.to(second)).square().to(first).mean()
            loss.backward()
            self.assertEqual(str(leaf.grad.device), first)
            results.append((loss.item(), leaf.grad.cpu()))
        self.assertAlmostEqual(results[0][0], results[1][0], places=3)
        self.assertTrue(torch.allclose(results[0][1], results[1][1], rtol=1e-4))

    def test_a_pipeline_of_two_devices_trains_as_on_one(self):
        torch.manual_seed(0)
        stages = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)), nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
        inputs, targets = torch.rand(64, 16), torch.rand(64, 4)
        losses = {}
        for devices in (("cpu", "cpu"), (HERE, THERE)):
            parts = [copy.deepcopy(stage).to(device) for stage, device in zip(stages, devices, strict=True)]
            optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=1e-2)
            found = []
            for _ in range(15):
                for micro, target in zip(inputs.split(16), targets.split(16), strict=True):
                    x = parts[0](micro.to(devices[0]))
                    loss = (parts[1](x.to(devices[1])) - target.to(devices[1])).square().mean() / 4
                    loss.backward()
                    found.append(loss.item())
                optimizer.step()
                optimizer.zero_grad()
            losses[devices] = torch.tensor(found)
        self.assertTrue(torch.allclose(*losses.values(), rtol=1e-3), losses)
        self.assertLess(losses[HERE, THERE][-4:].sum(), losses[HERE, THERE][:4].sum())

    def test_nothing_is_left(self):
        torch.xpud.synchronize(0), torch.xpud.synchronize(1)
        before = [torch.xpud.memory_allocated(device) for device in (0, 1)]
        for _ in range(200):
            torch.rand(4096, device=HERE).to(THERE).to(HERE)
        torch.xpud.synchronize(0), torch.xpud.synchronize(1)
        self.assertEqual([torch.xpud.memory_allocated(device) for device in (0, 1)], before)


if __name__ == "__main__":
    unittest.main()
