"""Values from and to other libraries: NumPy, DLPack with NumPy and torch, shared host memory, safetensors."""

import gc
import itertools
import json
import pathlib
import tempfile
import threading
import unittest
import weakref

import numpy as np
import torch
import xpud
from safetensors.numpy import save_file

TYPES = {dtype.name: getattr(torch, dtype.name) for dtype in xpud._types.TYPES}


class NumPy(unittest.TestCase):
    def test_asarray_of_numpy_reads_the_values(self):
        array = xpud.arange(6).reshape(2, 3)
        self.assertEqual(np.asarray(array).tolist(), array.tolist())
        self.assertEqual(np.array(array, dtype=np.float64).dtype, np.float64)
        self.assertEqual(np.asarray(array.T).tolist(), [[0, 3], [1, 4], [2, 5]])
        with self.assertRaises(ValueError):
            np.asarray(array, copy=False)

    def test_bfloat16_becomes_float32(self):
        array = xpud.asarray([1.0, 2.5, 3.0009765625], dtype=xpud.bfloat16)
        self.assertEqual((array.numpy().dtype, array.tolist()), (np.float32, [1.0, 2.5, 3.0]))

    def test_into_an_array_that_is_there(self):
        array = xpud.arange(6, dtype="float32").reshape(2, 3).T
        out = np.zeros((3, 2), np.float32)
        self.assertIs(array.numpy(out=out), out)
        self.assertEqual(out.tolist(), array.tolist())
        read_only = np.zeros((3, 2), np.float32)
        read_only.flags.writeable = False
        for wrong, error in ((np.zeros((2, 3), np.float32), ValueError), (np.zeros((3, 2)), TypeError), (np.zeros((2, 3), np.float32).T, ValueError),
                             (read_only, ValueError)):
            with self.assertRaises(error):
                array.numpy(out=wrong)


class DLPack(unittest.TestCase):
    def test_torch_gets_every_type_and_gives_it_back(self):
        for name, dtype in TYPES.items():
            for shape in ((), (3,), (2, 3), (0, 4), (300, 200)):
                tensor = (torch.rand(shape) * 9).to(dtype)
                array = xpud.from_dlpack(tensor)
                self.assertEqual((array.dtype.name, array.shape), (name, tuple(shape)))
                back = torch.from_dlpack(array)
                self.assertEqual(back.dtype, dtype)
                self.assertTrue(torch.equal(back, tensor), (name, shape))

    def test_numpy_gets_what_it_has_and_gives_it_back(self):
        for dtype in xpud._types.TYPES:
            if dtype.numpy is not None:
                values = np.arange(12).reshape(3, 4).astype(dtype.numpy)
                array = xpud.from_dlpack(values)
                self.assertIs(array.dtype, dtype)
                back = np.from_dlpack(array)
                self.assertEqual(back.dtype, dtype.numpy)
                np.testing.assert_array_equal(back, values)

    def test_strided_tensors_and_views(self):
        tensor = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6)
        for view in (tensor.T, tensor[:, ::2], tensor[1:, 3], torch.broadcast_to(tensor[0], (3, 6))):
            self.assertTrue(torch.equal(torch.from_dlpack(xpud.asarray(view)), view))
        array = xpud.arange(24).reshape(4, 6)
        self.assertTrue(torch.equal(torch.from_dlpack(array[1:, ::2]), torch.arange(24).reshape(4, 6)[1:, ::2]))

    def test_an_export_is_a_copy_on_the_host_and_says_so(self):
        array = xpud.zeros(3)
        self.assertEqual(array.__dlpack_device__(), (1, 0))
        exported = torch.from_dlpack(array)
        exported += 1
        self.assertEqual(array.tolist(), [0, 0, 0])
        for options in ({"copy": False}, {"dl_device": (2, 0)}):
            with self.assertRaises(BufferError):
                array.__dlpack__(**options)
        with self.assertRaises(ValueError):
            xpud.from_dlpack(torch.zeros(2), copy=False)

    def test_exported_memory_lives_as_long_as_it_is_used(self):
        for count in (10, 100_000):  # ordinary memory, and shared memory
            array = xpud.arange(count)
            kept = [np.from_dlpack(array), torch.from_dlpack(array + 1)]
            del array
            for _ in range(20):
                np.from_dlpack(xpud.zeros(count, dtype="int64"))
            gc.collect()
            np.testing.assert_array_equal(kept[0], np.arange(count))
            np.testing.assert_array_equal(kept[1].numpy(), np.arange(count) + 1)

    def test_a_capsule_keeps_its_memory_until_it_or_who_took_it_goes(self):
        class Owner:
            memory = np.arange(6.0)

        for version, take in itertools.product((False, True), (False, True)):
            owner = Owner()
            kept = weakref.ref(owner)
            held = xpud._xpud.export_dlpack(owner, owner.memory.ctypes.data, (2, 3), xpud.float64, version)
            self.assertIn("dltensor_versioned" if version else '"dltensor"', repr(held))
            del owner
            if take:
                held = torch.from_dlpack(held)
                self.assertEqual(held.tolist(), [[0, 1, 2], [3, 4, 5]])
            gc.collect()
            self.assertIsNotNone(kept())
            del held
            gc.collect()
            self.assertIsNone(kept(), (version, take))

    def test_what_cannot_be_read_is_refused(self):
        with self.assertRaisesRegex(BufferError, "type code 5"):
            xpud.from_dlpack(torch.zeros(2, dtype=torch.complex64))
        with self.assertRaises(BufferError):
            xpud.from_dlpack(torch.zeros(2, dtype=torch.uint16))
        with self.assertRaises(AttributeError):
            xpud.from_dlpack([1, 2])
        used = torch.zeros(2).__dlpack__()
        torch.from_dlpack(used)
        with self.assertRaisesRegex(BufferError, "consumed"):
            xpud._xpud.import_dlpack(used)


