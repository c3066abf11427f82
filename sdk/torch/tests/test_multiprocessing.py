"""Tensors that processes share: queues, pipes, arguments, DataLoader; who sees what, and what is left when a process ends or is killed.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_multiprocessing.py
"""

import concurrent.futures
import gc
import multiprocessing
import os
import pickle
import signal
import threading
import unittest
import warnings
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing
import torch_xpud  # noqa: F401  also without the entry point
from torch.utils.data import DataLoader, Dataset, TensorDataset

WAIT = 120  # seconds; a process that takes longer hangs
NO_TICKET = "its ticket is unknown or was taken"


def copies(x):
    """Sends `x` to this process."""
    return pickle.loads(ForkingPickler.dumps(x))


def add_in_place(items, results):
    """Adds 1 to each tensor that comes, and says that it did; the tensors stay until the end."""
    kept = []
    for x in iter(items.get, None):
        kept.append(x)
        with torch.no_grad():
            x.add_(1)
        torch.xpud.synchronize()
        results.put((x.device.type, type(x).__name__, x.requires_grad, tuple(x.stride()), x.storage_offset()))


def add_to_received(pipe):
    x = pipe.recv()
    x.add_(1)
    torch.xpud.synchronize()
    pipe.send("added")
    pipe.recv()


def send_made_here(items, goes_on):
    x = torch.arange(1000.0, device="xpud")
    for _ in range(200):
        x = x * 1.0 + 1.0
    items.put(x)
    items.close()
    items.join_thread()
    goes_on.wait(WAIT)


def fill(rank, x):
    x[rank] = rank + 10
    torch.xpud.synchronize()


def train(model, data, target, lock):
    """Hogwild: all processes update one model."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data), target).backward()
        with lock:
            optimizer.step()
            torch.xpud.synchronize()


def same_storage(items, results):
    first = items.get()
    second = items.get()
    third, fourth = items.get()
    storages = {each.untyped_storage().data_ptr() for each in (first, second, third, fourth)}
    results.put((len(storages), torch.xpud.memory_allocated(), [each.tolist() for each in (first, second, third, fourth)]))


def double(x):
    return x * 2


def read(x):
    return x.tolist()


def read_poison(items, results):
    x = items.get()
    try:
        results.put(x.tolist())
    except RuntimeError as error:
        results.put(f"{type(error).__name__}: {error}")


class Made(Dataset):
    """Makes its items in the process that asks for them."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((3,), float(index), device="xpud")


class InOneProcess(unittest.TestCase):
    def test_a_storage_comes_back_as_it_is(self):
        x = torch.arange(6.0, device="xpud")
        y = copies(x[2:])
        self.assertEqual(y.data_ptr(), x[2:].data_ptr())
        y.zero_()
        self.assertEqual(x.tolist(), [0, 1, 0, 0, 0, 0])
        pickled = ForkingPickler.dumps(x)
        pickle.loads(pickled)
        with self.assertRaisesRegex(RuntimeError, NO_TICKET):
            pickle.loads(pickled)

    def test_views_keep_their_layout(self):
        x = torch.nn.Parameter(torch.arange(24.0, device="xpud").view(4, 6))
        for view in (x, x.detach()[1:], x.detach()[:, ::2], x.detach().t(), x.detach()[2:, 3:].t(), x.detach()[3, 5], x.detach()[1:1]):
            y = copies(view)
            self.assertEqual((y.shape, y.stride(), y.storage_offset(), y.requires_grad, type(y), y.dtype, y.device),
                             (view.shape, view.stride(), view.storage_offset(), view.requires_grad, type(view), view.dtype, view.device))  # fmt: skip
            torch.testing.assert_close(y, view)

    def test_every_type(self):
        for dtype in (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64):
            x = torch.tensor([0, 1, 1, 0]).to(dtype).to("xpud")
            self.assertEqual((copies(x).dtype, copies(x).tolist()), (dtype, x.tolist()))

    def test_nothing_is_sent_as_nothing(self):
        x = copies(torch.empty(0, 3, device="xpud"))
        self.assertEqual((x.shape, x.device.type), ((0, 3), "xpud"))

    def test_storages(self):
        x = torch.arange(4.0, device="xpud")
        for storage in (x.untyped_storage(), x.storage()):
            self.assertEqual(copies(storage).data_ptr(), x.data_ptr())

    def test_nested_and_sparse_tensors(self):
        nested = torch.nested.nested_tensor([torch.ones(2, device="xpud"), torch.ones(3, device="xpud")])
        self.assertEqual([each.tolist() for each in copies(nested).unbind()], [[1, 1], [1, 1, 1]])
        sparse = torch.eye(3, device="xpud").to_sparse()
        self.assertEqual(copies(sparse).to_dense().tolist(), torch.eye(3).tolist())

    def test_modules(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).to("xpud")
        again = copies(model)
        for (name, ours), (_, theirs) in zip(model.state_dict().items(), again.state_dict().items()):
            self.assertEqual(ours.data_ptr(), theirs.data_ptr(), name)

    def test_results_with_gradients_are_refused(self):
        x = torch.ones(2, device="xpud", requires_grad=True) * 2
        with self.assertRaisesRegex(RuntimeError, "Cowardly refusing to serialize non-leaf tensor"):
            ForkingPickler.dumps(x)
        self.assertEqual(copies(x.detach()).tolist(), [2, 2])

    def test_is_shared_as_on_cuda(self):
        x = torch.ones(2, device="xpud")
        self.assertTrue(x.is_shared())
        self.assertTrue(x.untyped_storage().is_shared())
        self.assertIs(x.share_memory_(), x)
        self.assertTrue(torch.nn.Linear(2, 2).to("xpud").share_memory().weight.is_shared())
        self.assertFalse(torch.ones(2).is_shared())
        self.assertTrue(torch.ones(2).share_memory_().is_shared())

    def test_other_devices_are_sent_by_pytorch(self):
        x = torch.arange(3.0)
        self.assertEqual(copies(x).tolist(), [0, 1, 2])
        self.assertEqual(copies(torch.empty(2, device="meta")).device.type, "meta")

    def test_what_was_shared_is_freed(self):
        torch.xpud.synchronize()
        gc.collect()
        before = torch.xpud.memory_allocated()
        for _ in range(50):
            x = torch.ones(1 << 18, device="xpud")
            copies(x)
            self.assertEqual(torch.xpud.memory_allocated(), before + (1 << 20))
            del x
            gc.collect()
        self.assertEqual(torch.xpud.memory_allocated(), before)


