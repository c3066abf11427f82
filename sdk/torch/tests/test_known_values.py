"""Values that the host knows without asking the device: small integers that it uploaded, and what was computed from them alone. That nobody
waits for them is tested in tests/e2e/known_values_test.py.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_known_values.py
"""

import threading
import unittest

import torch
import torch_xpud  # noqa: F401  also without the entry point

MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])


# Each reads as on the CPU, from what the host knows and from the device.
DERIVED = {
    "an element": lambda t: t[1, 2],
    "all of another type": lambda t: t.to(torch.bool).all(),
    "all of a view": lambda t: t[:, :2].ne(0).all(),
    "any along a dimension": lambda t: (t == 0).any(1)[0],
    "a sum": lambda t: t.sum(),
    "a sum's comparison": lambda t: t.bool().sum() == t.numel(),
    "the largest sum": lambda t: t.sum(-1).max(),
    "a position": lambda t: t.argmin(),
    "negated": lambda t: (~t.bool()).any(),
    "a transposed copy's": lambda t: t.t().contiguous()[3, 0],
    "expanded": lambda t: t[:, :1].expand(2, 5).clone().sum(),
    "with scalars": lambda t: (t * 3 - 1).amax(),
    "with a scalar of the CPU": lambda t: (t + torch.tensor(5)).amin(),
    "with a float": lambda t: (t < 0.5).sum(),
    "of two": lambda t: torch.logical_and(t, t.t().reshape(2, 4)).sum(),
    "where": lambda t: torch.where(t > 0, t, 7).prod(),
    "bytes": lambda t: t.view(torch.uint8)[1, 0],
    "with a number beyond its type": lambda t: t.to(torch.int8).neg().amin() == 255,
    "small integers, wrapped": lambda t: (t.to(torch.int8) * 127 + 100).min(),
    "an equality": lambda t: torch.tensor(torch.equal(t, t.clone())),
    "a count": lambda t: torch.tensor(len(t.nonzero())),
    "a selection": lambda t: t[t.bool()].sum(),
    "out=": lambda t: torch.add(t, t, out=torch.empty_like(t)).sum(),
}

# Each writes to a tensor that the host knows.
WRITES = {
    "an element": lambda t: t[0].__setitem__(0, 9),
    "a fill": lambda t: t.fill_(3),
    "a zero": lambda t: t.zero_(),
    "in place": lambda t: t.add_(2),
    "in place by another": lambda t: t.mul_(torch.randint(2, 5, t.shape, device="xpud")),
    "a view": lambda t: t.view(-1)[3:5].neg_(),
    "an upload": lambda t: t.copy_(torch.arange(8).reshape(2, 4)),
    "an upload of a part": lambda t: t[1].copy_(torch.arange(4)),
    "an upload of another type": lambda t: t.copy_(torch.arange(8.0).reshape(2, 4)),
    "a copy": lambda t: t.copy_(torch.arange(8, device="xpud").reshape(2, 4)),
    "out=": lambda t: torch.add(t, 1, out=t),
    "a mask": lambda t: t.masked_fill_(t == 0, 6),
    "an index": lambda t: t.index_put_((torch.tensor([1], device="xpud"),), torch.tensor(4, device="xpud")),
    "scattering": lambda t: t.scatter_add_(0, torch.zeros_like(t), torch.ones_like(t)),
    "many": lambda t: torch._foreach_add_([t, t], 1),
    "random numbers": lambda t: t.random_(100, 200),
    "growing": lambda t: t.resize_(4, 4).fill_(2),
    "on another stream": lambda t: written_on_another_stream(t),
    "on another thread": lambda t: written_on_another_thread(t),
    "through another tensor of its memory": lambda t: torch.empty(0, dtype=torch.int64, device="xpud").set_(t.untyped_storage(), 0, (8,)).fill_(5),
}


def written_on_another_stream(tensor):
    stream = torch.xpud.Stream()
    stream.wait_stream(torch.xpud.current_stream())
    with torch.xpud.stream(stream):
        tensor.sub_(4)
    torch.xpud.current_stream().wait_stream(stream)


