"""Tensors of more than 8 dimensions, which the wire does not have, in layouts whose dimensions cannot be merged."""

import unittest

import torch
import torch_xpud  # noqa: F401  also without the entry point
from torch.nn import functional as F

SHAPE = (2,) * 10


def with_gaps(dtype=torch.float32):
    """Every second element in each dimension: no two of them merge."""
    values = torch.randn([2 * size for size in SHAPE]) if dtype.is_floating_point else torch.randint(0, 2, [2 * size for size in SHAPE])
    return values.to(dtype)[(slice(None, None, 2),) * len(SHAPE)]


def reversed_gaps():
    return with_gaps().permute(*reversed(range(len(SHAPE))))


def on_xpud(tensor):
    """The same layout on the device."""
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return whole.xpud().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def changed(tensor, change):
    change(tensor)
    return tensor


MAPS = {  # they run on the device
    "fill_": lambda x, y: x.fill_(2),
    "zero_": lambda x, y: x.zero_(),
    "ones_like": lambda x, y: torch.ones_like(x),
    "full_like": lambda x, y: torch.full_like(x, 3),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 1.5),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, torch.tensor(1.5)),
    "assignment by a mask": lambda x, y: changed(x, lambda x: x.__setitem__(y > 0, 2)),
    "add": lambda x, y: x + y,
    "add_": lambda x, y: x.add_(y, alpha=2),
    "add a row": lambda x, y: x + y[0, 1, 0, 1],
    "comparison": lambda x, y: x < y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "exp_": lambda x, y: x.exp_(),
    "exp out=": lambda x, y: torch.exp(x, out=y),
    "relu": lambda x, y: F.relu(x),
    "lerp": lambda x, y: x.lerp(y, 0.3),
    "addcmul_": lambda x, y: x.addcmul_(x, y, value=2),
    "binary_cross_entropy_with_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction="none"),
    "copy_": lambda x, y: x.copy_(y),
    "to another type": lambda x, y: x.to(torch.float64),
    "_foreach_zero_": lambda x, y: changed(x, lambda x: torch._foreach_zero_([x, y])),
    "_foreach_add_": lambda x, y: changed(x, lambda x: torch._foreach_add_([x, y], 1.5)),
    "complex fill_": lambda x, y: torch.view_as_real(torch.view_as_complex(torch.stack([x, y], -1).contiguous())[..., 0, :].fill_(1 + 2j)),
}

OTHERS = {  # they may run on the CPU
    "sum": lambda x, y: x.sum((1, 4, 9)),
    "softmax": lambda x, y: x.softmax(3),
    "sort": lambda x, y: x.sort(2)[0],
    "cumsum": lambda x, y: x.cumsum(5),
    "gather": lambda x, y: x.gather(4, (y > 0).long()),
    "scatter_add": lambda x, y: x.scatter_add(4, (y > 0).long(), y),
    "scatter": lambda x, y: x.scatter(0, (y > 0).long(), 1.0),
    "scatter_reduce": lambda x, y: x.scatter_reduce(9, (y > 0).long(), y, "amax"),
    "index_add": lambda x, y: x.index_add(3, torch.tensor([1, 0], device=x.device), y),
    "index_select": lambda x, y: x.index_select(3, torch.tensor([1, 1, 0], device=x.device)),
    "index_put": lambda x, y: x.index_put((torch.tensor([1, 1], device=x.device),), torch.tensor(3.0, device=x.device), accumulate=True),
    "selection by a mask": lambda x, y: x[y > 0],
    "cat": lambda x, y: torch.cat([x, y], 7),
    "matmul": lambda x, y: x @ y,
    "tensordot": lambda x, y: torch.tensordot(x, y, dims=([1, 3, 8], [0, 2, 9])),
    "layer_norm": lambda x, y: F.layer_norm(x, (2, 2)),
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, training=True),
    "gradients of norm": lambda x, y: torch.autograd.grad(x.requires_grad_().norm(dim=(1, 4)).sum(), x)[0],
    "gradients of clamp": lambda x, y: torch.autograd.grad(x.requires_grad_().clamp(min=y).mul(y).sum(), x)[0],
}

DISTRIBUTIONS = {
    "normal_": lambda x: x.normal_(3, 2),
    "uniform_": lambda x: x.uniform_(2, 5),
    "exponential_": lambda x: x.exponential_(2),
    "bernoulli_": lambda x: x.bernoulli_(0.3),
    "random_": lambda x: x.random_(7),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "geometric_": lambda x: x.geometric_(0.3),
    "dropout": lambda x: F.dropout(x.fill_(1), 0.4),
    "dropout in place": lambda x: F.dropout(x.fill_(1), 0.4, inplace=True),
    "rrelu": lambda x: F.rrelu(x.fill_(-1), training=True),
}


class DimensionsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def compare(self, call):
        pair = with_gaps(), reversed_gaps()
        theirs, ours = call(*map(torch.clone, pair)), call(*map(on_xpud, pair))
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)
        return ours

    def test_maps_run_on_the_device(self):
        before = torch.xpud.fallback_counts()
        for name, call in MAPS.items():
            with self.subTest(name):
                self.compare(call)
        self.assertEqual(torch.xpud.fallback_counts(), before)

    def test_elements_between_those_of_the_tensor_keep_their_values(self):
        whole = torch.zeros([2 * size for size in SHAPE], device="xpud")
        whole[(slice(None, None, 2),) * len(SHAPE)].fill_(1)
        self.assertEqual(whole.sum().item(), 2 ** len(SHAPE))

    def test_other_operators_are_not_refused(self):
        for name, call in OTHERS.items():
            with self.subTest(name):
                self.compare(call)

    def test_random_numbers_are_those_of_a_tensor_without_gaps(self):
        for name, draw in DISTRIBUTIONS.items():
            with self.subTest(name):
                torch.manual_seed(5)
                expected = draw(torch.empty(2 ** len(SHAPE), device="xpud")).clone()
                torch.manual_seed(5)
                self.assertTrue(torch.equal(draw(on_xpud(with_gaps())).flatten(), expected))
                self.assertGreater(len(expected.unique()), 1)

    def test_optimizers(self):
        for kind in (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop):
            for options in ({}, {"foreach": True}, {"fused": True}):
                if kind is torch.optim.RMSprop and "fused" in options:
                    continue
                with self.subTest(kind.__name__, **options):
                    value, gradient, results = with_gaps(), reversed_gaps(), []
                    for move, chosen in ((torch.clone, {"foreach": False}), (on_xpud, options)):
                        parameter = torch.nn.Parameter(move(value))
                        optimizer = kind([parameter], lr=0.1, **chosen)
                        for _ in range(3):
                            parameter.grad = move(gradient)
                            optimizer.step()
                        results.append(parameter.detach().cpu())
                    torch.testing.assert_close(results[1], results[0])

    def test_fused_optimizers_of_a_parameter_with_gaps(self):
        for kind in (torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):  # PyTorch's CPU kernels compute wrongly here
            value, results = torch.randn(8, 8)[::2, ::2], []
            for device, options in (("cpu", {"foreach": False}), ("xpud", {"fused": True})):
                whole = torch.zeros(8, 8, device=device)
                whole[::2, ::2] = value.to(device)
                parameter = torch.nn.Parameter(whole[::2, ::2])
                parameter.grad = value.to(device).sin()
                kind([parameter], lr=0.1, **options).step()
                results.append(whole.cpu())
            torch.testing.assert_close(results[1], results[0])


if __name__ == "__main__":
    unittest.main()
