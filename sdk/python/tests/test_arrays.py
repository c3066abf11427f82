"""Arrays: values, views, positions and errors, compared with NumPy's arrays."""

import copy
import itertools
import pickle
import unittest

import numpy as np
import xpud


def both(shape, dtype="float32") -> tuple[np.ndarray, xpud.Array]:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    return values, xpud.asarray(values)


class Same(unittest.TestCase):
    def assert_same(self, array: xpud.Array, values: np.ndarray, message=None):
        self.assertEqual(array.shape, values.shape, message)
        np.testing.assert_array_equal(array.numpy(), values, err_msg=str(message))


class Creation(Same):
    def test_values_of_each_type_come_back_as_they_are(self):
        for dtype in xpud._types.TYPES:
            if dtype.numpy is not None:
                values = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype.numpy)
                array = xpud.asarray(values)
                self.assertIs(array.dtype, dtype)
                self.assertEqual(array.numpy().dtype, values.dtype)
                self.assert_same(array, values)

    def test_strided_and_foreign_arrays_are_gathered(self):
        values = np.arange(24.0).reshape(4, 6)
        for each in (values[::-1], values[:, ::-2], values.T, values[1:, 2:4], np.asfortranarray(values), values.astype(">f8"), values[0, 0]):
            self.assert_same(xpud.asarray(each), each)

    def test_python_values(self):
        for values, dtype in ((3, "int64"), (2.5, "float32"), (True, "bool"), ([1, 2], "int64"), ([[1.5], [2]], "float32"), ([], "float32")):
            array = xpud.asarray(values)
            self.assertEqual(array.dtype.name, dtype)
            self.assertEqual(array.tolist(), values)
        self.assertEqual(xpud.asarray(3).shape, ())
        self.assertEqual(xpud.asarray([1.5, 2.5], dtype="float64").numpy().dtype, np.float64)

    def test_an_array_of_ours_is_itself_unless_a_copy_is_due(self):
        array = xpud.arange(3)
        self.assertIs(xpud.asarray(array), array)
        self.assertIsNot(xpud.asarray(array, copy=True), array)
        self.assertIs(xpud.asarray(array, dtype="float16").dtype, xpud.float16)
        for wrong in (lambda: xpud.asarray(array, dtype="float16", copy=False), lambda: xpud.asarray([1], copy=False)):
            with self.assertRaises(ValueError):
                wrong()

    def test_filled_arrays(self):
        self.assert_same(xpud.zeros((2, 3)), np.zeros((2, 3)))
        self.assert_same(xpud.ones(2, dtype=bool), np.ones(2, bool))
        self.assert_same(xpud.full((2,), 7), np.full((2,), 7))
        self.assertEqual([xpud.full((), value).dtype.name for value in (1, 1.0, True)], ["int64", "float32", "bool"])
        like = xpud.full_like(xpud.zeros((2, 2), dtype="int16"), 9)
        self.assertEqual((like.dtype.name, like.tolist()), ("int16", [[9, 9], [9, 9]]))
        self.assertEqual(xpud.empty((0, 3)).numpy().shape, (0, 3))

    def test_arange_is_numpys(self):
        for arguments in ((5,), (2, 9), (2, 9, 3), (9, 2, -2), (5, 5), (0.0, 1.0, 0.25), (3, 0)):
            expected = np.arange(*arguments)
            self.assert_same(xpud.arange(*arguments), expected.astype(np.float32) if expected.dtype == float else expected, arguments)
        with self.assertRaises(ValueError):
            xpud.arange(0, 1, 0)

    def test_types_are_converted_on_the_device(self):
        values = np.array([-2.7, -0.4, 0.0, 0.6, 3.2])
        for source, target in itertools.product(("float64", "float32", "float16"), ("float64", "float16", "int32", "int8", "bool")):
            given = values.astype(source)
            self.assert_same(xpud.asarray(given).astype(target), given.astype(target), (source, target))
        array = xpud.arange(3)
        self.assertIs(array.astype("int64", copy=False), array)
        self.assertNotEqual(array.astype("int64")._memory, array._memory)

    def test_what_the_device_lacks_is_refused(self):
        for values in (np.zeros(2, complex), np.zeros(2, np.uint32), np.array(["a"])):
            with self.assertRaisesRegex(TypeError, "the device has no type"):
                xpud.asarray(values)
        for shape in ((-1,), (1,) * 9, (1 << 40, 1 << 40)):
            with self.assertRaises(ValueError):
                xpud.empty(shape)
        with self.assertRaises(TypeError):
            xpud.empty((2.5,))
        with self.assertRaises(IndexError):
            xpud.empty(2, device=99)
        with self.assertRaises(TypeError):
            xpud.empty(2, device="cuda")


