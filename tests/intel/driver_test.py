"""The daemon with Intel's driver, alone and beside ours. No value is computed on its device: see README.md."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from harness import BINARIES, Client, Daemon  # noqa: E402

OURS = BINARIES.parent / "lib/libze_xpud.so"
LIBRARIES = ROOT / "build/intel/usr/lib/x86_64-linux-gnu"
INTELS = LIBRARIES / "libze_intel_gpu.so.1"
# Commands are written to a file in the working folder, for a Tiger Lake of one slice.
WITHOUT_HARDWARE = {"NEOReadDebugKeys": "1", "SetCommandStreamReceiver": "1", "ProductFamilyOverride": "tgllp", "HardwareInfoOverride": "1x2x16"}

CALLS = """
x = torch.rand(64, 64).to("xpud")
half, i = x.half(), torch.arange(64).to("xpud")
for name, call in {
    "element-wise": lambda: (x + 1) * half.exp(), "in doubles": lambda: torch.atan(x), "drawn": lambda: torch.randn(64, device="xpud"),
    "a null operand": lambda: torch.cat([x, x]), "float64": lambda: x.double() * 2, "sums": lambda: x.sum(0) + x.mean(), "scan": lambda: x.cumsum(1),
    "softmax": lambda: half.softmax(1), "index": lambda: x[i], "loss": lambda: torch.nn.functional.cross_entropy(x, i), "sort": lambda: x.sort(1),
    "ctc": lambda: torch.nn.functional.ctc_loss(x.view(16, 4, 64).log_softmax(2), i.view(4, 16)[:, :8] + 1, [16] * 4, [8] * 4),
}.items():
    call()
    torch.xpud.synchronize()
    say(name)
say("done")
"""


class IntelsDriver(unittest.TestCase):
    def daemon(self, libraries, device):
        folder = tempfile.TemporaryDirectory(prefix="xpud-intel-")
        self.addCleanup(folder.cleanup)
        env = WITHOUT_HARDWARE | {"LD_LIBRARY_PATH": str(LIBRARIES), "ZE_ENABLE_ALT_DRIVERS": ",".join(map(str, libraries))}
        before = os.getcwd()
        os.chdir(folder.name)  # for the file of commands
        self.addCleanup(os.chdir, before)
        with mock.patch.dict("os.environ", env):
            daemon = Daemon(BINARIES, pathlib.Path(folder.name, "log"), "--device", device, "--confine", "off", "--executor", "thread")
        self.addCleanup(daemon.close)
        return daemon

    def client(self, daemon, code):
        client = Client(code, {"XPUD_ADDRESS": str(daemon.address)})
        self.addCleanup(client.kill)
        return client

    def test_alone_runs_calls(self):
        daemon = self.daemon([INTELS], "intel")
        self.assertEqual([d["vendor"] for d in daemon.devices()], ["intel"])
        client = self.client(daemon, CALLS)
        while client.hear() != "done":
            pass

    def test_beside_ours_the_cpu_computes(self):
        daemon = self.daemon([OURS, INTELS], "cpu")
        self.assertEqual([d["vendor"] for d in daemon.devices()], ["cpu"])
        client = self.client(daemon, "x = torch.arange(12.).view(3, 4); say(torch.equal((x.to('xpud') @ x.to('xpud').T).cpu(), x @ x.T))")
        self.assertEqual(client.hear(), "True")

    def test_beside_ours_one_daemon_has_both(self):
        daemon = self.daemon([OURS, INTELS], "auto")
        self.assertEqual(sorted(d["vendor"] for d in daemon.devices()), ["cpu", "intel"])
        client = self.client(daemon, """
for i in range(2): (torch.ones(4, device=f"xpud:{i}") + 1).sum().item()
say(torch.xpud.device_count())
""")
        self.assertEqual(client.hear(), "2")


if __name__ == "__main__":
    unittest.main()
