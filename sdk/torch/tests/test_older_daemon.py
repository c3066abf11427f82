"""A daemon that is older than the shim: operators whose rows it lacks fall back to the CPU, and the session continues.

A relay between the shim and the daemon lowers the protocol's version, and removes some rows from those that the daemon announces.
"""

import json
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

from xpud import _table

VERSION_AT, ROWS_AT = 4, 288  # in transport::Welcome
VERSION = 5  # without profiles, ranges and loop kernels
UNKNOWN = ("cumsum", "_softmax", "cos", "nonzero", "nonzero_ends", "training_attention", "attention_backward")


def without(welcome: bytes, names: tuple[str, ...]) -> bytes:
    words = bytearray(welcome)
    struct.pack_into("<H", words, VERSION_AT, VERSION)
    for name in names:
        number = _table.BY_NAME[name]["number"]
        at = ROWS_AT + number // 64 * 8
        (word,) = struct.unpack_from("<Q", words, at)
        assert word >> number % 64 & 1, f"the daemon does not know {name} in any case"
        struct.pack_into("<Q", words, at, word & ~(1 << number % 64))
    return bytes(words)


class Relay:
    """Listens in `folder`. Forwards one client's messages to the daemon at `daemon`, and its answers back."""

    def __init__(self, folder: str, daemon: str):
        self.address, self._daemon = os.path.join(folder, "relay.sock"), daemon
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.address)
        self._listener.listen(1)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        daemon.connect(self._daemon)
        threading.Thread(target=self._pass, args=(client, daemon, False), daemon=True).start()
        self._pass(daemon, client, True)

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, first_is_welcome: bool) -> None:
        while True:
            message, fds, _, _ = socket.recv_fds(source, 1 << 16, 16)
            if not message:
                break
            if first_is_welcome:
                message, first_is_welcome = without(message, UNKNOWN), False
            socket.send_fds(target, [message], fds)
            for fd in fds:
                os.close(fd)
        target.shutdown(socket.SHUT_RDWR)


class OlderDaemon(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        program = os.environ.get("XPUD_DAEMON") or str(pathlib.Path(__file__).parents[3] / "build/release/bin/xpud")
        address = os.path.join(cls.folder.name, "xpud.sock")
        ready, child = os.pipe()
        cls.daemon = subprocess.Popen([program, "--socket", address, "--device", "cpu", "--ready-fd", str(child)], pass_fds=[child],
                                      stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.daemon.wait)
        cls.addClassCleanup(cls.daemon.terminate)
        os.close(child)
        with os.fdopen(ready, "rb") as pipe:
            assert pipe.read(1), "the daemon did not start"
        cls.xpuctl = (str(pathlib.Path(program).parent / "xpuctl"), "-o", "json", "--address", address)
        os.environ["XPUD_ADDRESS"] = Relay(cls.folder.name, address).address

    def test_what_it_lacks_falls_back(self):
        import torch
        import torch_xpud  # noqa: F401
        x = torch.randn(3, 5)
        y = x.to("xpud")
        for run in (lambda t: t.cumsum(1), lambda t: torch.softmax(t, 0), torch.cos, lambda t: t.clone().cos_(), torch.sin,
                    torch.nonzero):
            with self.subTest(run):
                torch.testing.assert_close(run(y).cpu(), run(x))
        counts = torch.xpud.fallback_counts()
        self.assertEqual({name for name in counts if counts[name]},
                         {"aten::cumsum", "aten::_softmax", "aten::cos", "aten::cos_", "aten::nonzero"})

    def asked(self, *words: str) -> dict:
        return json.loads(subprocess.run([*self.xpuctl, *words], check=True, capture_output=True, text=True).stdout)

    def test_it_is_not_told_of_ranges(self):
        import torch
        import torch_xpud  # noqa: F401
        x = torch.ones(3, device="xpud")
        torch.xpud.range_push("step")
        y = (x + 1).cpu()
        torch.xpud.range_pop()
        self.assertEqual(y.tolist(), [2, 2, 2])
        session, = self.asked("ps")["sessions"]
        flight, = self.asked("flight", str(session["id"]), "-n", "0")["flights"]
        done = {command["op"] for command in flight["commands"]}
        self.assertIn("add.Tensor", done)
        self.assertNotIn("range", done)

    def test_it_is_not_told_of_loop_kernels(self):
        import torch
        import torch_xpud
        from test_loop_kernel import scaled
        self.assertFalse(torch_xpud._C.loop_kernels_supported())
        x = torch.ones(3, device="xpud")
        with self.assertRaisesRegex(NotImplementedError, "does not know xpud::loop.*torch._dynamo.reset"):
            scaled()([x], [x, 2.0], [3])
        self.assertEqual((x + 1).tolist(), [2, 2, 2])

    def test_without_attention_for_training_the_math_path_trains(self):
        import torch
        import torch.nn.functional as F
        import torch_xpud  # noqa: F401
        tensors = [torch.randn(1, 2, 5, 4) for _ in range(3)]
        results = []
        for device in ("cpu", "xpud"):
            leaves = [each.detach().to(device).requires_grad_() for each in tensors]
            F.scaled_dot_product_attention(*leaves, is_causal=True).square().sum().backward()
            results.append([leaf.grad.cpu() for leaf in leaves])
        torch.testing.assert_close(results[1], results[0])
        dropped = F.scaled_dot_product_attention(*(each.to("xpud") for each in tensors), dropout_p=0.5)
        self.assertTrue(dropped.isfinite().all())


if __name__ == "__main__":
    unittest.main()