class Views(Same):
    def assert_view(self, view: xpud.Array, of: xpud.Array, values: np.ndarray, message=None):
        self.assert_same(view, values, message)
        self.assertEqual(view._memory, of._memory, message)

    def test_slices_are_numpys_and_share_memory(self):
        values, array = both((4, 5, 6))
        keys = (0, -1, (1, 2), slice(1, 3), (slice(None), 2), (Ellipsis, 1), (slice(None, None, 2), slice(4, 1), slice(1, None, 3)), None, (0, None, 1),
                (None, Ellipsis, None), Ellipsis, (), (slice(-3, -1), -2), (1, 2, 3), np.int64(2), slice(10, 20))
        for key in keys:
            self.assert_view(array[key], array, values[key], key)

    def test_a_slice_of_a_slice(self):
        values, array = both((8, 9))
        self.assert_view(array[1:7:2][:, ::3][1:, 1], array, values[1:7:2][:, ::3][1:, 1])

    def test_strides_and_sizes_are_numpys(self):
        values, array = both((4, 5, 6))
        for key in (slice(None), (slice(None), 1), (slice(1, 3), slice(None, None, 2))):
            self.assertEqual(array[key].strides, values[key].strides)
            self.assertEqual((array[key].nbytes, array[key].size, array[key].ndim, len(array[key])),
                             (values[key].nbytes, values[key].size, values[key].ndim, len(values[key])))
        self.assertTrue(array[1:].is_contiguous)
        self.assertFalse(array[:, 1:].is_contiguous)

    def test_permutations(self):
        values, array = both((2, 3, 4))
        for order in itertools.permutations(range(3)):
            self.assert_view(array.permute(*order), array, values.transpose(order), order)
        self.assert_view(array.permute(-1, 0, 1), array, values.transpose(2, 0, 1))
        self.assert_view(array.mT, array, np.swapaxes(values, 1, 2))
        self.assert_view(array[0].T, array, values[0].T)
        for wrong in (lambda: array.permute(0, 1), lambda: array.permute(0, 0, 1), lambda: array.T, lambda: array[0, 0].mT):
            with self.assertRaises(ValueError):
                wrong()

    def test_reshapes_are_views_where_numpys_are(self):
        values, array = both((4, 6, 5))
        views = ((slice(None),), (slice(None, None, 2),), (slice(None), slice(None, None, 3)), (slice(None), slice(None), slice(0, 1)))
        shapes = ((-1,), (2, -1), (24, 5), (4, 30), (2, 2, 6, 5), (4, 3, 2, 5), (1, -1, 1), (-1, 5))
        compared = 0
        for key, shape in itertools.product(views, shapes):
            source, host = array[key], values[key]
            try:
                expected = host.reshape(shape)
            except ValueError:
                with self.assertRaises(ValueError):
                    source.reshape(shape)
                continue
            self.assert_same(source.reshape(shape), expected, (key, shape))
            self.assertEqual(source.reshape(*shape)._memory == array._memory, np.shares_memory(expected, values), (key, shape))
            compared += 1
        self.assertGreater(compared, 15)
        for wrong in ((5, 5), (-1, -1), (7, -1), (-2, 60)):
            with self.assertRaises(ValueError):
                array.reshape(wrong)

    def test_other_views(self):
        values, array = both((3, 1, 4))
        self.assert_view(xpud.squeeze(array, 1), array, values.squeeze(1))
        self.assert_view(xpud.expand_dims(array, axis=-1), array, np.expand_dims(values, -1))
        self.assert_view(xpud.broadcast_to(array, (2, 3, 5, 4)), array, np.broadcast_to(values, (2, 3, 5, 4)))
        for wrong in (lambda: xpud.squeeze(array, 0), lambda: xpud.broadcast_to(array, (3, 4)), lambda: xpud.broadcast_to(array, (2, 1, 4))):
            with self.assertRaises(ValueError):
                wrong()

    def test_a_view_outlives_the_array_it_is_of(self):
        view = xpud.arange(10)[3:5]
        for _ in range(50):
            xpud.full((10,), 99)
        self.assertEqual(view.tolist(), [3, 4])

    def test_views_stay_within_their_memory(self):
        array = xpud.arange(10)
        for shape, strides, offset in (((11,), (1,), 0), ((2,), (10,), 0), ((1,), (1,), 10), ((2,), (1,), -1), ((2, 2), (1,), 0)):
            with self.assertRaises(ValueError):
                array._view(shape, strides, offset)


