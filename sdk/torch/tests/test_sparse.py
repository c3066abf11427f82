"""Sparse tensors: COO tensors and what training with sparse gradients needs; the errors for compressed layouts.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_sparse.py
"""

import copy
import io
import unittest
import warnings

import torch
import torch_xpud  # noqa: F401  also without the entry point
from torch import nn


def coo(device="cpu", sizes=(5, 4), dense=(), count=9, dtype=torch.float32):
    """Returns an uncoalesced tensor, the same on every device."""
    generator = torch.Generator().manual_seed(0)
    indices = torch.stack([torch.randint(0, size, (count,), generator=generator) for size in sizes])
    values = torch.randint(-9, 9, (count, *dense), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(indices.to(device), values.to(device), (*sizes, *dense), check_invariants=True)


class SparseTestCase(unittest.TestCase):
    allowed = frozenset()  # operators that may run on the CPU

    def setUp(self):
        torch.manual_seed(0)
        self.before = torch.xpud.fallback_counts()

    def tearDown(self):
        now = torch.xpud.fallback_counts()
        self.assertEqual({name for name in now if now[name] != self.before.get(name, 0)}, set(self.allowed))

    def assert_equal(self, actual, expected):
        self.assertEqual((actual.device.type, actual.layout, actual.dtype, actual.shape), ("xpud", expected.layout, expected.dtype, expected.shape))
        if expected.layout == torch.sparse_coo:
            self.assertEqual((actual.is_coalesced(), actual.sparse_dim(), actual.dense_dim()),
                             (expected.is_coalesced(), expected.sparse_dim(), expected.dense_dim()))
            if expected.is_coalesced():
                torch.testing.assert_close(actual.indices().cpu(), expected.indices(), rtol=0, atol=0)
                torch.testing.assert_close(actual.values().cpu(), expected.values())
        torch.testing.assert_close(actual.detach().cpu().to_dense(), expected.detach().to_dense())

    def check(self, call, *arguments):
        self.assert_equal(call(*(each.to("xpud") for each in arguments)), call(*arguments))


class TensorTest(SparseTestCase):
    def test_made_of_its_parts(self):
        self.assert_equal(coo("xpud"), coo())
        moved = torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), device="xpud")
        self.assert_equal(moved, torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,)))
        self.assert_equal(torch.zeros(3, 2, layout=torch.sparse_coo, device="xpud"), torch.zeros(3, 2, layout=torch.sparse_coo))
        with self.assertRaisesRegex(RuntimeError, "size is inconsistent with indices: for dim 0, size is 3 but found index 7"):
            torch.sparse_coo_tensor(torch.tensor([[7]]).xpud(), torch.ones(1).xpud(), (3,), check_invariants=True)

    def test_coalesce(self):
        for sizes, dense in (((5, 4), ()), ((6,), (3,)), ((3, 2, 4), (2, 2))):
            self.check(torch.Tensor.coalesce, coo(sizes=sizes, dense=dense, count=40))
        for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool):
            self.check(torch.Tensor.coalesce, coo(dtype=dtype, count=40))
        for count in (0, 1):
            self.check(torch.Tensor.coalesce, coo(count=count))

    def test_dense_and_back(self):
        self.check(torch.Tensor.to_dense, coo())
        x = torch.randn(4, 3, 2) * (torch.rand(4, 3, 1) > 0.5)
        self.check(torch.Tensor.to_sparse, x)
        self.check(lambda t: t.to_sparse(1), x)
        self.check(lambda t: t.to_sparse(2).to_dense(), x)

    def test_copies(self):
        sparse = coo("xpud")
        file = io.BytesIO()
        torch.save(sparse, file)
        file.seek(0)
        for each in (sparse.clone(), copy.deepcopy(sparse), torch.load(file), sparse.cpu().to("xpud"), torch.empty_like(sparse).copy_(sparse)):
            self.assert_equal(each, coo())
        self.check(lambda t: t.double(), coo())
        self.check(torch.zero_, coo())

    def test_printed_like_the_cpus(self):
        for make in (coo, lambda device="cpu": coo(device).coalesce(), lambda device="cpu": coo(device, count=0)):
            self.assertEqual(repr(make("xpud")).replace("device='xpud:0', ", ""), repr(make()))


