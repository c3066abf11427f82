"""xpuctl profile and xpuctl flight, with real clients that are not restarted."""

import collections
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from harness import BINARIES, DaemonTest, stop, wait_until

# Runs `x @ x` and a copy to the host, as often as each line that it is told says.
WORKER = """
x = xpud.random.uniform((64, 64)); x.numpy(); say('ready')
for line in sys.stdin:
    for _ in range(int(line)): (x @ x).numpy()
    say('done')
"""


class TraceTest(DaemonTest):
    FLAGS = ("--device", "cpu")

    def run_xpuctl(self, *words) -> subprocess.CompletedProcess:
        return subprocess.run([BINARIES / "xpuctl", "--address", self.daemon.address, *map(str, words)], capture_output=True, text=True, timeout=60)

    def xpuctl(self, *words) -> str:
        answer = self.run_xpuctl(*words)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""), words)
        return answer.stdout

    def worker(self):
        client = self.light_client(WORKER)
        client.hear()
        return client, next(session["id"] for session in self.daemon.sessions() if session["pid"] == client.process.pid)

    @staticmethod
    def work(client, times: int) -> None:
        client.tell(str(times))
        assert client.hear() == "done"


# Begins as many ranges as each line says, each with a name of its own.
RANGES = """
x = torch.rand(8, device='xpud'); x.cpu(); say('ready')
for line in sys.stdin:
    for i in range(int(line)):
        with torch.xpud.ranges.range(f'r{i}'): x + 1
    torch.xpud.synchronize(); say('done')
"""


class LongProfileTest(TraceTest):
    """What is read in many pieces."""

    def test_each_command_has_its_own_name(self):
        client = self.client(RANGES)
        client.hear()
        session = self.daemon.sessions()[0]["id"]
        self.xpuctl("profile", "start", session)
        self.work(client, 3000)
        self.xpuctl("profile", "stop", session)
        profile, = json.loads(self.xpuctl("profile", "save", session, "-", "-o", "json"))["sessions"]
        named = [command["range"] for command in profile["commands"] if command.get("range")]
        self.assertEqual(named, [f"r{i}" for i in range(3000)])
        flight, = json.loads(self.xpuctl("flight", session, "-n", "0", "-o", "json"))["flights"]
        sequences = [command["sequence"] for command in flight["commands"]]
        self.assertGreater(len(sequences), 6000)
        self.assertEqual(sequences, list(range(sequences[0], sequences[0] + len(sequences))))


class ExecutorProfileTest(TraceTest):
    FLAGS = ("--device", "cpu", "--executor", "process")

    def test_what_an_executor_process_does_has_its_track(self):
        client, session = self.worker()
        self.xpuctl("profile", "start", session)
        self.work(client, 50)
        self.xpuctl("profile", "stop", session)
        events = json.loads(self.xpuctl("profile", "save", session, "-o", "chrome", "-"))["traceEvents"]
        names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
        appends = [event for event in events if event["ph"] == "X" and event["cat"] == "append"]
        self.assertEqual(len([event for event in appends if event["name"] == "mm"]), 50)
        self.assertRegex(names[appends[0]["tid"]], r"executor, queue \d+: .*")
        kernels = {event["args"]["correlation"]: event for event in events if event["ph"] == "X" and event["cat"] == "kernel"}
        for append in appends:
            if append["name"] == "mm":
                self.assertLessEqual(append["ts"], kernels[append["args"]["correlation"]]["ts"])


