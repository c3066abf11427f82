"""torch_xpud._C.LoopKernel: a kernel as bytes, called with tensors and numbers of one device."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

import torch
import torch_xpud  # noqa: F401
from torch_xpud import _C

# Numbers of proto/loops/kernel.h, proto/loops/functions.inc and proto/ops/dtype.h.
SCALAR, READ, WRITTEN, UPDATED = range(4)
ITERATOR, SIZE, INDIRECT_NODE = 1, 2, 3
SCALAR_VALUE, LOAD, STORE, CALL, INDIRECT = 1, 2, 3, 5, 10
ADD, MUL = 0, 2
INT64, FLOAT32 = 5, 8


def encode(operands: list, sizes: int, nodes: list, statements: list) -> bytes:
    """Returns a kernel of one body with one dimension, whose extent is node 0. All numbers are below 128."""
    words = [1, len(operands), *sum(operands, ()), sizes, 1, 1, 1, 0, len(nodes), *sum(nodes, ()), len(statements), *sum(statements, ())]
    return bytes(words)


# out = x * scalar, for each of size 0 elements
SCALED = encode([(FLOAT32, READ), (FLOAT32, SCALAR), (FLOAT32, WRITTEN)], 1, [(SIZE, 0), (ITERATOR, 0)],
                [(LOAD, 0, 1), (SCALAR_VALUE, 1), (CALL, MUL, FLOAT32, 0, 1), (STORE, 2, 1, 2)])
# out += x
ADDED = encode([(FLOAT32, READ), (FLOAT32, UPDATED)], 1, [(SIZE, 0), (ITERATOR, 0)],
               [(LOAD, 0, 1), (LOAD, 1, 1), (CALL, ADD, FLOAT32, 0, 1), (STORE, 1, 1, 2)])
# out[i] = table[index[i]], of size 1 elements
GATHERED = encode([(FLOAT32, READ), (INT64, READ), (FLOAT32, WRITTEN)], 2, [(SIZE, 0), (SIZE, 1), (ITERATOR, 0), (INDIRECT_NODE, 1)],
                  [(LOAD, 1, 2), (INDIRECT, 1, 1, 0), (LOAD, 0, 3), (STORE, 2, 2, 2)])


def scaled(name: str = "scaled") -> "_C.LoopKernel":
    return _C.LoopKernel(SCALED, name, [torch.float32])


class LoopKernel(unittest.TestCase):
    def test_it_computes_with_tensors_and_numbers(self):
        self.assertTrue(_C.loop_kernels_supported())
        kernel = scaled()
        self.assertEqual(kernel.name, "scaled")
        x, y = torch.arange(5.0, device="xpud"), torch.empty(5, device="xpud")
        for factor in (2, 0.5, -1.0):
            kernel([y], [x, factor], [5])
            torch.testing.assert_close(y.cpu(), x.cpu() * factor)
        kernel([y], [x, True], [5])
        torch.testing.assert_close(y.cpu(), x.cpu())

    def test_a_tensor_stands_for_all_memory_from_its_first_element(self):
        kernel = scaled()
        x = torch.arange(10.0, device="xpud")
        y = torch.zeros(10, device="xpud")
        kernel([y[3:]], [x[2:6], 2.0], [4])
        self.assertEqual(y.tolist(), [0, 0, 0, 4, 6, 8, 10, 0, 0, 0])
        columns = torch.arange(12.0, device="xpud").view(3, 4)[:, 1:2]  # 9 elements from the first to the last
        kernel([y[:9]], [columns, 1.0], [9])
        self.assertEqual(y.tolist()[:9], [1, 2, 3, 4, 5, 6, 7, 8, 9])
        empty = torch.empty(0, device="xpud")
        kernel([empty], [empty, 1.0], [0])
        torch.xpud.synchronize()

    def test_outputs_may_be_read(self):
        kernel = _C.LoopKernel(ADDED, "added")
        x, y = torch.ones(3, device="xpud"), torch.ones(3, device="xpud")
        kernel([y], [x], [3])
        kernel([y], [x], [3])
        self.assertEqual(y.tolist(), [3, 3, 3])

    def test_it_uses_the_current_stream(self):
        kernel, stream = scaled(), torch.xpud.Stream()
        x = torch.ones(1 << 16, device="xpud")
        y = torch.empty_like(x)
        torch.xpud.synchronize()
        with torch.xpud.stream(stream):
            kernel([y], [x, 3.0], [1 << 16])
            del x
        stream.synchronize()
        self.assertEqual(y.sum().item(), 3 * (1 << 16))

    def test_a_bad_index_is_an_index_error_that_names_kernel_and_statement(self):
        kernel = _C.LoopKernel(GATHERED, "gathered")
        table, y = torch.arange(3.0, device="xpud"), torch.empty(2, device="xpud")
        kernel([y], [table, torch.tensor([2, -3], device="xpud")], [2, 3])
        self.assertEqual(y.tolist(), [2, 0])
        kernel([y], [table, torch.tensor([0, 7], device="xpud")], [2, 3])
        with self.assertRaisesRegex(IndexError, r"index 7 is out of bounds \(loop kernel gathered, statement 1\)"):
            torch.xpud.synchronize()

    def test_a_kernel_that_is_refused_says_why(self):
        kernel = _C.LoopKernel(SCALED[:-1], "cut", [torch.float32])
        x = torch.ones(3, device="xpud")
        kernel([x], [x, 1.0], [3])
        with self.assertRaisesRegex(RuntimeError, "loop kernel cut: .*ends early"):
            torch.xpud.synchronize()

    def test_wrong_calls_are_errors_at_once(self):
        kernel = scaled()
        x, cpu = torch.ones(3, device="xpud"), torch.ones(3)
        for outputs, inputs, error, text in (([x], [cpu, 1.0], RuntimeError, "same device"), ([cpu], [x, 1.0], RuntimeError, "same device"),
                                             ([cpu], [cpu, 1.0], RuntimeError, "same device"), ([x], [x], ValueError, "takes 1 numbers, not 0"),
                                             ([x], [x, 1.0, 2.0], ValueError, "takes 1 numbers, not more"), ([], [1.0], ValueError, "without a tensor"),
                                             ([x], [x, "a"], TypeError, "real number"),
                                             ([x.to_sparse()], [x, 1.0], RuntimeError, "strided")):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                kernel(outputs, inputs, [3])
        with self.assertRaises(NotImplementedError):
            _C.LoopKernel(SCALED, "complex", [torch.complex64])
        with self.assertRaises(TypeError):
            _C.LoopKernel(SCALED, "no type", [1])
        kernel([x], [x, 1.0], [3])
        torch.xpud.synchronize()

    def test_numbers_have_the_declared_type(self):
        kernel = _C.LoopKernel(SCALED, "scaled", [torch.int64])
        x = torch.ones(3, device="xpud")
        with self.assertRaises(TypeError):
            kernel([x], [x, 1.5], [3])
        kernel([x], [x, 1], [3])
        with self.assertRaisesRegex(RuntimeError, "is float32, not int64"):
            torch.xpud.synchronize()

    def test_kernels_that_are_gone_make_room(self):
        x = torch.ones(3, device="xpud")
        for i in range(5000):  # more than a session may have at a time
            scaled(str(i))([x], [x, 1.0], [3])
        self.assertEqual(x.tolist(), [1, 1, 1])

    def test_a_forked_child_leaves_the_parents_kernels(self):
        kernel = scaled()
        x = torch.ones(3, device="xpud")
        kernel([x], [x, 2.0], [3])
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                kernel([x], [x, 2.0], [3])
            except RuntimeError as error:
                failed = 0 if "fork" in str(error) else 2
            del kernel
            os._exit(failed)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        kernel([x], [x, 2.0], [3])
        self.assertEqual(x.tolist(), [4, 4, 4])


class NextDaemon(unittest.TestCase):
    def test_it_is_defined_there_too(self):
        program = os.environ.get("XPUD_DAEMON") or str(pathlib.Path(__file__).parents[3] / "build/release/bin/xpud")
        with tempfile.TemporaryDirectory() as folder:
            address = os.path.join(folder, "xpud.sock")

            def start() -> subprocess.Popen:
                ready, child = os.pipe()
                daemon = subprocess.Popen([program, "--socket", address, "--device", "cpu", "--ready-fd", str(child)], pass_fds=[child],
                                          stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                os.close(child)
                with os.fdopen(ready, "rb") as pipe:
                    self.assertTrue(pipe.read(1))
                return daemon

            daemon = start()
            script = textwrap.dedent("""
                import sys
                sys.path.insert(0, sys.argv[1])
                import torch, torch_xpud
                from test_loop_kernel import scaled
                kernel = scaled()
                for round in range(2):
                    x = torch.ones(3, device="xpud")
                    kernel([x], [x, 2.0], [3])
                    print(x.tolist(), flush=True)
                    sys.stdin.readline()
            """)
            client = subprocess.Popen([sys.executable, "-c", script, str(pathlib.Path(__file__).parent)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, env=os.environ | {"XPUD_ADDRESS": address})
            try:
                self.assertEqual(client.stdout.readline(), "[2.0, 2.0, 2.0]\n")
                daemon.send_signal(signal.SIGKILL)
                daemon.wait()
                daemon = start()
                self.assertEqual(client.communicate("\n\n", timeout=60)[0], "[2.0, 2.0, 2.0]\n")
            finally:
                client.kill()
                client.wait()
                daemon.terminate()
                daemon.wait()


if __name__ == "__main__":
    unittest.main()
