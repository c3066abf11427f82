"""Indices out of range, in every operator that takes indices, while another process computes and checks every number.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_indices.py

Kernels detect them, so operators on the device raise IndexError at the next synchronisation, and not before. The error is raised once, the
session continues, and all other results, before and after, are right. Operators that fall back raise at once, as PyTorch's CPU kernels do.
"""

import contextlib
import subprocess
import sys
import textwrap
import threading
import time
import unittest
import warnings

import torch
import torch.nn.functional as F
import torch_xpud  # noqa: F401  also without the entry point

aten = torch.ops.aten
ROWS, COLUMNS = 5, 3
FAR = 1 << 40


def put(x, index, values, **how):
    return x.clone().index_put_((index,), values, **how)


def assign(x, index, value):
    x = x.clone()
    x[index] = value
    return x


# Operators on x (5 x 3), an index of four rows, and values (4 x 3); `counts`: a negative index counts from the end.
ON_DEVICE = {
    "index_select": lambda x, i, v: x.index_select(0, i),
    "index_select of columns": lambda x, i, v: x.t().index_select(1, i),
    "gather": lambda x, i, v: x.gather(0, i.unsqueeze(1).expand(-1, COLUMNS)),
    "embedding": lambda x, i, v: F.embedding(i, x),
    "embedding's gradient": lambda x, i, v: aten.embedding_dense_backward(v, i, ROWS, -1, False),
    "embedding's gradient, with padding": lambda x, i, v: aten.embedding_dense_backward(v, i, ROWS, 2, False),
    "index_add": lambda x, i, v: x.index_add(0, i, v),
    "index_add_": lambda x, i, v: x.clone().index_add_(0, i, v, alpha=2),
    "scatter": lambda x, i, v: x.scatter(0, i.unsqueeze(1), v),
    "scatter_": lambda x, i, v: x.clone().scatter_(0, i.unsqueeze(1), 7.0),
    "scatter_add": lambda x, i, v: x.scatter_add(0, i.unsqueeze(1), v),
    "scatter_reduce": lambda x, i, v: x.scatter_reduce(0, i.unsqueeze(1), v, "amax"),
    "index_copy": lambda x, i, v: x.index_copy(0, i, v),
    "index_reduce": lambda x, i, v: x.index_reduce(0, i, v, "prod"),
    "embedding_bag": lambda x, i, v: F.embedding_bag(i, x, i.new_tensor([0, 2]), mode="sum"),
    "nll_loss": lambda x, i, v: F.nll_loss(torch.ones(4, ROWS, device=x.device), i),
    "nll_loss, unreduced and weighted": lambda x, i, v: F.nll_loss(torch.ones(4, ROWS, device=x.device), i, weight=x[:, 0], reduction="none"),
    "nll_loss's gradient": lambda x, i, v: aten.nll_loss_backward(torch.ones((), device=x.device), torch.ones(4, ROWS, device=x.device), i,
                                                                  None, 2, -100, torch.ones((), device=x.device)),
    "cross_entropy": lambda x, i, v: F.cross_entropy(torch.ones(4, ROWS, device=x.device), i),
}
ON_DEVICE_COUNTS = {
    "x[i]": lambda x, i, v: x[i],
    "x[i, j]": lambda x, i, v: x[i, i.clamp(0, 1)],
    "x[j, i]": lambda x, i, v: x.t()[i.clamp(0, 1), i],
    "x[:, i]": lambda x, i, v: x.t()[:, i],
    "index_put_, accumulating": lambda x, i, v: put(x, i, v, accumulate=True),
    "index_fill": lambda x, i, v: x.index_fill(0, i, 7.0),
    "index_put_": lambda x, i, v: put(x, i, v),
    "x[i] = v": lambda x, i, v: assign(x, i, v),
    "x[i] = 7": lambda x, i, v: assign(x, i, 7.0),
    "take": lambda x, i, v: x.take(i + (i >= ROWS) * ROWS * COLUMNS - (i < 0) * ROWS * COLUMNS),
    "put_": lambda x, i, v: x.clone().put_(i + (i >= ROWS) * ROWS * COLUMNS - (i < 0) * ROWS * COLUMNS, v[:, 0]),
}
FALLS_BACK = {
    "index_copy of complex numbers": lambda x, i, v: x.cfloat().index_copy(0, i, v.cfloat()).real,
}