class HostMemory(unittest.TestCase):
    def test_copies_from_and_to_it(self):
        host = xpud.empty_host((512, 1024), xpud.int64)
        host[:] = np.arange(host.size).reshape(host.shape)
        array = xpud.asarray(host)
        host[:] = 0  # it has been copied already
        self.assertEqual(array.sum().item(), (1 << 19) * ((1 << 19) - 1) // 2)
        (array + 1).numpy(out=host)
        self.assertEqual((host[0, 0], host[-1, -1]), (1, 1 << 19))

    def test_its_arrays_keep_it(self):
        view = xpud.empty_host(1 << 16, "uint8")[10:20]
        view[:] = 7
        for _ in range(10):
            xpud.empty_host(1 << 16, "uint8")[:] = 9
        gc.collect()
        self.assertEqual(view.tolist(), [7] * 10)

    def test_corners(self):
        self.assertEqual(xpud.empty_host((0, 3)).shape, (0, 3))
        self.assertEqual(xpud.empty_host(()).shape, ())
        with self.assertRaises(TypeError):
            xpud.empty_host(3, xpud.bfloat16)


class SafeTensors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "weights.safetensors")

    def test_tensors_are_as_they_were_saved(self):
        saved = {dtype.name: (np.arange(24).reshape(2, 3, 4) % 7).astype(dtype.numpy) for dtype in xpud._types.TYPES if dtype.numpy is not None}
        saved |= {"none": np.zeros((0, 3), np.float32), "one": np.array(2.5)}
        save_file(saved, self.path, {"note": "metadata"})
        loaded = xpud.load_safetensors(self.path)
        self.assertEqual(set(loaded), set(saved))
        for name, values in saved.items():
            self.assertEqual((loaded[name].shape, loaded[name].numpy().dtype), (values.shape, values.dtype))
            np.testing.assert_array_equal(loaded[name].numpy(), values)
        self.assertEqual(set(xpud.load_safetensors(str(self.path), names=["one"])), {"one"})
        with self.assertRaises(KeyError):
            xpud.load_safetensors(self.path, names=["missing"])

    def test_bfloat16(self):
        from safetensors.torch import save_file as save_tensors
        tensor = torch.randn(5, 6).bfloat16()
        save_tensors({"w": tensor}, self.path)
        self.assertTrue(torch.equal(torch.from_dlpack(xpud.load_safetensors(self.path)["w"]), tensor))

    def write(self, header: object, data: bytes = b"", length: int | None = None):
        text = json.dumps(header).encode() if not isinstance(header, bytes) else header
        self.path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)

    def test_broken_files_are_value_errors(self):
        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        cases = ((b"{", b"", None), ([], b"", None), ({}, b"", 1 << 60), ({"w": entry}, b"1234", None), ({"w": {**entry, "shape": [3]}}, bytes(8), None),
                 ({"w": {**entry, "data_offsets": [-8, 0]}}, bytes(8), None), ({"w": {**entry, "data_offsets": [8, 0]}}, bytes(8), None), ({"w": {}}, b"", None), ({"w": 3}, b"", None),
                 ({"w": {**entry, "shape": [2.5]}}, bytes(8), None), ({"w": {**entry, "data_offsets": [0]}}, bytes(8), None))
        for header, data, length in cases:
            self.write(header, data, length)
            with self.assertRaises(ValueError, msg=header):
                xpud.load_safetensors(self.path)
        self.path.write_bytes(b"")
        with self.assertRaises(ValueError):
            xpud.load_safetensors(self.path)
        self.write({"w": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}, bytes(8))
        with self.assertRaisesRegex(TypeError, "w is of F8_E4M3"):
            xpud.load_safetensors(self.path)
        with self.assertRaises(FileNotFoundError):
            xpud.load_safetensors(self.path.parent / "missing")

    def test_weights_are_not_copied_in_memory(self):
        """The kernel may drop pages of the mapped file; this process's own memory must grow only a little."""
        save_file({f"w{i}": np.full((1 << 22,), i, np.float32) for i in range(8)}, self.path)  # 128 MiB
        xpud.load_safetensors(self.path, names=["w0"])
        before, peak, done = anonymous(), 0, threading.Event()

        def watch():
            nonlocal peak
            while not done.wait(0.002):
                peak = max(peak, anonymous())

        watcher = threading.Thread(target=watch)
        watcher.start()
        loaded = xpud.load_safetensors(self.path)
        done.set()
        watcher.join()
        self.assertEqual([array[0].item() for array in loaded.values()], [float(name[1:]) for name in loaded])
        self.assertGreater(peak, 0)
        self.assertLess(peak - before, 32 << 20)


def anonymous() -> int:
    """Returns this process's bytes that are not mapped from files."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])


if __name__ == "__main__":
    unittest.main()
