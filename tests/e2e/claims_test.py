"""Claims: what is granted at a door, kept over restarts, and taken away again."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from harness import BINARIES, Daemon, wait_until

MIB = 1 << 20
# Says the device's memory and the number of devices, then answers each line with a sum.
CLIENT = """
import sys, numpy, xpud
def say(*words): print(*words, flush=True)
try:
    devices = xpud.default_session().devices
    say(len(devices), [device.total_memory for device in devices])
    held = xpud.asarray(numpy.ones(1 << 20, numpy.float32))
    for line in sys.stdin: say(int(held.numpy().sum()))
except Exception as error:
    say("error:", error)
"""


class Client:
    """A process that comes in at a door and holds 4 MiB."""

    def __init__(self, socket: pathlib.Path, prefix: tuple = (), program: str = CLIENT):
        env = os.environ | {"PYTHONPATH": str(BINARIES.parent / "lib")}
        env = {key: value for key, value in env.items() if key != "XPUD_ADDRESS"} | ({"XPUD_ADDRESS": str(socket)} if socket else {})
        self.process = subprocess.Popen([*prefix, sys.executable, "-c", program], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.greeting = self.hear()

    def hear(self) -> str:
        return self.process.stdout.readline().rstrip("\n")

    def sum(self) -> str:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class ClaimTest(unittest.TestCase):
    FLAGS: tuple[str, ...] = ("--test-devices", "2")

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-claims-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.state = self.folder / "state"
        self.daemon = Daemon(BINARIES, self.folder / "log", "--device", "cpu", "--state-dir", str(self.state), *self.FLAGS)
        self.addCleanup(self.daemon.close)
        self.home = pathlib.Path(self.daemon.address).parent

    def ask(self, *words: str) -> str:
        return self.daemon.ask("claim", *words)

    def refusal(self, *words: str) -> str:
        """What xpuctl says of what the daemon refuses."""
        done = subprocess.run([BINARIES / "xpuctl", "--address", self.daemon.address, "claim", *words], capture_output=True, text=True, timeout=30)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        return done.stderr.split(" says: ")[-1].rstrip("\n")

    def claims(self) -> dict[str, dict]:
        return {claim["key"]: claim for claim in json.loads(self.ask("-o", "json"))["claims"]}

    def door(self, key: str, folder: str = "claims") -> pathlib.Path:
        return self.home / folder / key / "xpud.sock"

    def client(self, *arguments, **options) -> Client:
        client = Client(*arguments, **options)
        self.addCleanup(client.end)
        return client

    def events(self, kind: str) -> list[dict]:
        lines = self.daemon.ask("events", "-o", "jsonl").splitlines()
        return [event for event in map(json.loads, lines) if event["kind"] == kind]


class Doors(ClaimTest):
    def test_who_comes_by_a_door_has_its_claim(self):
        self.assertEqual(self.ask("create", "web", "--device", "1", "--memory", "..64MiB", "--sessions", "2", "--label", "pod=web-7"),
                         f"web: created, kept; mount {self.home}/claims/web over the clients' /run/xpud\n")
        first, second = self.client(self.door("web")), self.client(self.door("web"))
        self.assertEqual(first.greeting, f"1 [{64 * MIB}]")  # device 1 of the daemon is its device 0
        self.assertEqual([first.sum(), second.sum()], ["1048576"] * 2)
        self.assertIn("the claim web has 2 sessions; 2 are allowed", self.client(self.door("web")).greeting)
        sessions = self.daemon.sessions()
        self.assertEqual({session["claim"] for session in sessions}, {"web"})
        self.assertEqual({session["uid"] for session in sessions}, {os.geteuid()})
        self.assertEqual({device["index"] for session in sessions for device in session["devices"]}, {1})
        self.assertEqual(self.claims()["web"]["memory_bytes"], 8 * MIB)
        self.assertEqual(self.client(self.daemon.address).greeting.split()[0], "2")  # others see all

    def test_the_limit_of_memory_is_met_where_the_client_allocates(self):
        self.ask("create", "small", "--memory", "..6MiB")
        first = self.client(self.door("small"))
        self.assertEqual(first.sum(), "1048576")
        self.assertRegex(self.client(self.door("small")).hear(), "out of memory")
        self.ask("set", "small", "--memory", "..64MiB")  # live
        self.assertEqual(self.client(self.door("small")).sum(), "1048576")

    def test_a_container_keeps_its_door_over_a_restart(self):
        self.ask("create", "web")
        folder = self.door("web").parent
        inode = folder.stat().st_ino
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(folder.stat().st_ino, inode)
        self.assertEqual(self.client(self.door("web")).sum(), "1048576")
        self.daemon.kill()
        (self.state / "claims/web.claim").unlink()
        self.daemon.start()
        self.assertEqual((folder.stat().st_ino, self.claims()), (inode, {}))
        self.ask("create", "web")
        self.assertEqual(folder.stat().st_ino, inode)
        self.assertEqual(self.client(self.door("web")).sum(), "1048576")

    @unittest.skipUnless(subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0, "no mount namespaces here")
    def test_an_unmodified_container_has_the_claim(self):
        self.ask("create", "web", "--device", "1")
        mounted = f'mount -t tmpfs none /run && mkdir /run/xpud && mount --bind {self.door("web").parent} /run/xpud && exec "$@"'
        client = self.client(None, prefix=("unshare", "--mount", "sh", "-c", mounted, "sh"))
        self.assertEqual((client.greeting.split()[0], client.sum()), ("1", "1048576"))
        self.assertEqual(self.claims()["web"]["sessions"], 1)


class Life(ClaimTest):
    def test_the_same_again_is_fine_and_another_is_named(self):
        words = ("create", "web", "--weight", "300", "--label", "pod=web-7")
        self.assertEqual(self.ask(*words), self.ask(*words))
        self.assertEqual(self.refusal("create", "web", "--weight", "200"), "there is a claim web with another weight, labels")
        self.assertEqual(len(self.events("claim_created")), 1)

    def test_changes_are_live_and_kept(self):
        self.ask("create", "night", "--class", "batch", "--time", "..50%")
        self.assertEqual(self.ask("set", "night", "--weight", "50", "--time", "..30%"), "night: weight 100 to 50, time ..50% to ..30%\n")
        self.assertEqual(self.ask("set", "night", "--weight", "50"), "night: no change\n")
        self.daemon.kill()
        self.daemon.start()
        claim = self.claims()["night"]
        self.assertEqual((claim["class"], claim["weight"], claim["time_most"], claim["kept"]), ("batch", 50, 3000, True))

    def test_a_paused_claim_waits_and_a_drained_one_takes_nobody(self):
        self.ask("create", "night")
        client = self.client(self.door("night"))
        client.sum()
        self.assertEqual(self.ask("drain", "night"), "night: no new sessions; 1 is open (undo both: claim resume)\n")
        self.assertIn("is drained", self.client(self.door("night")).greeting)
        self.assertEqual(client.sum(), "1048576")
        self.assertEqual(self.ask("pause", "night"), "night: paused; 1 session waits, 4.0 MiB stay\n")
        client.process.stdin.write("\n")
        client.process.stdin.flush()
        with self.assertRaises(subprocess.TimeoutExpired):
            client.process.wait(0.5)
        self.assertEqual(self.ask("resume", "night"), "night: resumed; 1 session goes on\n")
        self.assertEqual(client.hear(), "1048576")

    def test_a_deleted_claim_ends_its_sessions_and_frees_their_memory(self):
        self.ask("create", "night")
        client, other = self.client(self.door("night")), self.client(self.daemon.address)
        client.sum()
        self.assertEqual(self.ask("delete", "night"), "night: deleted; 1 session ended, 4.0 MiB freed\n")
        self.assertIn("its claim night was deleted", client.sum())
        self.assertEqual(other.sum(), "1048576")
        self.assertEqual(self.claims(), {})
        self.assertFalse(self.door("night").parent.exists())
        self.assertEqual(list((self.state / "claims").iterdir()), [])
        self.assertEqual(self.refusal("delete", "night"), "there is no claim night")

    def test_a_claim_ends_when_its_time_is_over(self):
        self.ask("create", "brief", "--lifetime", "2s")
        client = self.client(self.door("brief"))
        client.sum()
        wait_until(lambda: not self.claims(), 10)
        self.assertIn("its claim brief has expired", client.sum())
        self.assertEqual([event["claim"] for event in self.events("claim_expired")], ["brief"])

    def test_files_that_cannot_be_read_stay_and_the_others_serve(self):
        self.ask("create", "good")
        self.ask("create", "bad")
        self.daemon.kill()
        path = self.state / "claims/bad.claim"
        path.write_text(edited := path.read_text().replace("100", "900"))
        self.daemon.start()
        self.assertEqual(list(self.claims()), ["good"])
        self.assertIn("bad.claim: its sum is wrong", self.events("claim_unreadable")[0]["text"])
        self.assertIn("is in the way, which cannot be read", self.refusal("create", "bad"))
        self.assertEqual(path.read_text(), edited)

    def test_a_daemon_that_is_killed_leaves_the_old_or_the_new(self):
        self.ask("create", "web", "--weight", "1")
        for weight in range(2, 12):
            change = subprocess.Popen([BINARIES / "xpuctl", "--address", self.daemon.address, "claim", "set", "web", "--weight", str(weight)],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if weight % 2:
                change.wait(10)
            before = weight if weight % 2 else weight - 1
            self.daemon.kill()
            change.wait(10)
            self.daemon.start()
            self.assertIn(self.claims()["web"]["weight"], (before, weight))
            self.ask("set", "web", "--weight", str(weight))


class Guarantees(ClaimTest):
    FLAGS = ()

    def test_memory_is_kept_for_a_claim(self):
        total = self.daemon.devices()[0]["memory_total_bytes"]
        least = total // 2 // MIB
        self.ask("create", "web", "--memory", f"{least}MiB..")
        code = f"import xpud, numpy\ntry: xpud.empty(({total * 3 // 5},), dtype='uint8'); print('had it')\nexcept Exception as error: print(error)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                              env=os.environ | {"PYTHONPATH": str(BINARIES.parent / "lib"), "XPUD_ADDRESS": str(self.daemon.address)})
        self.assertIn("out of memory", done.stdout, done)
        self.assertEqual(self.client(self.door("web")).sum(), "1048576")
        self.assertRegex(self.refusal("create", "more", "--memory", f"{least * 6 // 5}MiB.."),
                         r"device 0: [\d.]+ GiB are wanted, and [\d.]+ GiB can be guaranteed: of [\d.]+ GiB, claims are guaranteed")

    def test_time_is_guaranteed_up_to_95_percent(self):
        self.ask("create", "a", "--time", "60%..")
        self.assertEqual(self.refusal("create", "b", "--time", "35.01%.."),
                         "device 0: 35.01% of its time are wanted, and claims are guaranteed 60% of 95%")
        self.ask("create", "b", "--time", "35%..")


class BadInput(ClaimTest):
    FLAGS = ()

    def test_is_refused_with_what_is_allowed(self):
        for words, reason in {
            ("Web",): 'key "Web"; it may have 1 to 63 lower-case letters, digits and . _ -, and begins with a letter or a digit',
            ("web", "--class", "fast"): 'class "fast"; it may be realtime, interactive or batch',
            ("web", "--weight", "10001"): "weight 10001; it may be 1 to 10000",
            ("web", "--device", "3"): "there is no device 3; there are 1, from 0",
            ("web", "--time", "50%..40%"): "time 50%..40%: least is above most",
            ("web", "--time", "..101%"): "time 0%..101%; least may be 0% to 100%, most 0.01% to 100%",
            ("web", "--memory", "2MiB..1MiB"): "memory 2097152..1048576 bytes: least is above most",
            ("web", "--sessions", "0"): "0 sessions; it may be 1 to 1024",
            ("web", "--label", "a b=c"): 'label name "a b"; it may have 1 to 63 letters, digits and . _ / -',
        }.items():
            with self.subTest(words=words):
                self.assertEqual(self.refusal("create", *words), reason)
        self.assertEqual(self.claims(), {})

    def test_a_state_folder_that_others_may_write_ends_the_start(self):
        self.daemon.kill()
        self.state.chmod(0o777)
        with self.assertRaisesRegex(RuntimeError, "state-dir: .* only its owner may write there"):
            self.daemon.start()

    def test_a_full_state_folder_refuses_the_change(self):
        self.ask("create", "web", "--weight", "1")
        resource = subprocess.run(["prlimit", "--fsize=0", "--pid", str(self.daemon.pid)], capture_output=True)
        if resource.returncode != 0:
            self.skipTest("prlimit cannot make writing fail here")
        self.assertIn("cannot write", self.refusal("set", "web", "--weight", "2"))
        self.assertEqual(self.claims()["web"]["weight"], 1)


class Churn(ClaimTest):
    FLAGS = ()

    def test_many_claims_come_and_go_and_leave_nothing(self):
        def state() -> tuple[int, int]:
            status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
            resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
            return resident, len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

        def churn(rounds: int) -> None:
            for i in range(rounds):
                self.ask("create", f"pod-{i}", "--memory", "1MiB..64MiB")
                if i % 10 == 0:
                    self.client(self.door(f"pod-{i}")).sum()
                self.ask("delete", f"pod-{i}")

        churn(20)
        before = state()
        churn(60)
        after = state()
        self.assertEqual(after[1], before[1])
        self.assertLess(after[0] - before[0], 4096)  # KiB
        self.assertEqual(list((self.home / "claims").iterdir()), [])


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    unittest.main()
