"""Every elementwise op and reduction of the op table, in every type that it supports, compared with its formula in NumPy; result types compared with
torch's promotion."""

import itertools
import re
import unittest

import formula
import numpy as np
import torch
import xpud
from xpud import _table

ELEMENTWISE = [row for row in _table.ROWS if row["family"] == "map" and row["types"] != "any" and row["outputs"] == 1
               and formula.has_reference(row["formula"])]  # fmt: skip
REDUCTIONS = [row for row in _table.ROWS if row["family"] == "reduce" and row["outputs"] == 1]
TOLERANCE = {"float16": 4e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-9}
# Ranges in which the functions are defined and can be compared.
DOMAINS = {
    "log": (0.1, 3), "log2": (0.1, 3), "log10": (0.1, 3), "log1p": (-0.5, 3), "sqrt": (0, 4), "rsqrt": (0.3, 4), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9),
    "atanh": (-0.9, 0.9), "acosh": (1.2, 4), "erfinv": (-0.9, 0.9), "lgamma": (0.3, 6), "tan": (-1, 1), "pow": (0.5, 3), "xlogy": (0.5, 3), "hypot": (0.5, 3),
    "addcdiv": (0.5, 3), "div": (0.5, 3), "reciprocal": (0.5, 3),
}


def torch_type(dtype: xpud.DType) -> torch.dtype:
    return getattr(torch, dtype.name)


def draw(dtype: xpud.DType, shape, seed: int, name: str = "") -> np.ndarray:
    """Returns values of the type, as float64, int64 or bool: small, and never 0 for divisors."""
    generator = np.random.default_rng(seed)
    if dtype.kind == "b":
        return generator.random(shape) < 0.5
    if dtype.kind in "iu":
        low = 1 if dtype.kind == "u" or "div" in name or name in ("pow", "truncdiv", "rsub", "sub") else -4
        return generator.integers(low, 5, shape)
    low, high = DOMAINS.get(name, (-3, 3))
    values = torch.tensor(generator.uniform(low, high, shape)).to(torch_type(dtype)).double().numpy()  # values that the type has
    return np.where(values == 0, 1, values) if "div" in name or name in ("fmod", "remainder") else values


def upload(values: np.ndarray, dtype: xpud.DType) -> xpud.Array:
    return xpud.asarray(values, dtype=dtype)


def compute_type(row: dict, dtype: xpud.DType) -> str:
    return "float32" if row["types"] == "float" and dtype.kind != "f" else dtype.name


def inputs_of(row: dict, dtype: xpud.DType, shape=(5, 7)) -> list[np.ndarray]:
    name = row["names"][0]
    if name == "where":
        return [draw(xpud.bool, shape, 0), *(draw(dtype, shape, i, name) for i in (1, 2))]
    if name == "masked_fill":
        return [draw(dtype, shape, 0), draw(xpud.bool, shape, 1), draw(dtype, shape, 2)]
    return [draw(dtype, shape, i, name) for i in range(row["inputs"])]


def letters(values: list) -> dict:
    return dict(zip("abcdefgh", values))


