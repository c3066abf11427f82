"""Remote clients over a real network stack: a daemon and its gateway in one network namespace, a client in another, and between them a line with delays,
losses or cuts."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = ROOT / "build/release/bin"
sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon, Gateway  # noqa: E402
from network import Network, why_not  # noqa: E402


class Client:
    def __init__(self, network: Network, environment: dict[str, str]):
        self._process = subprocess.Popen([*network.within("here"), sys.executable, ROOT / "tests/network/client.py"], text=True, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT / "build/release/lib")} | environment)

    def run(self, work: str, amount: int):
        self.start(work, amount)
        return self.answer()

    def start(self, work: str, amount: int) -> None:
        print(work, amount, file=self._process.stdin, flush=True)

    def answer(self):
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@unittest.skipIf(why_not(), why_not())
class OverANetwork(unittest.TestCase):
    def open(self, rtt_ms: float, loss_percent: float = 0, **environment: str) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xpud-test-")))
        self.network = stack.enter_context(contextlib.closing(Network(BINARIES, rtt_ms, loss_percent)))
        self.daemon = stack.enter_context(contextlib.closing(Daemon(BINARIES, folder / "log", "--device", "cpu")))
        gateway = Gateway(BINARIES, self.daemon, folder, Network.THERE, self.network.within("there"))
        stack.enter_context(contextlib.closing(gateway))
        self.client = Client(self.network, gateway.environment | environment)
        stack.enter_context(contextlib.closing(self.client))

    def test_it_computes_the_same_whatever_the_delay(self) -> None:
        for rtt_ms in (0.1, 5, 50):
            with self.subTest(rtt_ms=rtt_ms):
                self.open(rtt_ms)
                self.assertIs(self.client.run("copies", 8), True)
                self.assertGreaterEqual(self.client.run("read", 5), rtt_ms / 1000, "there is no such network")

    def test_what_is_lost_on_the_way_is_nobodys_concern(self) -> None:
        for rtt_ms in (0.1, 5, 50):
            with self.subTest(rtt_ms=rtt_ms):
                self.open(rtt_ms, loss_percent=1)
                self.assertIs(self.client.run("copies", 2), True)
                self.assertGreater(self.client.run("commands", 2000), 0)

    def test_only_reading_waits_for_an_answer(self) -> None:
        """2,000 commands take about one round trip of 50 ms, not thousands; the limit of 20 allows for a busy machine."""
        self.open(50)
        took = self.client.run("commands", 2000)
        self.assertGreater(took, 0.05)
        self.assertLess(took, 20 * 0.05)

    def test_a_line_that_is_dead_for_a_while_costs_time_only(self) -> None:
        self.open(5)
        self.assertIs(self.client.run("copies", 1), True)
        self.network.set_up(False)
        self.client.start("copies", 2)
        time.sleep(2)
        self.network.set_up(True)
        self.assertIs(self.client.answer(), True)
        self.assertEqual(self.daemon.status()["daemon"]["sessions_opened"], 1)

    @unittest.skipUnless(os.environ.get("XPUD_TEST_FULL"), "takes 25 s: tools/test --full")
    def test_a_client_comes_back_to_its_session(self) -> None:
        """The connection stays dead until both ends have given it up, within 15 s."""
        self.open(5, XPUD_RECONNECT_SECONDS="40")
        self.assertIs(self.client.run("copies", 1), True)
        self.network.set_up(False)
        self.client.start("copies", 2)
        time.sleep(20)
        self.network.set_up(True)
        self.assertIs(self.client.answer(), True)
        self.assertEqual(self.daemon.status()["daemon"]["sessions_opened"], 1)

    @unittest.skipUnless(os.environ.get("XPUD_TEST_FULL"), "takes 20 s: tools/test --full")
    def test_a_dead_line_is_an_error_in_time(self) -> None:
        self.open(5)
        self.assertIs(self.client.run("copies", 1), True)
        self.network.set_up(False)
        start = time.monotonic()
        self.assertIn("was lost", self.client.run("copies", 2))
        self.assertLess(time.monotonic() - start, 30)
        end = time.monotonic() + 20
        while self.daemon.sessions() and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(self.daemon.sessions(), [])


if __name__ == "__main__":
    unittest.main()