class Positions(Same):
    def test_integers_and_masks_choose_as_numpys(self):
        values, array = both((4, 5, 6))
        for key in ([1, 3, 1], [-1], np.array([[0, 1], [2, -4]]), (slice(None), [4, 0]), (0, [1, 2]), (Ellipsis, [5, 5]), ([0, 1, 3], [4, 2, 0]),
                    (slice(1, 3), [[0], [1]], [2, 3]), values > 50, values[:, :, 0] > 30, (slice(None), values[0] > 10), [], ([1], slice(1, 3))):
            self.assert_same(array[key], values[key], key)
        index = xpud.asarray([2, 0])
        self.assert_same(array[index], values[[2, 0]])
        self.assert_same(array[array > 50], values[values > 50])

    def test_nonzero_gives_numpys_positions(self):
        values, _ = both((5, 7, 300))
        for shown in (values, values % 3 == 0, values * 0, (values % 2).astype(np.float16), values.astype(np.int8), values > -1):
            array = xpud.asarray(shown)
            for ours, theirs in ((array, shown), (array[1:, ::2, 7:], shown[1:, ::2, 7:]), (array.permute(2, 0, 1), shown.transpose(2, 0, 1)),
                                 (array[0, 0], shown[0, 0]), (array[:, :0], shown[:, :0]), (xpud.broadcast_to(array[:1], shown.shape), np.broadcast_to(shown[:1], shown.shape))):
                got, wanted = xpud.nonzero(ours), np.nonzero(theirs)
                self.assertEqual(len(got), len(wanted))
                for mine, right in zip(got, wanted):
                    self.assertIs(mine.dtype, xpud.int64)
                    np.testing.assert_array_equal(mine.numpy(), right)
        self.assertEqual(xpud.ops.nonzero(xpud.asarray(3.0)).shape, (1, 0))
        self.assertEqual(xpud.ops.nonzero(xpud.asarray(0)).shape, (0, 0))
        for wrong, error in ((lambda: xpud.nonzero(xpud.asarray(1)), ValueError), (lambda: xpud.ops.nonzero(array, array), TypeError)):
            with self.assertRaises(error):
                wrong()

    def test_a_size_that_is_not_the_right_one_is_an_error_or_refused(self):
        """A client that does not run the op that finds it."""
        row, array = xpud._table.BY_NAME["nonzero"], xpud.ones((2000,))
        ends = xpud.ops.nonzero_ends(array)
        self.assertEqual(ends.tolist(), [1024, 2000])
        out = xpud.zeros((1500, 1), dtype="int64")
        xpud._families.execute(row, (out,), (array, ends))
        with self.assertRaisesRegex(IndexError, "2000 is out of range in nonzero"):
            xpud.synchronize()
        self.assertEqual(out.reshape(-1).tolist(), [*range(1024), *[0] * 476])
        with self.assertRaisesRegex(ValueError, "more rows than self"):
            xpud._families.execute(row, (xpud.zeros((2001, 1), dtype="int64"),), (array, ends))
            xpud.synchronize()

    def test_take_and_flip(self):
        values, array = both((4, 5))
        self.assert_same(xpud.take(array, [1, -1], axis=1), np.take(values, [1, -1], axis=1))
        index = np.array([[0, 1, 2, 3, -1], [3, -4, 0, 0, 1]])
        self.assert_same(xpud.take_along_axis(array, xpud.asarray(index), axis=0), np.take_along_axis(values, index, axis=0))
        self.assert_same(xpud.take_along_axis(array[:, 0], xpud.asarray(index[0])), np.take_along_axis(values[:, 0], index[0], axis=0))
        self.assert_same(xpud.flip(array), values[::-1, ::-1])
        self.assert_same(xpud.flip(array, axis=1), values[:, ::-1])

    def test_writing_goes_through_views(self):
        values, array = both((4, 6))
        for key, value in ((0, 7.0), ((slice(None), 1), [1, 2, 3, 4]), ((slice(1, 3), slice(None, None, 2)), 5), ((-1, -1), True),
                           (slice(2, 4), np.arange(6)), (values > 20, 0)):
            values[key] = value
            array[key] = value
            self.assert_same(array, values, key)
        array[1:3] = array[0:2]
        values[1:3] = values[0:2].copy()
        self.assert_same(array, values, "an overlapping source")
        array[0] = xpud.arange(6, dtype="int32")
        self.assertEqual(array[0].tolist(), [0, 1, 2, 3, 4, 5])

    def test_in_place_operators_write_where_the_view_is(self):
        values, array = both((4, 6))
        row, host = array[1], values[1]
        row += 10
        host += 10
        array[:, 2] *= 3
        values[:, 2] *= 3
        array[1:] -= array[:-1]
        values[1:] -= values[:-1].copy()
        self.assert_same(array, values)
        self.assertIs(row._memory == array._memory, True)

    def test_wrong_positions_are_errors(self):
        _, array = both((3, 4))
        for key in (3, -4, (0, 4), (0, 0, 0), (Ellipsis, Ellipsis), np.ones((2, 4), bool)):
            with self.assertRaises(IndexError, msg=str(key)):
                array[key]
        for key in ("a", 1.5, [1.5]):
            with self.assertRaises(TypeError, msg=str(key)):
                array[key]
        with self.assertRaisesRegex(ValueError, "xpud.flip"):
            array[::-1]
        with self.assertRaisesRegex(ValueError, "xpud.where"):
            array[[0, 1]] = 1

    def test_a_position_out_of_range_is_found_at_the_next_wait(self):
        array = xpud.arange(3)
        taken = array[[0, 7]]
        with self.assertRaisesRegex(IndexError, "out of range"):
            taken.numpy()
        self.assertEqual(array.tolist(), [0, 1, 2], "the session goes on")