class Elementwise(unittest.TestCase):
    def assert_close(self, got: xpud.Array, expected: np.ndarray, compute: str, message: str):
        self.assertEqual(got.shape, expected.shape, message)
        tolerance = max(TOLERANCE.get(compute, 0), TOLERANCE.get(got.dtype.name, 0))
        values = got.numpy().astype(np.float64)
        np.testing.assert_allclose(values, np.asarray(expected, np.float64), rtol=tolerance, atol=tolerance, err_msg=message)

    def operands(self, row: dict, dtype: xpud.DType) -> tuple[list[np.ndarray], list[xpud.Array]]:
        values = inputs_of(row, dtype)
        masks = {"where": 0, "masked_fill": 1}.get(row["names"][0])
        arrays = [upload(each, xpud.bool if i == masks else dtype) for i, each in enumerate(values)]
        return values, arrays

    def expected(self, row: dict, values: list[np.ndarray], dtype: xpud.DType) -> np.ndarray:
        if values[0].dtype == bool and row["names"][0] in ("add", "maximum", "minimum", "mul", "bitwise_not"):
            values = [each.astype(np.int64) for each in values]  # bool counts as 0 and 1
            return formula.evaluate(row["formula"].replace("~a", "1 - a"), **letters(values)) != 0
        if row["types"] in ("float", "bool") and values[0].dtype == bool:
            values = [each.astype(np.float64) for each in values]
        if row["names"][0] == "sgn" and values[0].dtype == bool:
            return values[0]
        highest = np.inf if dtype.kind == "f" else 1 if dtype.kind == "b" else np.iinfo(dtype.numpy).max
        result = formula.evaluate(row["formula"], **letters(values), highest=highest)
        if row["types"] == "promote" and dtype.kind in "iu":
            return result.astype(dtype.numpy)  # which wraps
        if dtype.name == "float16" and result.dtype.kind == "f":
            return np.where(np.abs(result) >= 65520, np.copysign(np.inf, result), result)  # beyond its largest number
        return result

    def test_each_op_in_each_type_is_its_formula(self):
        count = 0
        for row in ELEMENTWISE:
            for dtype in row["dtypes"]:
                with self.subTest(op=row["names"][0], dtype=dtype.name):
                    values, arrays = self.operands(row, dtype)
                    self.assert_close(row["op"](*arrays), self.expected(row, values, dtype), compute_type(row, dtype), row["formula"])
                    count += 1
        self.assertGreater(count, 500)

    def test_each_op_broadcasts_strided_views(self):
        for row in ELEMENTWISE:
            dtype = row["dtypes"][-1]  # the widest
            with self.subTest(op=row["names"][0]):
                values = inputs_of(row, dtype, (6, 4, 10))
                masks = {"where": 0, "masked_fill": 1}.get(row["names"][0])
                shapes = itertools.cycle([(slice(None), slice(None), slice(0, 10, 2)), (slice(None), slice(1, 2), slice(0, 5)),
                                          (slice(2, 3), slice(None), slice(5, 10)), (slice(None), slice(None), slice(3, 4))])
                cuts = [next(shapes) for _ in values]
                arrays = [upload(each, xpud.bool if i == masks else dtype)[cut] for i, (each, cut) in enumerate(zip(values, cuts))]
                expected = self.expected(row, [each[cut] for each, cut in zip(values, cuts)], dtype)
                self.assert_close(row["op"](*arrays), expected, compute_type(row, dtype), row["formula"])

    def test_each_op_writes_into_out_and_over_its_input(self):
        for row in ELEMENTWISE:
            if row["types"] == "bool" or row["names"][0] == "where":
                continue
            dtype = row["dtypes"][-1]
            with self.subTest(op=row["names"][0]):
                values, arrays = self.operands(row, dtype)
                expected = self.expected(row, values, dtype)
                wide = xpud.zeros((5, 14), dtype=dtype)
                self.assertEqual(row["op"](*arrays, out=wide[:, ::2])._memory, wide._memory)
                self.assert_close(wide[:, ::2], expected, dtype.name, "into a strided out")
                self.assertFalse(xpud.any(wide[:, 1::2] != 0), "an out's gaps stay")
                self.assertIs(row["op"](*arrays, out=arrays[0]), arrays[0])
                self.assert_close(arrays[0], expected, dtype.name, "over its input")

    def test_defaults_are_those_of_atens_schemas(self):
        for name, given in _table.DEFAULTS.items():
            overload = "Tensor" if name in ("add", "sub", "rsub") else "default"
            schema = getattr(getattr(torch.ops.aten, name), overload)._schema
            known = [argument.default_value for argument in schema.arguments if argument.has_default_value()]
            self.assertEqual([float(value) for value in given], [float(value) for value in known], name)