class ProfileTest(TraceTest):
    def saved(self, *words) -> dict:
        return json.loads(self.xpuctl("profile", "save", *words, "-"))

    def test_a_trace_has_each_command_in_its_place(self):
        client, session = self.worker()
        self.xpuctl("profile", "start", session)
        before = self.daemon.sessions()[0]["busy_ns"]
        self.work(client, 50)
        self.xpuctl("profile", "stop", session)
        busy = self.daemon.sessions()[0]["busy_ns"] - before
        self.work(client, 10)  # not recorded
        events = self.saved(session, "-o", "chrome")["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        kernels = [event for event in slices if event["cat"] == "kernel"]
        self.assertEqual(len([event for event in kernels if event["args"]["op"] == "mm"]), 50)
        self.assertEqual(kernels[0]["args"]["shapes"], "float32[64,64] = float32[64,64], float32[64,64]")
        self.assertEqual(len([event for event in slices if event["cat"] == "copy"]), 50)
        self.assertLessEqual(sum(event["dur"] for event in kernels) * 1e3, busy)
        tracks = collections.defaultdict(list)
        for event in slices:
            tracks[event["pid"], event["tid"]].append(event)
        for track in tracks.values():
            for one, other in zip(track, track[1:]):
                self.assertLessEqual(one["ts"] + one["dur"], other["ts"] + 0.0011, "slices of a track overlap")
        flows = collections.defaultdict(list)
        for event in events:
            if event["ph"] in "stf":
                flows[event["id"]].append((event["ts"], event["ph"]))
        self.assertEqual(len(flows), 100)
        parts = collections.Counter("".join(phase for _, phase in sorted(flow, key=lambda each: each[0])) for flow in flows.values())
        self.assertEqual(set(parts) - {"sf"}, {"stf"}, "from the client by the daemon to the device; the first may come without the client")
        self.assertGreater(parts["stf"], 95)
        self.assertGreater(len([event for event in slices if event["cat"] == "publish"]), 45)
        names = {event["args"]["name"] for event in events if event["ph"] == "M"}
        self.assertTrue(any(name.startswith("device 0: ") for name in names), names)

    def test_ranges_that_the_program_names(self):
        client = self.client("x = torch.rand(64, 64, device='xpud'); x.cpu(); say('ready'); sys.stdin.readline()\n"
                             "with torch.xpud.ranges.range('step {}', 7):\n"
                             "    torch.xpud.range_push('product'); y = x @ x; torch.xpud.range_pop(); y.cpu()\n"
                             "say('done'); sys.stdin.readline()")
        client.hear()
        session, = self.daemon.sessions()
        self.xpuctl("profile", "start", session["id"])
        client.tell()
        client.hear()
        events = [event for event in self.saved(session["id"], "-o", "chrome")["traceEvents"] if event["ph"] == "X"]
        ranges = {event["name"]: event for event in events if event["cat"] == "range"}
        self.assertEqual(set(ranges), {"step 7", "product"})
        product, = (event for event in events if event["cat"] == "kernel")

        def inside(one, other):
            return other["ts"] <= one["ts"] and one["ts"] + one["dur"] <= other["ts"] + other["dur"]
        self.assertTrue(inside(ranges["product"], ranges["step 7"]))
        self.assertTrue(inside(product, ranges["product"]), (product, ranges))

    def test_stats_sum_up_by_op_and_kernel(self):
        client, session = self.worker()
        self.xpuctl("profile", "start", session)
        self.work(client, 20)
        stats = json.loads(self.xpuctl("profile", "stats", session, "-o", "json"))
        products = [row for row in stats["rows"] if row["op"] == "mm"]  # the first may have a kernel of its own
        totals = tuple(sum(row[field] for row in products) for field in ("calls", "bytes", "operations"))
        self.assertEqual(totals, (20, 20 * 3 * 64 * 64 * 4, 20 * 64**3))
        self.assertEqual(sum(row["device_ns"] for row in stats["rows"]), stats["device_ns"])
        self.assertLessEqual(stats["device_ns"], stats["span_ns"])
        self.assertIn("mm", self.xpuctl("profile", "stats", session))

    def test_the_newest_commands_are_kept(self):
        client, session = self.worker()
        self.xpuctl("profile", "start", session, "--commands", 10)
        self.work(client, 30)
        profile, = json.loads(self.xpuctl("profile", "list", "-o", "json"))["profiles"]
        self.assertEqual((profile["commands"], profile["session"], profile["running"]), (10, session, True))
        self.assertGreater(profile["overwritten"], 50)
        data, = self.saved(session, "-o", "json")["sessions"]
        sequences = [command["sequence"] for command in data["commands"]]
        self.assertEqual(sequences, list(range(sequences[0], sequences[0] + 10)))
        self.assertEqual(sequences[-1], self.daemon.sessions()[0]["commands_submitted"])

    def test_all_sessions_those_to_come_and_those_that_ended(self):
        self.assertEqual(self.xpuctl("profile", "start", "--all"), "profiling 0 sessions, and those to come\n")
        client, session = self.worker()
        client.process.stdin.close()
        client.process.wait(30)
        wait_until(lambda: not self.daemon.sessions(), 5)
        data, = self.saved("--all", "-o", "json")["sessions"]
        self.assertEqual((data["info"]["session"], data["info"]["ended"]), (session, True))
        self.assertEqual(data["commands"][0]["sequence"], 1)
        self.xpuctl("profile", "stop", "--all")
        other, other_session = self.worker()
        self.assertNotIn(other_session, [each["session"] for each in json.loads(self.xpuctl("profile", "list", "-o", "json"))["profiles"]])

    def test_a_session_that_comes_beside_a_profiled_one_says_when_it_publishes(self):
        self.xpuctl("profile", "start", "--all")
        for _ in range(2):
            client, session = self.worker()
            self.work(client, 20)
            saved, = self.saved(session, "-o", "json")["sessions"]
            products = [command for command in saved["commands"] if command["op"] == "mm"]
            self.assertGreater(sum(command["published"] for command in products), 15)

    def test_a_tenants_sessions(self):
        client, session = self.worker()
        tenant = self.daemon.sessions()[0]["tenant"]
        self.xpuctl("profile", "start", "--tenant", "uid:4000000")
        self.work(client, 1)
        self.assertEqual(json.loads(self.xpuctl("profile", "list", "-o", "json"))["profiles"], [])
        self.xpuctl("profile", "start", "--tenant", tenant)
        self.work(client, 1)
        self.assertEqual(len(self.saved("--tenant", tenant, "-o", "json")["sessions"]), 1)

    def test_it_stops_by_itself(self):
        client, session = self.worker()
        self.xpuctl("profile", "start", session, "--seconds", 0.1)

        def stopped():
            self.work(client, 1)
            profile, = json.loads(self.xpuctl("profile", "list", "-o", "json"))["profiles"]
            return not profile["running"]
        wait_until(stopped, 10)

    def test_others_are_named_as_the_cause_of_a_wait(self):
        one, first = self.worker()
        other, second = self.worker()
        self.xpuctl("profile", "start", "--all")
        for client in (one, other):
            client.tell("3000")
        for client in (one, other):
            client.hear()
        waits = json.loads(self.xpuctl("profile", "stats", "--all", "-o", "json"))["wait_ns"]
        self.assertTrue(any(who.startswith(f"session {first},") for who in waits), waits)
        self.assertTrue(any(who.startswith(f"session {second},") for who in waits), waits)

    def test_wrong_use_is_refused_and_disturbs_nobody(self):
        client, session = self.worker()
        for words, text in ((("profile", "start", 999), "there is no session 999"), (("profile", "save", session, "-"), "none of these sessions was profiled"),
                            (("profile", "start", "--tenant", "alice"), "no tenant 'alice'"),
                            (("profile", "start", session, "--commands", 10**9), "at most 4000000"), (("flight", 999), "session 999 used no device")):
            answer = self.run_xpuctl(*words)
            self.assertEqual((answer.returncode, answer.stdout), (1, ""), words)
            self.assertIn(text, answer.stderr)
        for words in (("profile",), ("profile", "record", session), ("profile", "start"), ("profile", "start", session, "--all"), ("profile", "start", "x"),
                      ("profile", "start", session, "--seconds", "-1"), ("profile", "save"), ("flight",), ("flight", session, "-n", "x")):
            self.assertEqual(self.run_xpuctl(*words).returncode, 2, words)
        self.xpuctl("profile", "start", session)
        self.work(client, 5)
        self.assertIn("No space left on device", self.run_xpuctl("profile", "save", session, "/dev/full").stderr)
        with tempfile.TemporaryDirectory() as folder:
            self.xpuctl("profile", "save", session, pathlib.Path(folder, "trace"))
            self.assertGreater(pathlib.Path(folder, "trace").stat().st_size, 1000)


class FlightTest(TraceTest):
    def flight(self, session: int, *words) -> dict:
        flight, = json.loads(self.xpuctl("flight", session, "-o", "json", *words))["flights"]
        return flight

    def test_says_what_a_session_does(self):
        client, session = self.worker()
        self.work(client, 5)
        flight = self.flight(session)
        self.assertEqual(flight["recorded"], self.daemon.sessions()[0]["commands_submitted"])
        self.assertEqual([command["output"] for command in flight["commands"] if command["op"] == "mm"][-5:], ["float32[64,64]"] * 5)
        self.assertEqual(len(self.flight(session, "-n", 3)["commands"]), 3)
        self.assertEqual(len(self.flight(session, "-n", 0)["commands"]), flight["recorded"])
        self.assertIn("float32[64,64]", self.xpuctl("flight", session))

    def test_says_what_a_killed_client_did_last(self):
        client, session = self.worker()
        self.work(client, 5)
        client.kill()
        wait_until(lambda: not self.daemon.sessions(), 5)
        flight = self.flight(session)
        self.assertEqual(flight["commands"][-1]["sequence"], flight["recorded"])
        self.assertIn("download", [command["op"] for command in flight["commands"]])
        self.assertTrue(flight["ended"])


class MeasuredTest(TraceTest):
    """The device has a process of its own, which says when its work ran."""

    FLAGS = ("--device", "cpu", "--executor", "process")

    def test_times_on_the_device_are_measured(self):
        client, session = self.worker()
        self.work(client, 10)
        self.xpuctl("profile", "start", session)
        self.work(client, 300)  # recorded launches are replayed, too
        self.xpuctl("profile", "stop", session)
        profile, = json.loads(self.xpuctl("profile", "save", session, "-", "-o", "json"))["sessions"]
        commands = [command for command in profile["commands"] if command["began_ns"]]
        self.assertEqual(len([command for command in commands if command["op"] == "mm"]), 300)
        for command in commands:
            self.assertTrue(command["exact"], command)
            self.assertGreater(command["ended_ns"], command["began_ns"])
            self.assertGreaterEqual(command["began_ns"], command["decoded_ns"])
        for one, other in zip(commands, commands[1:]):
            self.assertLessEqual(one["ended_ns"], other["began_ns"])
        self.assertNotIn("estimates", self.xpuctl("profile", "stats", session))

    def test_a_new_executor_measures_too(self):
        client, session = self.worker()
        self.xpuctl("profile", "start", "--all")
        self.work(client, 5)
        executor = self.daemon.status()["devices"][0]["executor_pid"]
        os.kill(executor, signal.SIGKILL)
        wait_until(lambda: self.daemon.status()["devices"][0].get("executor_pid", executor) not in (0, executor), 20)
        self.work(client, 5)
        self.xpuctl("profile", "stop", "--all")
        profile, = json.loads(self.xpuctl("profile", "save", session, "-", "-o", "json"))["sessions"]
        products = [command for command in profile["commands"] if command["op"] == "mm"]
        self.assertEqual(len(products), 10)
        self.assertTrue(all(command["exact"] for command in products[-4:]), products)


class DumpTest(TraceTest):
    FLAGS = ("--device", "cpu", "--executor", "process")

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name, "flights")
        self.FLAGS = (*DumpTest.FLAGS, "--flight-dumps", str(self.folder))
        super().setUp()

    def files(self) -> list[pathlib.Path]:
        return sorted(self.folder.glob("*.json"))

    def test_what_a_crashed_session_did_last(self):
        client, session = self.worker()
        self.work(client, 5)
        executor = self.daemon.status()["devices"][0]["executor_pid"]
        stop(executor)  # so that its work is not done
        client.tell("1")
        wait_until(lambda: self.daemon.sessions()[0]["commands_submitted"] > self.daemon.sessions()[0]["commands_completed"], 10)
        client.kill()
        wait_until(self.files, 10)
        os.kill(executor, signal.SIGCONT)
        file, = self.files()
        self.assertIn(f"-session-{session}-device-0.json", file.name)
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        wait_until(lambda: "flight_dumped" in self.xpuctl("events", "-o", "json"), 5)
        text = self.run_xpuctl("flight", file).stdout
        self.assertIn(f"session {session} ", text)
        self.assertIn("float32[64,64]", text)
        self.assertIn("not known to have ended", text)
        flight, = json.loads(self.xpuctl("flight", file, "-n", 3, "-o", "json"))["flights"]
        self.assertEqual(len(flight["commands"]), 3)
        whole, = json.loads(self.xpuctl("flight", file, "-n", 2**32 - 1, "-o", "json"))["flights"]
        self.assertEqual(len(whole["commands"]), whole["recorded"])
        self.assertGreater(flight["recorded"], flight["completed"])

    def test_the_folder_keeps_the_newest_hundred(self):
        others = self.folder / "notes.json"
        others.write_text("not a dump")
        for i in range(120):
            (self.folder / f"flight-20200101T0000{i // 60:02}{i % 60:02}.000Z-session-1-device-0.json").write_text("{}")
        client, session = self.worker()
        self.work(client, 5)
        executor = self.daemon.status()["devices"][0]["executor_pid"]
        stop(executor)
        client.tell("1")
        wait_until(lambda: self.daemon.sessions()[0]["commands_submitted"] > self.daemon.sessions()[0]["commands_completed"], 10)
        client.kill()
        wait_until(lambda: any(f"-session-{session}-" in file.name and "flight-2020" not in file.name for file in self.files()), 10)
        os.kill(executor, signal.SIGCONT)
        dumps = [file.name for file in self.files() if file != others]
        self.assertEqual(len(dumps), 100)
        self.assertTrue(dumps[0].startswith("flight-20200101T00000021."), "the oldest are gone")
        self.assertEqual(others.read_text(), "not a dump")

    def test_sessions_that_end_well_leave_no_file(self):
        client, session = self.worker()
        self.work(client, 5)
        client.process.stdin.close()
        client.process.wait(30)
        wait_until(lambda: not self.daemon.sessions(), 5)
        self.assertEqual(self.files(), [])

    def refusal(self, folder) -> str:
        answer = subprocess.run([BINARIES / "xpud", "--device", "cpu", "--socket", self.folder / "x.sock", "--flight-dumps", folder],
                                capture_output=True, text=True, timeout=60)
        self.assertNotEqual(answer.returncode, 0)
        return answer.stderr + answer.stdout

    def test_a_folder_in_which_others_may_write_is_refused(self):
        shared = self.folder.parent / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        inside = shared / "flights"
        inside.mkdir(mode=0o700)
        link = self.folder.parent / "link"
        link.symlink_to(shared)
        for folder, found in ((shared, f"{shared} belongs to uid"), (inside, "others may not write there"), (link, "only its owner may write there")):
            self.assertIn(found, self.refusal(folder))
        self.assertEqual(self.folder.stat().st_mode & 0o777, 0o700, "one that the daemon made")

    def test_a_folder_that_cannot_be_written(self):
        self.assertIn("flight-dumps: files cannot be written to /proc/flights", self.refusal("/proc/flights"))
        for path, problem in ((self.folder / "absent.json", "cannot read"), ("/etc/hostname", "is not a dump of xpud's flight recorder")):
            self.assertIn(problem, self.run_xpuctl("flight", path).stderr)


if __name__ == "__main__":
    unittest.main()