class Manners(Same):
    def test_reading_one_value(self):
        self.assertEqual((int(xpud.asarray(3)), float(xpud.asarray([2.5])), bool(xpud.asarray(0)), [10, 20][xpud.asarray(1)]), (3, 2.5, False, 20))
        self.assertEqual(f"{xpud.asarray(2.5):.2f}", "2.50")
        for wrong, error in ((lambda: bool(xpud.ones(2)), ValueError), (lambda: xpud.empty(0).item(), ValueError), (lambda: [1][xpud.asarray(0.0)], TypeError),
                             (lambda: len(xpud.asarray(1)), TypeError), (lambda: iter(xpud.asarray(1)), TypeError), (lambda: hash(xpud.asarray(1)), TypeError)):
            with self.assertRaises(error):
                wrong()

    def test_arrays_are_sequences(self):
        values, array = both((3, 2))
        self.assertEqual([row.tolist() for row in array], values.tolist())
        self.assertTrue(5.0 in array)
        self.assertFalse(6.0 in array)

    def test_repr_shows_values(self):
        self.assertEqual(repr(xpud.asarray([1.5, 2])), "Array([1.5, 2. ], dtype=float32, device=0)")
        self.assertEqual(repr(xpud.asarray(True)), "Array(True, dtype=bool, device=0)")
        self.assertEqual(repr(xpud.empty((0, 2))), "Array([], shape=(0, 2), dtype=float32, device=0)")
        self.assertRegex(repr(xpud.arange(4_000_000).reshape(2000, 2000)), r"(?s)\[ +0, +1, +2, \.\.\.,.*3999999\]\], dtype=int64")

    def test_copies_and_pickles(self):
        array = xpud.arange(6, dtype="bfloat16").reshape(2, 3)
        for made in (copy.copy(array), copy.deepcopy(array), array.copy(), +array, pickle.loads(pickle.dumps(array))):
            self.assertNotEqual(made._memory, array._memory)
            self.assertEqual((made.tolist(), made.dtype), (array.tolist(), array.dtype))
        self.assertIs(pickle.loads(pickle.dumps(xpud.float16)), xpud.float16)
        for kept in (array.device, xpud.default_session()):
            with self.assertRaises(TypeError):
                pickle.dumps(kept)

    def test_numpys_arrays_are_no_operands(self):
        array = xpud.ones(3)
        for call in (lambda: array + np.ones(3), lambda: np.ones(3) * array, lambda: array < np.ones(3), lambda: xpud.exp(np.ones(3)),
                     lambda: array @ np.ones(3), lambda: np.ones(3) @ array, lambda: xpud.add(array, [1, 2, 3])):
            with self.assertRaisesRegex(TypeError, "asarray"):
                call()
        for other in (None, "a", object()):
            self.assertFalse(array == other)
            with self.assertRaises(TypeError):
                array + other

    def test_reflected_operators(self):
        values, array = both((4,))
        values, array = values + 1, array + 1
        for name in "add sub mul truediv floordiv mod pow".split():
            for left in (2, 2.5):
                expected = getattr(np, {"truediv": "divide", "floordiv": "floor_divide", "sub": "subtract", "mul": "multiply", "pow": "power"}.get(name, name))
                np.testing.assert_allclose(getattr(array, f"__r{name}__")(left).numpy(), expected(np.float32(left), values), rtol=1e-5)
        self.assertEqual(divmod(array, 2)[0].tolist(), (values // 2).tolist())
        self.assertEqual((-array).tolist(), (-values).tolist())
        self.assertEqual(abs(-array).tolist(), values.tolist())
        self.assertEqual((~xpud.asarray([True, False])).tolist(), [False, True])


if __name__ == "__main__":
    unittest.main()
