"""Every operator that the shim registers against PyTorch's CPU kernels: the samples of PyTorch's own op_db.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_ops.py

XPUD_TEST_SAMPLES=N takes N samples of each operator and type (default 8; 0: all).
"""

import itertools
import os
import unittest
import warnings

import torch
import torch_xpud  # noqa: F401  also without the entry point
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase
from torch.utils._pytree import tree_flatten, tree_map

SAMPLES = int(os.environ.get("XPUD_TEST_SAMPLES", "8")) or None
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
         torch.bool)

# Operators of op_db that exist to be random, or uninitialised: their values cannot be compared with the CPU's.
RANDOM = {
    "bernoulli": "random", "empty": "uninitialised", "empty_like": "uninitialised", "empty_permuted": "uninitialised",
    "empty_strided": "uninitialised", "exponential": "random", "nn.functional.dropout": "random", "normal": "random",
    "nn.functional.scaled_dot_product_attention": "has samples with dropout; compared in test_models", "rand_like": "random",
    "randint": "random", "randint_like": "random", "randn": "random", "randn_like": "random", "uniform": "random",
    "new_empty": "uninitialised", "new_empty_strided": "uninitialised", "resize_": "uninitialised",
    "resize_as_": "uninitialised",
}  # fmt: skip

# Where this device and the CPU may differ: (operator, type, or None for all types): reason.
DIFFERS = {
    ("div.trunc_rounding", torch.bfloat16): "the CPU rounds the quotient to bfloat16 before it truncates; here, as on CUDA, it does not",
    ("div.trunc_rounding", torch.float16): "the CPU rounds the quotient to float16 before it truncates; here, as on CUDA, it does not",
    ("native_layer_norm", torch.bfloat16): "mean and deviation are float32, as on CUDA; the CPU rounds them to bfloat16",
    ("native_layer_norm", torch.float16): "mean and deviation are float32, as on CUDA; the CPU rounds them to float16",
    ("rsub", torch.bfloat16): "the CPU rounds alpha times the operand to bfloat16 before it subtracts; here, as on CUDA, it does not",
    ("as_strided.partial_views", None): "reads memory around the tensor, which a copy to another device does not have",
}


def registered():
    """Base names of the ATen operators that the shim registers ("add", "sum")."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    return {name.removeprefix("aten::").split(".")[0] for name in names if name.startswith("aten::")}


REGISTERED = registered()


def names_of(op):
    return {op.name, op.aten_name, op.name.removeprefix("nn.functional."), op.aten_name.removeprefix("_")}


def is_served(op):
    return op.name not in RANDOM and bool(names_of(op) & REGISTERED)


SERVED = [op for op in op_db if is_served(op)]


def to_device(value, device):
    return value.to(device) if isinstance(value, torch.Tensor) else value


def moved(tree, device):
    """Tensors of a sample on another device, with their strides."""

    def move(value):
        if isinstance(value, torch.device):
            return torch.device(device)
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().to(device).requires_grad_(value.requires_grad)

    return tree_map(move, tree)


def on(device, op, sample):
    """A sample's operands on `device`; operators that take no tensor are told to make theirs there."""
    input, args, kwargs = (moved(part, device) for part in (sample.input, sample.args, sample.kwargs))
    if not any(isinstance(leaf, torch.Tensor) for leaf in tree_flatten((input, args, kwargs))[0]):
        kwargs = {**kwargs, "device": device}
    return input, args, kwargs


def clear_errors():
    """So that a test that failed leaves nothing to the next one."""
    try:
        torch.xpud.synchronize()
    except (RuntimeError, IndexError):
        pass