class Processes(unittest.TestCase):
    def setUp(self):
        self.context = torch.multiprocessing.get_context("spawn")
        self.items, self.results = self.context.Queue(), self.context.Queue()

    def start(self, target, *args):
        process = self.context.Process(target=target, args=args)
        process.start()
        self.addCleanup(process.join, WAIT)
        self.addCleanup(process.kill)
        return process

    def test_a_queue_gives_the_same_memory(self):
        self.start(add_in_place, self.items, self.results)
        base = torch.zeros(4, 6, device="xpud")
        for x in (base, base[1:, ::2], torch.nn.Parameter(torch.zeros(3, device="xpud")), base.t()):
            before = x.detach().clone()
            self.items.put(x)
            got = self.results.get(timeout=WAIT)
            self.assertEqual(got, ("xpud", type(x).__name__, x.requires_grad, tuple(x.stride()), x.storage_offset()))
            torch.testing.assert_close(x.detach(), before + 1)
        self.items.put(None)

    def test_simple_queues_and_pipes(self):
        ours, theirs = self.context.Pipe()
        self.start(add_to_received, theirs)
        x = torch.zeros(5, device="xpud")
        ours.send(x)
        self.assertEqual(ours.recv(), "added")
        self.assertEqual(x.tolist(), [1] * 5)
        ours.send("end")
        items = self.context.SimpleQueue()
        self.start(add_in_place, items, self.results)
        items.put(x)
        self.results.get(timeout=WAIT)
        self.assertEqual(x.tolist(), [2] * 5)
        items.put(None)

    def test_a_storage_is_received_once(self):
        self.start(same_storage, self.items, self.results)
        x = torch.arange(1024.0, device="xpud")
        self.items.put(x[:2])
        self.items.put(x[2:4])
        self.items.put((x[4:6], x[:1]))
        storages, allocated, values = self.results.get(timeout=WAIT)
        self.assertEqual((storages, allocated), (1, 4096))
        self.assertEqual(values, [[0, 1], [2, 3], [4, 5], [0]])

    def test_spawn(self):
        x = torch.zeros(2, device="xpud")
        torch.multiprocessing.spawn(fill, args=(x,), nprocs=2)
        self.assertEqual(x.tolist(), [10, 11])

    def test_processes_train_one_model(self):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1).to("xpud").share_memory()
        data, target = torch.randn(32, 4, device="xpud"), torch.ones(32, 1, device="xpud")
        before = torch.nn.functional.mse_loss(model(data), target).item()
        lock = self.context.Lock()
        processes = [self.start(train, model, data, target, lock) for _ in range(2)]
        for process in processes:
            process.join(WAIT)
            self.assertEqual(process.exitcode, 0)
        self.assertLess(torch.nn.functional.mse_loss(model(data), target).item(), before / 4)

    def test_a_sender_that_has_ended(self):
        goes_on = self.context.Event()
        child = self.start(send_made_here, self.items, goes_on)
        x = self.items.get(timeout=WAIT)
        goes_on.set()
        child.join(WAIT)
        self.assertEqual(x.tolist(), [each + 200.0 for each in range(1000)])

    def test_a_sender_that_ended_before(self):
        goes_on = self.context.Event()
        goes_on.set()
        child = self.start(send_made_here, self.items, goes_on)
        child.join(WAIT)
        self.assertEqual(self.items.get(timeout=WAIT).tolist(), [each + 200.0 for each in range(1000)])

    def test_a_sender_that_is_killed_while_the_receiver_computes(self):
        goes_on = self.context.Event()  # never set
        child = self.start(send_made_here, self.items, goes_on)
        x = self.items.get(timeout=WAIT)
        killer = threading.Timer(0.05, os.kill, (child.pid, signal.SIGKILL))
        killer.start()
        expected = torch.arange(1000.0) + 200
        for _ in range(200):
            self.assertEqual(x.sum().item(), expected.sum().item())
        killer.join()
        child.join(WAIT)
        for _ in range(50):
            torch.testing.assert_close((x * 2).cpu(), expected * 2)
        before = torch.xpud.memory_allocated()
        del x
        gc.collect()
        self.assertLess(torch.xpud.memory_allocated(), before)

    def test_an_error_of_the_sender_reaches_the_receiver(self):
        x = torch.zeros(4, device="xpud")
        index = torch.tensor([7], device="xpud")
        x.index_add_(0, index, torch.ones(1, device="xpud"))
        self.items.put(x)
        self.start(read_poison, self.items, self.results)
        self.assertRegex(self.results.get(timeout=WAIT), "another process shares.*7.*4")
        with self.assertRaises(torch.xpud.InvalidIndexError):
            torch.xpud.synchronize()

    def test_pools_and_executors(self):
        x = torch.ones(2, device="xpud")
        with self.context.Pool(1) as pool:
            y = pool.apply_async(double, (x,)).get(WAIT)
            self.assertEqual((y.device.type, y.tolist()), ("xpud", [2, 2]))
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=self.context) as executor:
            self.assertEqual(executor.submit(double, x).result(WAIT).tolist(), [2, 2])
            self.assertEqual(executor.submit(read, x).result(WAIT), [1, 1])

    def test_plain_multiprocessing_queues(self):
        for items in (self.context.JoinableQueue(), multiprocessing.get_context("spawn").Queue()):
            items.put(torch.ones(2, device="xpud"))
            self.assertEqual(items.get(timeout=WAIT).tolist(), [1, 1])

    def test_what_cannot_be_sent_fails_in_the_reader(self):
        """A queue drops what it cannot pickle, and its reader would wait for ever."""
        x = torch.ones(4, device="xpud")
        tickets = [ForkingPickler.dumps(x) for _ in range(4096)]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.items.put(x)
            with self.assertRaisesRegex(RuntimeError, "4096 of this user's tensors were sent and not yet received"):
                self.items.get(timeout=WAIT)
        self.assertRegex(str(said[0].message), "The queue's reader gets this error")
        with self.assertRaisesRegex(RuntimeError, "4096"):
            ForkingPickler.dumps(x)
        for ticket in tickets:
            self.assertEqual(pickle.loads(ticket).data_ptr(), x.data_ptr())
        self.items.put(x)
        self.assertEqual(self.items.get(timeout=WAIT).tolist(), [1] * 4)


class Loaders(unittest.TestCase):
    def test_workers_that_make_tensors_on_the_device(self):
        for options in ({}, {"batch_size": None}, {"batch_size": 3, "persistent_workers": True}):
            loader = DataLoader(Made(), num_workers=2, multiprocessing_context="spawn", timeout=WAIT, **options)
            values = [batch.reshape(-1, 3) for batch in loader]
            self.assertEqual({batch.device.type for batch in values}, {"xpud"})
            self.assertEqual(torch.cat(values)[:, 0].tolist(), list(range(8)))

    def test_datasets_that_hold_tensors_on_the_device(self):
        held = TensorDataset(torch.arange(8.0, device="xpud"))
        loader = DataLoader(held, num_workers=1, multiprocessing_context="spawn", timeout=WAIT, batch_size=4)
        self.assertEqual([batch.tolist() for (batch,) in loader], [[0, 1, 2, 3], [4, 5, 6, 7]])


if __name__ == "__main__":
    unittest.main()