class Types(unittest.TestCase):
    def assert_type(self, got: xpud.Array, expected: torch.dtype, message):
        self.assertEqual(f"torch.{got.dtype.name}", str(expected), message)

    def test_two_arrays_promote_as_torch_does(self):
        for a, b in itertools.product(_types(), repeat=2):
            expected = torch.result_type(torch.ones(2, dtype=torch_type(a)), torch.ones(2, dtype=torch_type(b)))
            self.assert_type(xpud.ones(2, dtype=a) * xpud.ones(2, dtype=b), expected, (a, b))
            self.assert_type(xpud.empty(0, dtype=xpud.result_type(a, b)), expected, (a, b))

    def test_numbers_take_the_arrays_type_unless_their_kind_is_higher(self):
        for dtype, number in itertools.product(_types(), (True, 2, 2.5)):
            if dtype.kind == "b" and number is True:
                continue
            expected = torch.result_type(torch.ones(2, dtype=torch_type(dtype)), number)
            self.assert_type(xpud.ones(2, dtype=dtype) * number, expected, (dtype, number))
            self.assert_type(number * xpud.ones(2, dtype=dtype), expected, (dtype, number))

    def test_an_array_without_dimensions_is_an_array(self):
        """Types for which torch's promotion differs from the array API standard's."""
        self.assertIs((xpud.ones(2, dtype="float16") + xpud.ones((), dtype="float64")).dtype, xpud.float64)

    def test_numpys_scalars_count_as_pythons_numbers(self):
        for number in (np.float64(2), np.float32(2), np.int16(2), np.array(2.0, np.float16)):
            self.assertIs((xpud.ones(2, dtype="float16") * number).dtype, xpud.float16)
        self.assertEqual((xpud.ones(1) * np.float32(2.5)).item(), 2.5)
        self.assertIs((xpud.arange(2) == np.bool_(True)).dtype, xpud.bool)

    def test_types_that_an_op_does_not_take_are_type_errors(self):
        refused = 0
        for row in ELEMENTWISE:
            for dtype in set(_types()) - set(row["dtypes"]):
                with self.subTest(op=row["names"][0], dtype=dtype.name):
                    with self.assertRaisesRegex(TypeError, rf"{row['names'][0]} does not take {dtype.name}, only .*{row['dtypes'][0].name}"):
                        row["op"](*[xpud.ones(2, dtype=dtype)] * row["inputs"])
                    refused += 1
        self.assertGreater(refused, 100)

    def test_integers_beyond_a_type_overflow_but_can_be_compared_with(self):
        array = xpud.asarray([1, 200], dtype="uint8")
        for call in (lambda: array + 300, lambda: array * -1, lambda: 1 << 70 and array + (1 << 70)):
            with self.assertRaises(OverflowError):
                call()
        self.assertEqual((array < 300).tolist(), [True, True])
        self.assertEqual((array == -1).tolist(), [False, False])

    def test_out_takes_what_its_kind_holds(self):
        whole, real = xpud.arange(3), xpud.ones(3)
        self.assertEqual(xpud.add(whole, 1, out=real).tolist(), [1.0, 2.0, 3.0])
        with self.assertRaisesRegex(TypeError, "floating result cannot be stored in out, of int64; convert it with astype"):
            xpud.add(real, 1, out=whole)
        with self.assertRaises(TypeError):
            whole += 0.5
        with self.assertRaisesRegex(ValueError, r"result of shape \(3,\) does not fit out, of shape \(4,\)"):
            xpud.add(real, 1, out=xpud.ones(4))
        with self.assertRaisesRegex(ValueError, "broadcast view"):
            xpud.add(real, 1, out=xpud.broadcast_to(xpud.ones(1), (3,)))


def _types() -> tuple[xpud.DType, ...]:
    return xpud._types.TYPES