class OpsTest(TestCase):
    def setUp(self):
        super().setUp()
        clear_errors()

    def compare(self, op, dtype, actual, expected):
        expected_leaves, actual_leaves = tree_flatten(expected)[0], tree_flatten(actual)[0]
        self.assertEqual(len(actual_leaves), len(expected_leaves))
        for got, want in zip(actual_leaves, expected_leaves):
            if not isinstance(want, torch.Tensor):
                self.assertEqual(got, want)
                continue
            self.assertEqual(got.dtype, want.dtype)
            self.assertEqual(got.shape, want.shape)
            if want.numel() > 1:
                self.assertEqual(got.stride(), want.stride())
            tolerance = {"rtol": 1.6e-2, "atol": 1e-2} if want.dtype == torch.bfloat16 else {}
            if want.dtype == torch.float32:
                tolerance = {"rtol": 1e-4, "atol": 1e-4}
            self.assertEqual(got.cpu(), want, exact_dtype=True, **tolerance)

    def samples(self, op, dtype, **kwargs):
        return itertools.islice(op.sample_inputs("cpu", dtype, **kwargs), SAMPLES)

    def skip_if_different(self, op, dtype):
        reason = DIFFERS.get((op.full_name, dtype)) or DIFFERS.get((op.full_name, None))
        if reason:
            self.skipTest(reason)

    @ops(SERVED, allowed_dtypes=TYPES)
    def test_agrees_with_cpu(self, device, dtype, op):
        self.skip_if_different(op, dtype)
        for sample in self.samples(op, dtype):
            there = on(device, op, sample)
            expected = op(sample.input, *sample.args, **sample.kwargs)
            self.compare(op, dtype, op(there[0], *there[1], **there[2]), expected)

    @ops([op for op in SERVED if op.inplace_variant is not None], allowed_dtypes=(torch.float32,))
    def test_in_place_agrees_with_cpu(self, device, dtype, op):
        self.skip_if_different(op, dtype)
        for sample in self.samples(op, dtype):
            if sample.broadcasts_input or not isinstance(sample.input, torch.Tensor):
                continue
            there = (moved(sample.args, device), moved(sample.kwargs, device))
            here = sample.input.clone()
            copy = moved(sample.input, device)
            op.inplace_variant(here, *sample.args, **sample.kwargs)
            op.inplace_variant(copy, *there[0], **there[1])
            self.compare(op, dtype, copy, here)

    @ops([op for op in SERVED if op.supports_out], allowed_dtypes=(torch.float32,))
    def test_out_agrees_with_cpu(self, device, dtype, op):
        self.skip_if_different(op, dtype)
        for sample in itertools.islice(self.samples(op, dtype), 3):
            expected = op(sample.input, *sample.args, **sample.kwargs)
            if not isinstance(expected, torch.Tensor) or expected.numel() == 0:
                continue
            there = on(device, op, sample)
            # every second element of a larger tensor: writes must respect strides
            out = torch.zeros((*expected.shape, 2), dtype=expected.dtype, device=device).select(-1, 0)
            result = op(there[0], *there[1], **there[2], out=out)
            self.assertIs(result, out)
            self.assertEqual(out.cpu(), expected, rtol=1e-4, atol=1e-4)

    @ops([op for op in SERVED if op.supports_autograd], allowed_dtypes=(torch.float32,))
    def test_gradients_agree_with_cpu(self, device, dtype, op):
        self.skip_if_different(op, dtype)
        for sample in itertools.islice(self.samples(op, dtype, requires_grad=True), 4):
            there = on(device, op, sample)
            mine = self.gradients(op, *there)
            theirs = self.gradients(op, sample.input, sample.args, sample.kwargs)
            self.assertEqual(len(mine), len(theirs))
            for got, want in zip(mine, theirs):
                self.assertEqual(got is None, want is None)
                if want is not None:
                    self.assertEqual(got.cpu(), want, rtol=1e-3, atol=1e-3)

    def gradients(self, op, input, args, kwargs):
        outputs = [o for o in tree_flatten(op(input, *args, **kwargs))[0] if isinstance(o, torch.Tensor) and o.requires_grad]
        inputs = [i for i in tree_flatten((input, args, kwargs))[0] if isinstance(i, torch.Tensor) and i.requires_grad]
        if not outputs or not inputs:
            return []
        weights = [torch.linspace(0.5, 1.5, max(o.numel(), 1))[: o.numel()].reshape(o.shape).to(o.device, o.dtype) for o in outputs]
        return list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))


class FallbackTest(TestCase):
    def setUp(self):
        super().setUp()
        clear_errors()

    # Operators whose float32 samples are all served by the device, or what keeps them from it.
    @ops([op for op in SERVED if op.variant_test_name == ""], allowed_dtypes=(torch.float32,))
    def test_registered_operators_do_not_fall_back(self, device, dtype, op):
        before = torch.xpud.fallback_counts()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for sample in itertools.islice(op.sample_inputs("cpu", dtype), 2):
                if isinstance(sample.input, torch.Tensor) and sample.input.numel() == 0:
                    continue
                there = on(device, op, sample)
                op(there[0], *there[1], **there[2])
        after = torch.xpud.fallback_counts()
        fell = {name for name, count in after.items() if count > before.get(name, 0)}
        own = {name for name in fell if name.removeprefix("aten::").split(".")[0].rstrip("_") in names_of(op)}
        self.assertEqual(own, FALLS_BACK.get(op.full_name, set()))


# Forms of served operators that the device does not serve, in the first samples of op_db.
FALLS_BACK = {
    "linalg.vector_norm": {"aten::linalg_vector_norm"},  # norms other than the Euclidean one
}

instantiate_device_type_tests(OpsTest, globals(), only_for=("xpud",))
instantiate_device_type_tests(FallbackTest, globals(), only_for=("xpud",))

if __name__ == "__main__":
    unittest.main()