def written_on_another_thread(tensor):
    thread = threading.Thread(target=lambda: tensor.mul_(-1))
    thread.start()
    thread.join()


class KnownValues(unittest.TestCase):
    def test_read_as_on_the_cpu(self):
        for type in (torch.int64, torch.int32, torch.uint8, torch.int8):
            there = MASK.to(type).to("xpud")
            for name, derive in DERIVED.items():
                with self.subTest(name, type=type):
                    expected, got = derive(MASK.to(type)), derive(there)
                    self.assertEqual(got.dtype, expected.dtype)
                    self.assertEqual(got.item(), expected.item())  # the host's
                    self.assertEqual(got.cpu().item(), expected.item())  # the device's

    def test_are_the_devices_after_it_was_written_to(self):
        for name, write in WRITES.items():
            with self.subTest(name):
                there = MASK.to("xpud")
                self.assertEqual(there.sum().item(), MASK.sum().item())
                write(there)
                values = there.cpu()
                self.assertFalse(torch.equal(values, MASK), "the test writes nothing")
                self.assertEqual(there.sum().item(), values.sum().item())
                self.assertEqual([element.item() for element in there.view(-1)], values.view(-1).tolist())

    def test_are_those_at_the_time_of_computing(self):
        there = MASK.to("xpud")
        total = there.sum()
        there.zero_()
        self.assertEqual(total.item(), MASK.sum().item())

    def test_are_those_at_the_time_of_uploading(self):
        host = MASK.clone()
        scalar = torch.tensor(1)
        there = host.to("xpud")
        more = there + scalar
        host.zero_(), scalar.zero_()
        self.assertEqual(there.sum().item(), MASK.sum().item())
        self.assertEqual(more.sum().item(), MASK.sum().item() + MASK.numel())

    def test_are_those_that_a_download_under_way_will_have_put_there(self):
        there = MASK.to("xpud")
        pinned = torch.zeros_like(MASK).pin_memory()
        large = torch.rand(1500, 1500, device="xpud")
        for _ in range(3):
            large = large @ large
        pinned.copy_(there, non_blocking=True)
        again = pinned.to("xpud", non_blocking=True)
        self.assertEqual(again.sum().item(), MASK.sum().item())

    def test_memory_that_is_used_again_is_not_what_it_was(self):
        for value in range(200):
            there = torch.full((64,), value).to("xpud")
            self.assertEqual(there[5].item(), value)
            del there
            self.assertNotEqual(torch.full((64,), -1, device="xpud")[5].item(), value)

    def test_a_long_history_is_not_kept(self):
        count = torch.tensor([0]).to("xpud")
        for _ in range(1000):
            count = count + 1
        self.assertEqual(count.item(), 1000)

    def test_more_than_is_kept(self):
        many = [torch.full((4096,), value).to("xpud") for value in range(1200)]  # 39 MB
        for value in (0, 600, 1199):
            self.assertEqual(many[value].max().item(), value)
        tiny = [torch.tensor(value).to("xpud") for value in range(6000)]
        self.assertEqual([tensor.item() for tensor in tiny[::1000]], list(range(0, 6000, 1000)))

    def test_what_the_host_cannot_compute_is_the_devices(self):
        quotient = torch.tensor([6, 8]).to("xpud") // torch.tensor([0, 2]).to("xpud")
        self.assertEqual(quotient[1].item(), 4)  # on the CPU it is an error

    def test_many_threads_read(self):
        there = torch.arange(1000).to("xpud")
        expected = [(there.cpu() % 7 == k).sum().item() for k in range(7)]
        wrong = []

        def read(k):
            for _ in range(50):
                count = (there % 7 == k).sum()
                if count.item() != expected[k]:
                    wrong.append(k)

        threads = [threading.Thread(target=read, args=(k,)) for k in range(7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_work_in_inference_mode_and_outside(self):
        with torch.inference_mode():
            inside = MASK.to("xpud").bool()
        outside = MASK.to("xpud").bool()
        self.assertFalse(inside.all().item())
        with torch.inference_mode():
            self.assertFalse(outside.all().item())
            self.assertTrue(outside.any().item())


if __name__ == "__main__":
    unittest.main()
