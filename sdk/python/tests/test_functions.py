"""Layers, products and random numbers, compared with torch on the CPU."""

import itertools
import threading
import unittest

import numpy as np
import torch
import torch.nn.functional as F
import xpud

TOLERANCE = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 1e-4, "float64": 1e-9}
FLOATS = tuple(TOLERANCE)


def draw(*shape, dtype="float32", seed=0) -> tuple[torch.Tensor, xpud.Array]:
    tensor = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(getattr(torch, dtype))
    return tensor, xpud.from_dlpack(tensor)


class Close(unittest.TestCase):
    def assert_close(self, array: xpud.Array, tensor: torch.Tensor, message=None, scale: float = 1):
        self.assertEqual((array.shape, array.dtype.name), (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")), message)
        tolerance = scale * TOLERANCE.get(array.dtype.name, 0)
        np.testing.assert_allclose(array.numpy().astype(np.float64), tensor.double().numpy(), rtol=tolerance, atol=tolerance, err_msg=str(message))


class AlongAnAxis(unittest.TestCase):
    VALUES = np.random.default_rng(0).integers(-3, 4, (4, 5, 6))

    def assert_same(self, got: xpud.Array, expected: np.ndarray):
        self.assertEqual(got.dtype.name, str(expected.dtype))
        np.testing.assert_array_equal(got.numpy(), expected)

    def test_sort_and_argsort_are_numpys_stable_ones(self):
        for dtype, axis in itertools.product(("float32", "int64", "uint8"), (-1, 0, 1)):
            values = self.VALUES.astype(dtype)
            array = xpud.asarray(values)
            self.assert_same(xpud.sort(array, axis=axis), np.sort(values, axis=axis))
            self.assert_same(xpud.argsort(array, axis=axis), np.argsort(values, axis=axis, stable=True))
            self.assert_same(xpud.sort(array, axis=axis, descending=True), np.flip(np.sort(values, axis=axis), axis))
            self.assert_same(array, values)
        self.assertEqual(xpud.argsort(xpud.asarray([2, 1, 2, 1]), descending=True).tolist(), [0, 2, 1, 3])
        self.assertTrue(np.isnan(xpud.sort(xpud.asarray([1.0, float("nan"), 0.0])).numpy()[-1]))
        with self.assertRaises(IndexError):
            xpud.sort(xpud.ones(3), axis=1)

    def test_topk_is_the_head_of_a_sort(self):
        array = xpud.asarray(self.VALUES)
        for axis, largest in itertools.product((-1, 1), (True, False)):
            values, positions = xpud.topk(array, 2, axis=axis, largest=largest)
            self.assert_same(values, np.take(xpud.sort(array, axis=axis, descending=largest).numpy(), range(2), axis))
            self.assert_same(positions, np.take(xpud.argsort(array, axis=axis, descending=largest).numpy(), range(2), axis))
        with self.assertRaisesRegex(ValueError, "topk of 7 elements"):
            xpud.topk(array, 7)

    def test_cumsum_and_cumprod_are_numpys(self):
        for dtype, axis in itertools.product(("float64", "int32", "bool"), (None, 0, -1)):
            values = self.VALUES.astype(dtype)
            for name in ("cumsum", "cumprod"):
                self.assert_same(getattr(xpud, name)(xpud.asarray(values), axis=axis), getattr(np, name)(values, axis=axis, dtype=None if dtype == "float64" else "int64"))
        self.assert_same(xpud.cumsum(xpud.asarray(self.VALUES), axis=1, dtype="float32"), np.cumsum(self.VALUES, axis=1, dtype="float32"))
        self.assertIs(xpud.cumulative_sum, xpud.cumsum)

    def test_concatenate_is_concat(self):
        self.assertEqual(xpud.concatenate([xpud.ones(2), xpud.zeros(1)]).tolist(), [1.0, 1.0, 0.0])


class Products(Close):
    def test_matmul_of_all_shapes(self):
        shapes = (((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((4,), (2, 4, 5)), ((4,), (3, 2, 4, 1)),
                  ((2, 1, 3, 4), (6, 4, 5)), ((6, 2, 3, 4), (4,)), ((1, 3, 4), (7, 4, 5)), ((2, 2, 3, 4), (2, 2, 4, 1)), ((0, 4), (4, 5)))
        for (a, b), dtype in itertools.product(shapes, FLOATS):
            (x, ours), (y, theirs) = draw(*a, dtype=dtype), draw(*b, dtype=dtype, seed=1)
            self.assert_close(ours @ theirs, x @ y, (a, b, dtype))

    def test_matmul_of_views(self):
        (x, a), (y, b) = draw(6, 8, 10), draw(10, 6, 8, seed=1)
        self.assert_close(a[:, ::2] @ b.permute(1, 0, 2), x[:, ::2] @ y.permute(1, 0, 2))
        self.assert_close(a.mT @ a, x.mT @ x)
        self.assert_close(a[0].T @ a[1], x[0].T @ x[1])

    def test_matmul_refuses_what_does_not_fit(self):
        for a, b in (((3, 4), (3, 4)), ((2, 3, 4), (3, 4, 5)), ((), (3,)), ((3, 0), (0, 4))):
            with self.assertRaises(ValueError, msg=(a, b)):
                xpud.ones(a) @ xpud.ones(b)
        for a, b in (("float32", "float64"), ("int32", "int32")):
            with self.assertRaises(TypeError, msg=(a, b)):
                xpud.ones((2, 2), dtype=a) @ xpud.ones((2, 2), dtype=b)
        out = xpud.empty((3, 5))
        self.assertIs(xpud.matmul(xpud.ones((3, 4)), xpud.ones((4, 5)), out=out), out)
        self.assertEqual(out.sum().item(), 60)

    def test_einsum_is_numpys(self):
        sizes = dict(a=2, b=3, h=2, i=2, j=3, k=4, l=5)
        for subscripts in ("ij,jk->ik", "bij,bjk->bik", "ij,ij->", "ii->i", "ii", "ij->ji", "i,j->ij", "ij,kj", "...ij,...jk->...ik", "bij,jk", "ij,jk,kl->il",
                           "i,i", "ij->", "ij->j", "bhi,bhj->bh", "iij,j->i", "ij,ik->ijk", "i...,i...->...", "ij,j -> ij", "ba", "i,jk,l->ilkj", "...,...->..."):
            words = subscripts.replace(" ", "").split("->")[0].split(",")
            shapes = [[size for letter in word.replace("...", ".") for size in ((6, 1 + n) if letter == "." else (sizes[letter],))] for n, word in enumerate(words)]
            for dtype in ("float64", "int32"):
                arrays = [(np.random.default_rng(n).random(shape) * 10).astype(dtype) for n, shape in enumerate(shapes)]
                expected, got = np.einsum(subscripts, *arrays), xpud.einsum(subscripts, *map(xpud.asarray, arrays)).numpy()
                self.assertEqual((got.shape, got.dtype), (expected.shape, expected.dtype), subscripts)
                np.testing.assert_allclose(got, expected, rtol=1e-12, err_msg=subscripts)

    def test_einsum_refuses_what_does_not_fit(self):
        a, b = xpud.ones((2, 3)), xpud.ones((3, 4))
        for subscripts, arrays in (("ij,jk->ik", (a,)), ("ijk,jk->ik", (a, b)), ("ij,ij->ij", (a, b)), ("ij->ik", (a,)), ("ij->ii", (a,)), ("i1->i", (a,)),
                                   ("ij.->i", (a,)), ("...ijk->i", (a,)), ("ii->i", (a,))):
            with self.assertRaises(ValueError, msg=subscripts):
                xpud.einsum(subscripts, *arrays)
        with self.assertRaises(TypeError):
            xpud.einsum("ij,jk->ik", a, xpud.ones((3, 4), dtype="float64"))
        with self.assertRaisesRegex(TypeError, "takes xpud arrays, not ndarray"):
            xpud.einsum("ij->i", np.ones((2, 3)))

    def test_linear_with_activations(self):
        (x, a), (w, b), (bias, c) = draw(2, 7, 12), draw(5, 12, seed=1), draw(5, seed=2)
        activations = {None: lambda y: y, "relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda y: F.gelu(y, approximate="tanh")}
        for name, function in activations.items():
            self.assert_close(xpud.linear(a, b, c, activation=name), function(F.linear(x, w, bias)), name)
        self.assert_close(xpud.linear(a[0, 0], b), F.linear(x[0, 0], w))
        with self.assertRaises(ValueError):
            xpud.linear(a, b, c, activation="tanh")
        with self.assertRaises(ValueError):
            xpud.linear(a, b.T)


class Layers(Close):
    def test_softmax(self):
        for dtype, axis in itertools.product(FLOATS, (-1, 0, 1)):
            x, a = draw(3, 4, 5, dtype=dtype)
            self.assert_close(xpud.softmax(a, axis=axis), torch.softmax(x, axis), (dtype, axis))
            self.assert_close(xpud.log_softmax(a, axis=axis), torch.log_softmax(x, axis), (dtype, axis))
        with self.assertRaises(IndexError):
            xpud.softmax(a, axis=3)
        with self.assertRaises(TypeError):
            xpud.softmax(xpud.arange(3))

    def test_softmax_backward(self):
        (x, a), (gradient, b) = draw(3, 5), draw(3, 5, seed=1)
        y = torch.softmax(x, 1)
        self.assert_close(xpud.ops._softmax_backward_data(b, xpud.softmax(a), axis=1), torch.ops.aten._softmax_backward_data(gradient, y, 1, torch.float32))

    def test_layer_norm_and_its_gradients(self):
        for dtype, weighted in itertools.product(FLOATS, (True, False)):
            (x, a), (w, b), (bias, c) = draw(2, 3, 8, dtype=dtype), draw(8, dtype=dtype, seed=1), draw(8, dtype=dtype, seed=2)
            weights, theirs = ((b, c), (w, bias)) if weighted else ((), (None, None))
            self.assert_close(xpud.layer_norm(a, *weights, eps=1e-3), F.layer_norm(x, (8,), *theirs, eps=1e-3), (dtype, weighted))
        x, a = draw(6, 8)
        gradient, g = draw(6, 8, seed=3)
        (w, b), zero = draw(8, seed=1), torch.zeros(8)
        y, mean, deviation = xpud.ops.native_layer_norm(a, b, None, eps=1e-5)
        theirs = torch.ops.aten.native_layer_norm_backward(gradient, x, [8], *torch.ops.aten.native_layer_norm(x, [8], w, zero, 1e-5)[1:], w, zero, [True] * 3)
        for got, expected in zip(xpud.ops.native_layer_norm_backward(g, a, mean, deviation, b), theirs):
            self.assert_close(got, expected)

    def test_embedding_and_its_gradient(self):
        x, a = draw(10, 4)
        index = np.array([[1, 2, 9], [0, 0, 5]])
        self.assert_close(xpud.embedding(a, index), F.embedding(torch.tensor(index), x))
        self.assert_close(xpud.embedding(a, xpud.asarray(index.astype(np.int32))), F.embedding(torch.tensor(index), x))
        gradient, g = draw(6, 4, seed=1)
        flat = torch.tensor(index.reshape(-1))
        self.assert_close(xpud.ops.embedding_dense_backward(xpud.asarray(index.reshape(-1)), g, rows=10),
                          torch.ops.aten.embedding_dense_backward(gradient, flat, 10, -1, False))
        with self.assertRaises(IndexError):
            xpud.embedding(a, [10]).numpy()
        with self.assertRaises(ValueError):
            xpud.embedding(a[0], [1])

    def test_attention(self):
        for dtype, groups in itertools.product(FLOATS, (4, 2, 1)):
            (q, a), (k, b), (v, c) = draw(2, 4, 5, 8, dtype=dtype), draw(2, groups, 7, 8, dtype=dtype, seed=1), draw(2, groups, 7, 8, dtype=dtype, seed=2)
            seen = torch.rand(2, 1, 1, 7, generator=torch.Generator().manual_seed(1)) < 0.6
            seen[..., 0] = True
            bias, added = draw(5, 7, dtype=dtype, seed=3)
            for ours, theirs in (({}, {}), ({"is_causal": True}, {"is_causal": True}), ({"scale": 0.3}, {"scale": 0.3}),
                                 ({"mask": xpud.from_dlpack(seen)}, {"attn_mask": seen}), ({"mask": added}, {"attn_mask": bias})):
                expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=groups < 4, **theirs)
                self.assert_close(xpud.scaled_dot_product_attention(a, b, c, **ours), expected, (dtype, groups, ours))
        for wrong in (lambda: xpud.scaled_dot_product_attention(a[0], b, c), lambda: xpud.scaled_dot_product_attention(a, b, c[:, :, 1:]),
                      lambda: xpud.scaled_dot_product_attention(a, b, c, xpud.ones((3, 3), dtype=bool))):
            with self.assertRaises(ValueError):
                wrong()

    def test_activations(self):
        x, a = draw(4, 9)
        self.assert_close(xpud.gelu(a), F.gelu(x))
        self.assert_close(xpud.gelu(a, approximate="tanh"), F.gelu(x, approximate="tanh"))
        self.assert_close(xpud.silu(a), F.silu(x))
        self.assert_close(xpud.leaky_relu(a), F.leaky_relu(x))
        self.assert_close(xpud.softplus(a), F.softplus(x))
        self.assert_close(xpud.elu(a), F.elu(x))

    def test_negative_log_likelihood(self):
        logits, a = draw(6, 5)
        target = torch.tensor([0, 4, 2, -100, 1, 1])
        (weight, w), t = draw(5, seed=1), xpud.from_dlpack(target)
        x, logp = torch.log_softmax(logits, 1), xpud.log_softmax(a)
        for reduction in ("mean", "sum", "none"):
            self.assert_close(xpud.nll_loss(logp, t, reduction=reduction), F.nll_loss(x, target, reduction=reduction), reduction)
            self.assert_close(xpud.nll_loss(logp, t, w, reduction=reduction), F.nll_loss(x, target, weight, reduction=reduction), reduction)
        x.requires_grad_(True)
        F.nll_loss(x, target).backward()
        self.assert_close(xpud.ops.nll_loss_backward(xpud.ones(()), logp, t), x.grad)


class Others(Close):
    def test_where_clip_and_norms(self):
        (x, a), (y, b) = draw(3, 4), draw(4, seed=1)
        self.assert_close(xpud.where(a > 0, a, b), torch.where(x > 0, x, y))
        self.assert_close(xpud.where(a, 1.0, b), torch.where(x != 0, 1.0, y))
        self.assert_close(xpud.clip(a, -0.5, 0.5), torch.clamp(x, -0.5, 0.5))
        self.assert_close(xpud.clip(a, min=b), torch.maximum(x, y))
        self.assert_close(xpud.clip(a, max=0), torch.clamp(x, max=0))
        self.assert_close(xpud.vector_norm(a, axis=1), torch.linalg.vector_norm(x, dim=1))
        self.assert_close(xpud.var(a, axis=0), torch.var(x, 0, correction=0))
        self.assert_close(xpud.std(a, correction=1), torch.std(x))
        self.assert_close(a.std(axis=1, keepdims=True), torch.std(x, 1, correction=0, keepdim=True))
        with self.assertRaisesRegex(TypeError, "xpud.asarray"):
            xpud.where(True, a, b)
        self.assertEqual(xpud.isfinite(xpud.asarray([1.0, float("inf"), float("nan")])).tolist(), [True, False, False])

    def test_concat_and_stack(self):
        (x, a), (y, b) = draw(3, 4), draw(3, 2, seed=1)
        self.assert_close(xpud.concat([a, b], axis=1), torch.cat([x, y], 1))
        self.assert_close(xpud.concat([a.T, b.T]), torch.cat([x.T, y.T]))
        self.assert_close(xpud.concat([a, b], axis=None), torch.cat([x.reshape(-1), y.reshape(-1)]))
        self.assert_close(xpud.concat([a, b.astype("float16")], axis=-1), torch.cat([x, y.half()], 1), scale=100)
        for axis in (0, 1, 2, -1, -2):
            self.assert_close(xpud.stack([a, a * 2], axis=axis), torch.stack([x, x * 2], axis), axis)
        for wrong in (lambda: xpud.concat([]), lambda: xpud.concat([a, b]), lambda: xpud.concat([a, a[0]])):
            with self.assertRaises(ValueError):
                wrong()

    def test_concat_of_more_arrays_than_one_command_takes(self):
        pairs = [draw(n, 3, seed=n) for n in (1, 0, 4, 2)] * 300
        self.assert_close(xpud.concat([array for _, array in pairs]), torch.cat([tensor for tensor, _ in pairs]))

    def test_scans_by_their_descriptor(self):
        x, a = draw(4, 6)
        for axis in (0, 1, -1):
            self.assert_close(xpud.ops.cumsum(a, dim=axis), x.cumsum(axis))
            self.assert_close(xpud.ops.logcumsumexp(a, dim=axis), x.logcumsumexp(axis))
            for ours, theirs in zip(xpud.ops.cummax(a, dim=axis), x.cummax(axis)):
                self.assert_close(ours, theirs)
        self.assert_close(xpud.ops.cumsum(xpud.ones((5,), dtype="int32"), dim=0), torch.arange(1, 6))
        self.assert_close(xpud.ops.cumsum(a, dim=0, dtype=xpud.float64), x.cumsum(0, dtype=torch.float64))
        for refused, error in ((lambda: xpud.ops.cumsum(a), TypeError), (lambda: xpud.ops.cumsum(a, dim=2), IndexError),
                               (lambda: xpud.ops.cumsum(a, dim=0, axis=0), TypeError), (lambda: xpud.ops.cat([], dim=0), ValueError),
                               (lambda: xpud.ops.cat([a, a[0]], dim=0), ValueError), (lambda: xpud.ops.cummax(a, dim=0, dtype=a.dtype), TypeError)):
            with self.assertRaises(error):
                refused()

    def test_backward_ops_of_the_table_are_reachable(self):
        (x, a), (gradient, g) = draw(3, 4), draw(3, 4, seed=1)
        self.assert_close(xpud.ops.gelu_backward(g, a), torch.ops.aten.gelu_backward(gradient, x))
        self.assert_close(xpud.ops.tanh_backward(g, xpud.tanh(a)), torch.ops.aten.tanh_backward(gradient, torch.tanh(x)))


class Random(unittest.TestCase):
    def test_a_seed_gives_the_same_numbers_and_another_does_not(self):
        one, two, three = (xpud.random.Generator(seed) for seed in (7, 7, 8))
        for draw_of in (lambda g: g.uniform(100), lambda g: g.normal((10, 10)), lambda g: g.integers(100, 0, 1000), lambda g: g.exponential(7),
                        lambda g: g.bernoulli(100)):
            first = draw_of(one).tolist()
            self.assertEqual(first, draw_of(two).tolist())
            self.assertNotEqual(first, draw_of(three).tolist())
        self.assertNotEqual(one.uniform(4).tolist(), one.uniform(4).tolist())
        state = one.state
        first = one.normal(5).tolist()
        one.state = state
        self.assertEqual(one.normal(5).tolist(), first)
        xpud.random.seed(3)
        first = xpud.random.uniform(3).tolist()
        xpud.random.seed(3)
        self.assertEqual(xpud.random.uniform(3).tolist(), first)

    def test_distributions(self):
        generator, count = xpud.random.Generator(1), 200_000
        uniform = generator.uniform(count, -1, 3).numpy()
        self.assertTrue(-1 <= uniform.min() < -0.99 and 2.99 < uniform.max() < 3 and abs(uniform.mean() - 1) < 0.02)
        normal = generator.normal(count, 2, 0.5).numpy()
        self.assertTrue(abs(normal.mean() - 2) < 0.01 and abs(normal.std() - 0.5) < 0.01)
        whole = generator.integers(count, -3, 4, dtype="int8").numpy()
        self.assertTrue((np.bincount(whole + 3, minlength=7) / count > 0.13).all())
        self.assertTrue(abs(generator.bernoulli(count, 0.3).numpy().mean() - 0.3) < 0.01)
        self.assertTrue(abs(generator.exponential(count, 2).numpy().mean() - 0.5) < 0.01)

    def test_what_cannot_be_drawn(self):
        for wrong in (lambda: xpud.random.uniform(2, 1, 0), lambda: xpud.random.normal(2, 0, -1), lambda: xpud.random.integers(2, 3, 3),
                      lambda: xpud.random.integers(2, 0, 1000, dtype="uint8"), lambda: xpud.random.bernoulli(2, 1.5), lambda: xpud.random.exponential(2, 0),
                      lambda: xpud.random.Generator(1 << 64)):
            with self.assertRaises(ValueError):
                wrong()
        with self.assertRaises(TypeError):
            xpud.random.uniform(2, dtype=int)

    def test_threads_do_not_draw_the_same(self):
        generator, drawn = xpud.random.Generator(5), []

        def work():
            for _ in range(20):
                drawn.append(tuple(generator.uniform(4).tolist()))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(drawn)), 80)


if __name__ == "__main__":
    unittest.main()
