"""Autocast: what it casts, and that it ends where a kernel of xpud begins. test_convolution, test_layers and others test it in their layers."""

import itertools
import unittest

import torch
import torch_xpud  # noqa: F401  also without the entry point
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

HALF = torch.bfloat16
UNINITIALISED = ("aten::empty", "aten::_embedding_bag_forward_only")  # results are, or the parts that only backward would read


def has_kernel(op, key):
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)


def is_below_autocast(op):
    """Returns whether an operator has a kernel of xpud's and is in none of autocast's lists. PyTorch's compositions of other operators are not meant."""
    return (has_kernel(op, "PrivateUse1") and not has_kernel(op, "AutocastPrivateUse1")
            and torch.Tag.nondeterministic_seeded not in op.tags and not op.name().startswith(UNINITIALISED))


def copied(tree):
    return tree_map(lambda each: each.clone() if isinstance(each, torch.Tensor) else each, tree)


class Twice(TorchDispatchMode):
    """Calls each operator below autocast a second time, with the same arguments under autocast. Collects those with other results."""

    def __init__(self):
        super().__init__()
        self.seen, self.differing = {}, set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        key = (op, *(each.dtype for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)))
        if not is_below_autocast(op) or self.seen.get(key, 0) == 2:
            return op(*args, **kwargs)
        self.seen[key] = self.seen.get(key, 0) + 1
        again = copied((args, kwargs))
        results = op(*args, **kwargs)
        with torch.autocast("xpud", HALF):
            others = op(*again[0], **again[1])
        if not all(map(self.same, tree_leaves((results, args, kwargs)), tree_leaves((others, *again)))):
            self.differing.add(f"{op.name()} {[str(each) for each in key[1:]]}")
        return results

    @staticmethod
    def same(one, other):
        if not isinstance(one, torch.Tensor) or one.layout != torch.strided or one.is_nested:
            return True
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one.cpu().nan_to_num(7), other.cpu().nan_to_num(7))


class AutocastTest(unittest.TestCase):
    def test_a_product_into_a_given_tensor_has_its_type(self):
        a, b, c = (torch.randn(5, 5, device="xpud") for _ in range(3))
        vector = torch.randn(5, device="xpud")
        out, single = torch.empty(5, 5, device="xpud"), torch.empty(5, device="xpud")
        expected = a @ b
        with torch.autocast("xpud", HALF):
            self.assertEqual((a @ b).dtype, HALF)
            torch.mm(a, b, out=out)
            torch.mv(a, vector, out=single)
        self.assertTrue(torch.equal(out, expected))
        self.assertTrue(torch.equal(single, torch.mv(a, vector)))
        expected = torch.addmm(c, a, b)
        with torch.autocast("xpud", HALF):
            c.addmm_(a, b)
        self.assertTrue(torch.equal(c, expected))

    def test_types_of_a_given_tensor_are_checked_as_without_autocast(self):
        half, out = torch.randn(5, 5, device="xpud", dtype=HALF), torch.empty(5, 5, device="xpud")
        with torch.autocast("xpud", HALF), self.assertRaisesRegex(RuntimeError, "Expected out tensor to have dtype"):
            torch.mm(half, half, out=out)

    def test_kernels_compute_the_same_under_autocast(self):
        with Twice() as twice:
            for info in op_db:
                for dtype in {torch.float32, HALF} & info.supported_dtypes("cpu"):
                    for sample in itertools.islice(info.sample_inputs("cpu", dtype), 1):
                        sample = sample.transform(lambda each: each.xpud() if isinstance(each, torch.Tensor) and each.layout == torch.strided else each)
                        for call in filter(None, (info.op, info.inplace_variant)):
                            try:
                                call(copied(sample.input), *copied(sample.args), **copied(sample.kwargs))
                            except Exception:
                                continue  # what is refused; test_ops compares the errors
        self.assertGreater(len(twice.seen), 500)
        self.assertEqual(sorted(twice.differing), [])

    def test_recurrent_gradients_inside_the_region(self):
        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            module, x = kind(4, 6).xpud(), torch.randn(3, 2, 4, device="xpud")
            module(x)[0].sum().backward()
            expected = [parameter.grad.clone() for parameter in module.parameters()]
            module.zero_grad()
            total = module(x)[0].sum()
            with torch.autocast("xpud", HALF):
                total.backward()
            for parameter, gradient in zip(module.parameters(), expected):
                self.assertTrue(torch.equal(parameter.grad, gradient))


if __name__ == "__main__":
    unittest.main()