NEIGHBOUR = """
    import sys, torch, torch_xpud
    table, index = torch.randn(100, 8), torch.arange(64) % 100
    there, places = table.to("xpud"), index.to("xpud")
    wanted = (table[index] * 2).sum(0)
    print("ready", flush=True)
    rounds = 0
    while True:
        assert torch.equal(there.index_select(0, places).cpu(), table[index]), f"wrong in round {rounds}"
        torch.testing.assert_close((there[places] * 2).sum(0).cpu(), wanted)
        rounds += 1
        if rounds % 50 == 0:
            print(rounds, flush=True)
"""


class Neighbour:
    """Another process on the device. It ends with an error at the first wrong number or error."""

    def __init__(self):
        self._process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(NEIGHBOUR)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         text=True)
        self.hear()

    def hear(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("the neighbour ended: " + self._process.stderr.read())
        return line

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def outside(counts):
    """Indices that are out of range for five rows."""
    return (ROWS, -ROWS - 1, FAR, -FAR) if counts else (ROWS, -1, FAR, -FAR)


def operands(device, bad, at, dtype=torch.int64):
    index = torch.tensor([0, 4, 2, 1])
    if bad is not None:
        index[at] = bad
    return (torch.arange(ROWS * COLUMNS, dtype=torch.float32).reshape(ROWS, COLUMNS).to(device), index.to(dtype).to(device),
            torch.ones(4, COLUMNS, device=device))


class IndicesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.neighbour = Neighbour()
        cls.addClassCleanup(cls.neighbour.end)

    def setUp(self):
        warnings.simplefilter("ignore")  # about fallbacks

    def tearDown(self):
        for _ in range(3):  # lines that it may have printed before
            self.neighbour.hear()

    def expect_right(self, operation, x):
        """Checks that the session, the tensor, and the operator with valid indices still work."""
        self.assertTrue(torch.equal(x.cpu(), operands("cpu", None, 0)[0]), "what was read has changed")
        torch.testing.assert_close(operation(*operands("xpud", None, 0)).cpu(), operation(*operands("cpu", None, 0)))

    def expect_error_at_sync(self, name, operation, bad, at, dtype):
        before = torch.xpud.fallback_counts()
        x, index, values = operands("xpud", bad, at, dtype)
        torch.xpud.synchronize()
        result = operation(x, index, values)  # raises nothing
        wrong = bad + (ROWS * COLUMNS if bad > 0 else -ROWS * COLUMNS) if name in ("take", "put_") else bad
        with self.assertRaisesRegex(IndexError, f"^index {wrong} is out of range (for dimension [01] )?in "):
            result.cpu()
        torch.xpud.synchronize()  # the error is raised only once
        self.assertEqual(torch.xpud.fallback_counts(), before, "it fell back: it belongs to the others")
        self.expect_right(operation, x)

    def test_on_the_device_they_raise_at_the_next_sync(self):
        for operations, counts in ((ON_DEVICE, False), (ON_DEVICE_COUNTS, True)):
            for name, operation in operations.items():
                for bad in outside(counts):
                    for at in (0, 3):
                        with self.subTest(name, bad=bad, at=at):
                            self.expect_error_at_sync(name, operation, bad, at, torch.int64)

    def test_an_error_names_the_dimension(self):
        x = torch.zeros(5, 4, 3, device="xpud")
        good, bad = torch.tensor([0, 1], device="xpud"), torch.tensor([1, -7], device="xpud")
        for dimension, operation in ((0, lambda: x[bad]), (2, lambda: x[:, :, bad]), (1, lambda: x[good, bad]), (0, lambda: x[bad, bad]),
                                     (2, lambda: x[good, :, bad]), (1, lambda: x.index_put_((good, bad), torch.ones((), device="xpud")))):
            operation()
            with self.assertRaisesRegex(IndexError, f"index -7 is out of range for dimension {dimension} in "):
                torch.xpud.synchronize()

    def test_checks_of_values_raise_at_the_next_sync(self):
        p, two = torch.tensor([0.5, 1.5], device="xpud"), torch.tensor([True, True], device="xpud")
        for text, operation in (("to be true, but got false", lambda: torch.bernoulli(p)), ("between 0 and 1", lambda: F.binary_cross_entropy(p, p * 0)),
                                ("element < 0", lambda: torch.multinomial(p - 2, 1)), ("element < 0", lambda: torch.multinomial(p / 0, 3, True)),
                                ("sum of probabilities <= 0", lambda: torch.multinomial(p * 0, 1)),
                                ("source < number of ones", lambda: (p * 1).masked_scatter_(two, p[:1])),
                                ("my message", lambda: torch._assert_async((p < 1).all(), "my message")),
                                ("single nonzero value", lambda: torch._assert_async(p[0] - p[0]))):
            before = torch.xpud.fallback_counts()
            operation()
            with self.assertRaisesRegex(RuntimeError, text):
                torch.xpud.synchronize()
            torch.xpud.synchronize()
            self.assertEqual(torch.xpud.fallback_counts(), before)
        torch._assert_async((p > 0).all(), "my message")
        self.assertEqual(torch.bernoulli(torch.ones(4, device="xpud")).tolist(), [1] * 4)

    def test_so_do_those_of_32_bits(self):
        for name in ("index_select", "gather", "embedding", "embedding's gradient", "index_add"):
            for bad in (ROWS, -1, 2**31 - 1, -(2**31)):
                with self.subTest(name, bad=bad):
                    self.expect_error_at_sync(name, ON_DEVICE[name], bad, 3, torch.int32)

    def test_what_falls_back_raises_as_the_cpu_does(self):
        for name, operation in FALLS_BACK.items():
            for bad in (ROWS, -ROWS - 1, FAR):
                with self.subTest(name, bad=bad):
                    with self.assertRaises((IndexError, RuntimeError)) as wanted:
                        operation(*operands("cpu", bad, 3))
                    before = torch.xpud.fallback_counts()
                    x, index, values = operands("xpud", bad, 3)
                    with self.assertRaises(type(wanted.exception)):
                        operation(x, index, values)
                    self.assertNotEqual(torch.xpud.fallback_counts(), before, "it is on the device now: it belongs to the others")
                    torch.xpud.synchronize()
                    self.expect_right(operation, x)

    def test_take_along_dim_has_no_index_out_of_range(self):
        """PyTorch takes its indices modulo the size."""
        for bad in (ROWS, -1, FAR):
            expected, actual = (torch.take_along_dim(x, i.unsqueeze(1), 0).cpu() for x, i, _ in (operands(d, bad, 3) for d in ("cpu", "xpud")))
            self.assertTrue(torch.equal(actual, expected), bad)

    def test_masks_of_another_shape_are_refused_at_once(self):
        x = torch.ones(ROWS, COLUMNS, device="xpud")
        mask = torch.ones(ROWS + 1, dtype=torch.bool, device="xpud")
        for name, operation in {"x[mask]": lambda: x[mask], "x[mask] = 7": lambda: assign(x, mask, 7.0),
                                "masked_select": lambda: x.masked_select(mask), "masked_fill": lambda: x.masked_fill(mask, 7.0)}.items():
            with self.subTest(name), self.assertRaises((IndexError, RuntimeError)):
                operation()
        torch.xpud.synchronize()
        self.assertEqual(x.sum().item(), ROWS * COLUMNS)

    def test_every_reader_gets_it_on_every_stream(self):
        x, nine = torch.arange(4.0, device="xpud"), torch.tensor([9], device="xpud")
        for name, wait in (("wait_stream", lambda s: torch.xpud.current_stream().wait_stream(s)),
                           ("wait_event", lambda s: torch.xpud.current_stream().wait_event(s.record_event())),
                           ("synchronize", lambda s: self.assertRaises(IndexError, s.synchronize))):
            with self.subTest(name):
                stream = torch.xpud.Stream()
                with torch.xpud.stream(stream):
                    bad = x[nine]
                    made = bad * 1
                    good = x[:1] + 1
                    overwritten = x[nine]
                    overwritten.fill_(5)
                wait(stream)
                for reader in (bad, made, made + 1):
                    self.assertRaisesRegex(IndexError, "index 9 is out of range", reader.cpu)
                self.assertEqual((good.item(), overwritten.item()), (1, 5))
                with contextlib.suppress(IndexError):
                    stream.synchronize()
                stream.synchronize()  # an error is raised once on its own stream
                self.assertRaisesRegex(IndexError, "index 9 is out of range", made.cpu)
        self.assertEqual(x.tolist(), [0, 1, 2, 3])

    def test_it_reaches_those_who_wait_for_a_pinned_copy(self):
        x, nine = torch.arange(4.0, device="xpud"), torch.tensor([9], device="xpud")
        host = torch.empty(1).pin_memory()
        for name, wait in (("query", lambda event: self.poll(event)), ("synchronize", lambda event: event.synchronize())):
            with self.subTest(name):
                stream, event = torch.xpud.Stream(), torch.xpud.Event()
                with torch.xpud.stream(stream):
                    host.copy_(x[nine] * 1, non_blocking=True)
                    event.record(stream)
                self.assertRaisesRegex(IndexError, "index 9 is out of range", wait, event)
                self.assertTrue(event.query())

    @staticmethod
    def poll(event):
        while not event.query():
            time.sleep(0.001)

    def test_an_update_keeps_what_it_did_not_write(self):
        x = torch.arange(4.0, device="xpud")
        x[torch.tensor([9], device="xpud")] = 7.0
        self.assertRaisesRegex(IndexError, "index 9 is out of range", x.cpu)
        self.assertEqual(x.tolist(), [0, 1, 2, 3])

    def test_threads_on_one_stream_each_get_theirs(self):
        wrong = []

        def work():
            x, nine = torch.arange(4.0, device="xpud"), torch.tensor([9], device="xpud")
            for _ in range(200):
                try:
                    wrong.append((x[nine] * 1).cpu())
                except IndexError:
                    pass
                except RuntimeError as error:
                    wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        with contextlib.suppress(IndexError):
            torch.xpud.synchronize()
        self.assertEqual(torch.ones(3, device="xpud").sum().item(), 3, "the session lives")

    def test_training_goes_on_after_one(self):
        """With a label out of range, the step raises, the parameters do not change, and the next step is right."""
        torch.manual_seed(0)
        model, twin = torch.nn.Embedding(ROWS, COLUMNS).to("xpud"), torch.nn.Embedding(ROWS, COLUMNS)
        twin.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
        words, labels = torch.tensor([0, 1, 4]), torch.tensor([0, 2, 1])
        with self.assertRaises(IndexError):
            F.cross_entropy(model(words.to("xpud")), (labels + 1).to("xpud")).backward()
            torch.xpud.synchronize()
        model.zero_grad()
        for module, device in ((model, "xpud"), (twin, "cpu")):
            F.cross_entropy(module(words.to(device)), labels.to(device)).backward()
        torch.testing.assert_close(model.weight.grad.cpu(), twin.weight.grad)
        torch.testing.assert_close(model.weight.cpu(), twin.weight)


if __name__ == "__main__":
    unittest.main()