class Reductions(unittest.TestCase):
    SHAPE = (4, 5, 6)

    def test_each_reduction_in_each_type_is_its_formula(self):
        count = 0
        for row in REDUCTIONS:
            attribute = {"attribute": 1.0} if re.search(r"\bb\b", row["formula"]) else {}
            for dtype, axis in itertools.product(row["dtypes"], (None, 1, (0, 2))):
                with self.subTest(op=row["names"][0], dtype=dtype.name, axis=axis):
                    values = draw(dtype, self.SHAPE, 3) * (1 if dtype.kind != "f" else 0.5)
                    values = values if dtype.kind != "f" else torch.tensor(values).to(torch_type(dtype)).double().numpy()
                    got = row["op"](upload(values, dtype), axis, **attribute)
                    self.check(row, dtype, values, axis, got, attribute)
                    count += 1
        self.assertGreater(count, 150)

    def check(self, row, dtype, values, axis, got, attribute):
        axes = tuple(range(3)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        kept = [d for d in range(3) if d not in axes]
        rows = values.astype(np.float64 if dtype.kind == "f" else np.int64).transpose(*kept, *axes).reshape(*[self.SHAPE[d] for d in kept], -1)
        letters = {"b": 1.0} if attribute else {}
        expected = np.apply_along_axis(lambda each: formula.reduce(row["formula"], each, **letters), -1, rows)
        self.assertEqual(got.shape, expected.shape)
        tolerance = 4 * TOLERANCE.get(dtype.name, 0)
        np.testing.assert_allclose(got.numpy().astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)

    def test_results_have_the_types_that_the_table_says(self):
        whole, real, flags = xpud.arange(4, dtype="int8"), xpud.ones(4, dtype="float16"), xpud.ones(4, dtype=bool)
        for got, expected in ((xpud.sum(whole), xpud.int64), (xpud.sum(flags), xpud.int64), (xpud.sum(real), xpud.float16), (xpud.max(whole), xpud.int8),
                              (xpud.argmax(real), xpud.int64), (xpud.any(real), xpud.bool), (xpud.mean(real), xpud.float16),
                              (xpud.sum(real, dtype=xpud.float32), xpud.float32), (xpud.sum(whole, dtype=xpud.float64), xpud.float64)):
            self.assertIs(got.dtype, expected)
        with self.assertRaisesRegex(TypeError, "mean does not take int8"):
            xpud.mean(whole)

    def test_axes_are_checked(self):
        array = xpud.ones((2, 3))
        self.assertEqual(xpud.sum(array, -1).tolist(), [3.0, 3.0])
        self.assertEqual(array.sum(axis=(0, 1), keepdims=True).shape, (1, 1))
        with self.assertRaisesRegex(IndexError, "axis 2 of an array with 2 dimensions"):
            xpud.sum(array, 2)
        with self.assertRaisesRegex(ValueError, "axis -1 is named twice"):
            xpud.sum(array, (1, -1))

    def test_of_no_elements(self):
        nothing = xpud.empty((0, 3))
        self.assertEqual(xpud.sum(nothing, 0).tolist(), [0.0] * 3)
        self.assertEqual(xpud.prod(nothing).item(), 1.0)
        self.assertEqual((xpud.any(nothing).item(), xpud.all(nothing).item()), (False, True))
        self.assertEqual(xpud.sum(nothing, 1).shape, (0,))
        for op in (xpud.max, xpud.argmin, xpud.mean):
            with self.assertRaisesRegex(ValueError, "needs at least one element"):
                op(nothing, 0)


class Names(unittest.TestCase):
    def test_every_row_is_a_function(self):
        for name, row in _table.BY_NAME.items():
            self.assertTrue(callable(getattr(xpud.ops, name)), name)
            if row["op"] is not None:
                self.assertIn(row["formula"], getattr(xpud.ops, name).__doc__)

    def test_elementwise_ops_have_the_standards_names(self):
        for name in ("abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_or bitwise_xor ceil clip copysign cos cosh divide "
                     "equal exp expm1 floor floor_divide greater greater_equal hypot isfinite isinf isnan less less_equal log log1p log2 log10 logical_and "
                     "logical_not logical_or logical_xor maximum minimum multiply negative not_equal positive pow reciprocal remainder round sign sin sinh "
                     "square sqrt subtract tan tanh trunc all any argmax argmin max mean min prod std sum var where matmul take").split():
            self.assertTrue(callable(getattr(xpud, name)), name)


if __name__ == "__main__":
    unittest.main()
