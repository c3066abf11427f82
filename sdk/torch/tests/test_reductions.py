"""Reductions of tensors without elements: results and errors beside the CPU, and what has a result is native."""

import itertools
import unittest

import torch

REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "prod": torch.prod,
    "any": torch.any,
    "all": torch.all,
    "norm of order 0": lambda tensor, **kwargs: torch.linalg.vector_norm(tensor, 0, **kwargs),
    "norm": torch.linalg.vector_norm,
    "norm of order 3": lambda tensor, **kwargs: torch.linalg.vector_norm(tensor, 3, **kwargs),
}
REFUSED = {"amax": torch.amax, "norm of order inf": lambda tensor, **kwargs: torch.linalg.vector_norm(tensor, float("inf"), **kwargs)}
SHAPES = ((0,), (0, 3), (3, 0), (2, 0, 3), (0, 0))


def outcome(reduction, tensor, kwargs):
    try:
        return reduction(tensor, **kwargs).cpu()
    except (RuntimeError, IndexError) as error:
        return type(error)


class Nothing(unittest.TestCase):
    def check(self, reductions, types):
        for (name, reduction), shape, dtype in itertools.product(reductions.items(), SHAPES, types):
            tensor = torch.empty(shape, dtype=dtype)
            for dim, keepdim in itertools.product((None, *range(len(shape))), (False, True)):
                kwargs = {} if dim is None else {"dim": dim, "keepdim": keepdim}
                with self.subTest(name=name, shape=shape, dtype=dtype, **kwargs):
                    expected, actual = outcome(reduction, tensor, kwargs), outcome(reduction, tensor.to("xpud"), kwargs)
                    if isinstance(expected, type):
                        self.assertEqual(actual, expected)
                    else:
                        torch.testing.assert_close(actual, expected, equal_nan=True)

    def test_results(self):
        before = torch.xpud.fallback_counts()
        self.check(REDUCTIONS, (torch.float32, torch.bfloat16, torch.float64))
        self.check({name: REDUCTIONS[name] for name in ("sum", "prod", "any", "all")}, (torch.int64, torch.bool))
        self.assertEqual(torch.xpud.fallback_counts(), before)

    def test_errors(self):
        self.check(REFUSED, (torch.float32,))


if __name__ == "__main__":
    unittest.main()