class ArithmeticTest(SparseTestCase):
    def test_sums_with_dense_tensors(self):
        for sizes, dense in (((5, 4), ()), ((6,), (3,)), ((3, 2), (2,))):
            sparse = coo(sizes=sizes, dense=dense)
            x = torch.randn(sparse.shape)
            self.check(torch.add, x, sparse)
            self.check(lambda x, s: torch.sub(x, s, alpha=3), x, sparse)
            self.check(lambda x, s: x.clone().add_(s, alpha=-0.5), x, sparse)
            self.check(lambda x, s: torch.add(x, s, out=torch.empty_like(x)), x, sparse)
        transposed = torch.randn(4, 5)
        self.check(lambda x, s: x.t().add_(s), transposed, coo())
        self.check(torch.add, torch.randn(5, 4), coo(dtype=torch.int32))

    def test_sums_of_sparse_tensors(self):
        self.check(torch.add, coo(), coo(count=5))
        self.check(lambda a, b: torch.sub(a.coalesce(), b.coalesce(), alpha=2), coo(), coo(count=5))
        self.check(lambda a, b: a.clone().add_(b), coo(), coo(count=3, dtype=torch.int64))

    def test_products_with_numbers_and_dense_tensors(self):
        self.check(lambda s: s * 2, coo())
        self.check(lambda s: s.coalesce() / 4, coo())
        self.check(lambda s: s.clone().mul_(3), coo())
        self.check(lambda s: s.coalesce().pow(2), coo())
        self.check(torch.mul, coo().coalesce(), torch.randn(5, 4))

    def test_parts_of_dense_tensors(self):
        self.check(lambda x, s: x.sparse_mask(s.coalesce()), torch.randn(5, 4), coo())
        self.check(lambda x, s: x.sparse_mask(s.coalesce()), torch.randn(6, 3), coo(sizes=(6,), dense=(3,)))

    def test_sums_of_elements(self):
        self.check(torch.sparse.sum, coo())
        self.check(lambda s: torch.sparse.sum(s, 0), coo())

    def test_matrix_products(self):
        x = torch.randn(4, 3)
        self.check(torch.sparse.mm, coo(), x)
        self.check(lambda s, x: s @ x[:, 0], coo(), x)
        self.check(lambda s, x, y: torch.addmm(y, s, x, beta=0.5, alpha=2), coo(), x, torch.randn(5, 3))
        self.check(lambda s, x, y: torch.addmm(y, s, x, beta=0), coo(), x, torch.full((5, 3), float("nan")))
        self.check(torch.sparse.mm, coo(count=0), x)

    def test_gradients_of_matrix_products(self):
        results = []
        for device in ("cpu", "xpud"):
            sparse, x = coo(device).coalesce().requires_grad_(), torch.linspace(-1, 1, 12).view(4, 3).to(device).requires_grad_()
            torch.sparse.mm(sparse, x).square().sum().backward()
            results.append((sparse.grad, x.grad))
        for expected, actual in zip(*results):
            self.assert_equal(actual, expected)

    def test_errors(self):
        for call in (lambda s, x: s + x, lambda s, x: x[:1] + s, lambda s, x: s + s.t(), lambda s, x: torch.sparse.mm(s, x), lambda s, x: x[:1].sparse_mask(s)):
            with self.assertRaises(RuntimeError) as expected:
                call(coo(), torch.ones(5, 4))
            with self.assertRaises(RuntimeError) as actual:
                call(coo("xpud"), torch.ones(5, 4, device="xpud"))
            self.assertEqual(str(actual.exception), str(expected.exception))


