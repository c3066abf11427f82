"""Sessions that lower themselves among those of their user, with real clients that share a device."""

import subprocess
import time
import unittest

from harness import BINARIES, DaemonTest

RUNS_ALONE = True  # it measures what parts of a device's time sessions get

# Two rounds of long commands are always queued, also while the program waits for a processor that the device's threads use.
LOOP = """
x = torch.rand(512, 512, device='xpud'); x.cpu(); say('ready'); sys.stdin.readline()
rounds = []
while True:
    for _ in range(20): y = x @ x
    rounds.append(torch.xpud.Event()); rounds[-1].record()
    if len(rounds) > 2: rounds.pop(0).synchronize()
"""


class Nice(DaemonTest):
    FLAGS = ("--device", "cpu")

    def xpuctl(self, *arguments: object) -> subprocess.CompletedProcess:
        command = [BINARIES / "xpuctl", "--address", self.daemon.address, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    def session_of(self, client) -> dict:
        return next(session for session in self.daemon.sessions() if session["pid"] == client.process.pid)

    def ratio(self, lowered, other, seconds: float = 4) -> float:
        """Returns the device time of one session over that of the other."""
        before = [self.session_of(client)["busy_ns"] for client in (lowered, other)]
        time.sleep(seconds)
        after = [self.session_of(client)["busy_ns"] for client in (lowered, other)]
        return (after[0] - before[0]) / (after[1] - before[1])

    def test_a_lowered_session_gets_a_fifth_less_for_each_step(self):
        self.env["XPUD_NICE"] = "10"
        lowered = self.client(LOOP)
        self.env["XPUD_NICE"] = ""
        other = self.client(LOOP)
        for client in (lowered, other):
            client.hear()
        self.assertEqual((self.session_of(lowered)["nice"], self.session_of(other).get("nice", 0)), (10, 0))
        for client in (lowered, other):
            client.tell()
        time.sleep(1)
        self.assertLess(self.ratio(lowered, other), 0.107 * 2)
        set_back = self.xpuctl("nice", self.session_of(lowered)["id"], 0)
        self.assertEqual(set_back.stdout, f"session {self.session_of(lowered)['id']}: nice 10 to 0\n", set_back.stderr)
        time.sleep(1)
        self.assertGreater(self.ratio(lowered, other), 0.5)

    def test_a_session_lowers_itself_and_never_raises(self):
        client = self.client("""
torch.xpud.set_nice(3)
torch.zeros(1, device='xpud').cpu()
for wrong in (2, -1, 20):
    try: torch.xpud.set_nice(wrong)
    except ValueError as error: say(error)
sys.stdin.readline()
torch.zeros(1, device='xpud').cpu(); say('lives')
""")
        self.assertIn("nice 2 would raise the session, whose nice is 3; it can only lower itself: use 3 to 19", client.hear())
        self.assertIn("nice -1 is not allowed; use 0 to 19", client.hear())
        self.assertIn("nice 20 is not allowed; use 0 to 19", client.hear())
        number = self.session_of(client)["id"]
        self.assertEqual(self.session_of(client)["nice"], 3)
        self.assertEqual(self.xpuctl("nice", number, 5).stdout, f"session {number}: nice 3 to 5\n")
        self.assertIn("NICE", self.xpuctl("ps", "-o", "wide").stdout)
        client.tell()
        self.assertEqual(client.hear(), "lives")

    def test_mistakes_are_named(self):
        for arguments, text in (((), "it takes the number of a session"), (("7", "x"), "0 to 19"), (("7", "5"), "there is no session 7"),):
            failed = self.xpuctl("nice", *arguments)
            self.assertNotEqual(failed.returncode, 0)
            self.assertIn(text, failed.stderr)
        self.env["XPUD_NICE"] = "20"
        status, _, error = self.client("torch.zeros(1, device='xpud')").finish()
        self.assertNotEqual(status, 0)
        self.assertIn("XPUD_NICE is '20'; use 0 to 19", error)


if __name__ == "__main__":
    unittest.main()