class FallbackTest(SparseTestCase):
    allowed = frozenset({"aten::mul.out", "aten::_sparse_softmax", "aten::index_select", "aten::smm"})

    def test_other_operators_run_on_the_cpu(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.check(torch.mul, coo().coalesce(), coo(count=5).coalesce())
            self.check(lambda s: torch.sparse.softmax(s, 1), coo())
            self.check(lambda s: s.coalesce().index_select(0, torch.tensor([2, 0, 2]).to(s.device)), coo())
            self.check(torch.smm, coo(), torch.arange(24.0).reshape(4, 6))


class GradientTest(SparseTestCase):
    def gradient(self, layer, *arguments):
        results = []
        for device in ("cpu", "xpud"):
            own = copy.deepcopy(layer).to(device)
            out = own(*(each.to(device) for each in arguments))
            (out * torch.linspace(0.5, 1.5, out.numel(), device=device).view(out.shape)).sum().backward()
            results.append(own.weight.grad)
        self.assertTrue(results[1].is_sparse)
        self.assert_equal(results[1], results[0])

    def test_embeddings(self):
        index = torch.tensor([[3, 1, 3], [0, 5, 1]])
        self.gradient(nn.Embedding(7, 4, sparse=True), index)
        self.gradient(nn.Embedding(7, 4, sparse=True, padding_idx=1), index)
        self.gradient(nn.Embedding(7, 4, sparse=True, scale_grad_by_freq=False), index[:, :0])

    def test_bags(self):
        index, offsets = torch.tensor([3, 1, 3, 0, 5, 1]), torch.tensor([0, 2, 2])
        for mode in ("sum", "mean"):
            self.gradient(nn.EmbeddingBag(7, 4, sparse=True, mode=mode), index, offsets)
            self.gradient(nn.EmbeddingBag(7, 4, sparse=True, mode=mode, padding_idx=3), index, offsets)
        self.gradient(nn.EmbeddingBag(7, 4, sparse=True, mode="sum"), index, offsets, torch.rand(6))

    def test_optimizers(self):
        optimizers = {
            "SGD": lambda p: torch.optim.SGD(p, lr=0.1), "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.1), "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
        }
        layer = nn.Embedding(6, 3, sparse=True)
        for name, make in optimizers.items():
            results = []
            for device in ("cpu", "xpud"):
                own = copy.deepcopy(layer).to(device)
                optimizer = make(list(own.parameters()))
                for step in range(4):
                    optimizer.zero_grad()
                    for index in ([1, 2, 1, step], [5]):  # two backward passes: gradients are added
                        (own(torch.tensor(index, device=device)) * torch.linspace(-1, 1, 3, device=device)).sum().backward()
                    optimizer.step()
                results.append(own.weight.detach().cpu())
            with self.subTest(name):
                torch.testing.assert_close(results[1], results[0])


class CompressedTest(SparseTestCase):
    def run(self, result=None):
        with warnings.catch_warnings():
            return super().run(result)

    def test_compressed_layouts_are_refused(self):
        warnings.simplefilter("ignore", UserWarning)  # PyTorch's, about a beta state
        eye, on_device = torch.eye(4), torch.eye(4, device="xpud")
        rows, columns, values = torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2)
        calls = (
            lambda: torch.sparse_csr_tensor(rows, columns, values, (2, 2), device="xpud"),
            lambda: on_device.to_sparse_csr(),
            lambda: on_device.to_sparse_csc(),
            lambda: on_device.to_sparse_bsr((2, 2)),
            lambda: on_device.to_sparse_bsc((2, 2)),
            lambda: on_device.to_sparse(layout=torch.sparse_csr),
            lambda: coo("xpud").to_sparse_csr(),
            lambda: eye.to_sparse_csr().to("xpud"),
            lambda: eye.to_sparse_bsr((2, 2)).to("xpud"),
            lambda: torch.empty(3, 3, layout=torch.sparse_csr, device="xpud"),
            lambda: torch.zeros(3, 3, layout=torch.sparse_csr, device="xpud"),
        )
        for number, call in enumerate(calls):
            with self.subTest(number), self.assertRaisesRegex(NotImplementedError, "xpud has no sparse tensors of compressed layouts"):
                call()


if __name__ == "__main__":
    unittest.main()
