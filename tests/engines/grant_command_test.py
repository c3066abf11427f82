"""`xpuctl grant` and the agent's budgets: a real daemon, agent and programs, as several users."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys

from cluster import BINARIES, NODE, NodeTest, wait_until

USER, OTHER, STRANGER = 61001, 61002, 61003
GROUP, SECOND_GROUP = 61100, 61101
# A program that has a session, says so, and ends with its input.
HOLD = "import os, sys, xpud; xpud.asarray([1.0, 2.0]).numpy(); print(os.environ['XPUD_ADDRESS'], flush=True); sys.stdin.read()"
READY = "import sys; print('ready', flush=True); sys.stdin.read()"


class GrantNode(NodeTest):
    """A node whose agent serves nothing but its local socket."""

    def start_cluster(self) -> None:
        self.socket = self.folder / "agent/agent.sock"
        self.budgets: dict = {"users": {USER: {"share": 60}, OTHER: {"share": 10, "memory": "64MiB", "class": "batch"}}}
        # Users of these tests must come to the agent's socket and to the claims' doors.
        for folder in (self.folder, self.folder / "agent", self.daemon.address.parent):
            folder.chmod(0o711)

    def find_agent(self) -> None:
        pass

    def configuration(self) -> str:
        return json.dumps({"socket": str(self.daemon.address), "state": str(self.folder / "agent"), "node": NODE, "metrics-listen": "127.0.0.1:0",
                           "grants": {"socket": str(self.socket)} | self.budgets})

    @staticmethod
    def as_user(uid: int, groups: tuple[int, ...] = ()) -> list[str]:
        """May read all files, since Python may be in root's home; sockets have to be writable."""
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups",
                "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]

    def command(self, *options: str, program: list, uid: int, groups: tuple[int, ...] = (), before: tuple = ()) -> list[str]:
        return [*self.as_user(uid, groups), *before, str(BINARIES / "xpuctl"), "grant", *options, "--", *map(str, program)]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "XPUD_AGENT_SOCKET": str(self.socket), "XPUD_ADDRESS": "/nowhere/xpud.sock", "PYTHONPATH": str(BINARIES.parent / "lib")}

    def run_program(self, *options: str, program: list = ("true",), uid: int = USER, groups: tuple[int, ...] = ()) -> subprocess.CompletedProcess:
        return subprocess.run(self.command(*options, program=list(program), uid=uid, groups=groups), env=self.environment(), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60)

    @contextlib.contextmanager
    def running(self, *options: str, code: str = READY, uid: int = USER, groups: tuple[int, ...] = (), before: tuple = ()):
        """A program that has its grant. Its first line is in `said`."""
        command = self.command(*options, program=[sys.executable, "-c", code], uid=uid, groups=groups, before=before)
        with subprocess.Popen(command, env=self.environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                process.said = process.stdout.readline().strip()
                if not process.said:
                    raise AssertionError(f"the program did not start: {process.stderr.read()}")
                yield process
            finally:
                process.kill()

    def grant(self) -> dict:
        (claim,) = self.claims().values()
        return claim


class GrantTest(GrantNode):
    def test_a_program_has_its_part_until_it_ends(self):
        with self.running("--share", "30", "--memory=1GiB", "--class", "batch", "--device", "0", "--label", "job=7", "--label=step=b", code=HOLD) as program:
            claim = self.grant()
            self.assertEqual((claim["weight"], claim["time_least"], claim["class"], int(claim["memory_most_bytes"])), (30, 2850, "batch", 1 << 30))
            self.assertEqual(claim["labels"] | {"job": "7", "step": "b", "uid": str(USER), "pid": str(program.pid)}, claim["labels"])
            self.assertIn(claim["key"], program.said)
            self.assertEqual([session["claim"] for session in self.daemon.sessions()], [claim["key"]])
            program.stdin.close()
            self.assertEqual(program.wait(20), 0, program.stderr.read())
            self.assertEqual(self.claims(), {})  # returned before xpuctl ended

    def test_the_status_is_the_programs(self):
        for script, status in (("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + signal.SIGTERM), ("kill -KILL $$", 128 + signal.SIGKILL)):
            done = self.run_program(program=["sh", "-c", script])
            self.assertEqual((done.returncode, done.stderr), (status, ""), script)
        done = self.run_program(program=["no-program-of-this-name"])
        self.assertEqual((done.returncode, done.stderr), (127, "xpuctl grant: cannot run no-program-of-this-name: No such file or directory\n"))
        self.assertEqual(self.run_program(program=["/etc"]).returncode, 126)
        self.assertEqual(self.claims(), {})

    def test_the_program_has_words_environment_and_descriptors_as_without_xpuctl(self):
        script = """printf '%s,' "$@"; env | grep -v ^XPUD_ADDRESS | sort; ls /proc/self/fd; grep -E 'Sig(Ign|Blk)' /proc/self/status"""
        plain = ["sh", "-c", script, "sh", "a b", "--", "-x", "--wait"]

        def without_own_signals(text: str) -> str:
            """C's own two signals, 32 and 33, are ignored after posix_spawn."""
            return re.sub(r"SigIgn:\t(\w+)", lambda found: f"SigIgn: {int(found[1], 16) & ~(3 << 31):x}", text)
        expected = subprocess.run([*self.as_user(USER), *plain], env=self.environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30)
        self.assertTrue(expected.stdout.startswith("a b,--,-x,--wait,"), expected)
        self.assertEqual(without_own_signals(self.run_program(program=plain).stdout), without_own_signals(expected.stdout))
        address = self.run_program(program=["sh", "-c", "env | grep -c ^XPUD_ADDRESS; echo $XPUD_ADDRESS"]).stdout.split()
        self.assertEqual(address[0], "1")
        self.assertNotEqual(address[1], "/nowhere/xpud.sock")

    def test_signals_reach_the_program(self):
        waits = "import signal, sys; signal.signal(signal.{0}, lambda *_: sys.exit(9)); print('ready', flush=True); signal.pause()"
        for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH"):
            # What this process ignores, as under nohup, xpuctl and the program would ignore too.
            before = signal.signal(getattr(signal, name), signal.SIG_DFL)
            self.addCleanup(signal.signal, getattr(signal, name), before)
            with self.running(code=waits.format(name)) as program:
                program.send_signal(getattr(signal, name))
                self.assertEqual(program.wait(20), 9, name)
        with self.running() as program:
            program.send_signal(signal.SIGTERM)
            self.assertEqual(program.wait(20), 128 + signal.SIGTERM)
        self.assertEqual(self.claims(), {})

    def test_a_terminals_signal_reaches_the_program_once(self):
        counts = """
import signal, sys
signals = []
signal.signal(signal.SIGINT, lambda *_: signals.append("INT"))
signal.signal(signal.SIGUSR1, lambda *_: (print(*signals, flush=True), sys.exit(0)))
print("ready", flush=True)
while True: signal.pause()
"""
        ours, terminal = pty.openpty()
        self.addCleanup(os.close, ours)
        command = ["setsid", "--ctty", *self.command(program=[sys.executable, "-c", counts], uid=USER)]
        with subprocess.Popen(command, env=self.environment(), text=True, stdin=terminal, stdout=subprocess.PIPE) as process:
            os.close(terminal)
            self.addCleanup(process.kill)
            self.assertEqual(process.stdout.readline(), "ready\n")
            os.write(ours, b"\x03")
            # The program has it when the terminal's line is empty again; what xpuctl passes on, it passes on in order.
            self.assertEqual(os.read(ours, 8), b"^C")
            process.send_signal(signal.SIGUSR1)
            self.assertEqual((process.stdout.readline(), process.wait(20)), ("INT\n", 0))

    def test_ignored_signals_stay_ignored(self):
        with self.running(before=("nohup",)) as program:
            program.send_signal(signal.SIGHUP)
            program.send_signal(signal.SIGTERM)
            self.assertEqual(program.wait(20), 128 + signal.SIGTERM)

    def test_a_killed_xpuctl_has_no_grant(self):
        with self.running("--share", "60", code=HOLD) as program:
            program.kill()
            wait_until(lambda: not self.claims() and not self.daemon.sessions(), 10, "the grant has ended")

    def test_time_that_is_over_ends_the_program(self):
        self.assertEqual(self.run_program("--max-time", "1s", program=["sleep", "60"]).returncode, 124)
        self.assertEqual(self.run_program("--max-time", "1m", program=["true"]).returncode, 0)
        self.assertEqual(self.claims(), {})

    def test_a_refusal_names_the_limit(self):
        for options, uid, reason in ((("--share=61",), USER, "share 61 was asked; on device 0 .* has 0 and may have 60 in all"),
                                     (("--share=5",), OTHER, "memory_bytes is unset; .* has to say how much"),
                                     (("--share=5", "--memory=65MiB"), OTHER, "memory of 65.00 MiB was asked; .* may have 64.00 MiB in all"),
                                     (("--share=5", "--memory=1MiB", "--class=interactive"), OTHER, "class interactive was asked; .* may have batch"),
                                     (("--device=5",), USER, "device 5"),
                                     ((), STRANGER, "may have no grants; the administrator allows them in agent.yaml")):
            for wait in ((), ("--wait",)):  # waiting does not help
                done = self.run_program(*options, *wait, uid=uid, program=["echo", "ran"])
                self.assertEqual((done.returncode, done.stdout), (125, ""), done)
                self.assertRegex(done.stderr, rf"\Axpuctl grant: .*{reason}.*\n\Z")
        self.assertEqual(self.claims(), {})

    def test_wrong_usage_has_a_status_of_its_own(self):
        for options in (("--share=x",), ("--memory", "much"), ("--device=a",), ("--max-time=5",), ("--wait=soon",), ("--label=x",), ("--what",), ("surplus",), ("--host=a",)):
            done = self.run_program(*options)
            self.assertEqual((done.returncode, done.stdout), (125, ""), options)
            self.assertRegex(done.stderr, r"\Axpuctl[^\n]*; see xpuctl grant --help\n\Z", options)
        self.assertIn("takes a program after --", self.run_program(program=[]).stderr)

    def test_a_node_without_an_agent_is_named(self):
        self.agent.stop()
        done = self.run_program("--wait")
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, r"\Axpuctl grant: no xpud-node-agent serves grants at .*/agent.sock \(No such file or directory\); start it")

    def test_who_waits_has_a_grant_when_another_returns_his(self):
        with self.running("--share", "40") as first:
            done = self.run_program("--share", "30", "--wait=1")
            self.assertEqual(done.returncode, 125)
            self.assertEqual(len(re.findall("has 40 and may have 60 in all", done.stderr)), 2)  # why it waits, and why it ends
            command = self.command("--share", "30", "--wait", program=["echo", "ran"], uid=USER)
            with subprocess.Popen(command, env=self.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as second:
                self.assertRegex(second.stderr.readline(), "waits: share 30 was asked; .* has 40 and may have 60 in all")
                self.agent.stop()  # one that starts anew is found
                self.agent.start()
                self.assertIsNone(second.poll())
                first.stdin.close()
                self.assertEqual((second.wait(20), second.stdout.read()), (0, "ran\n"))
        self.assertEqual(self.claims(), {})

    def test_without_a_watch_the_grant_is_renewed(self):
        """An agent in a pid namespace of its own sees no process of this one, so it cannot watch xpuctl."""
        self.agent.stop()
        self.budgets["users"][USER]["lease"] = "2s"
        self.agent.text = self.configuration()
        self.agent.start(before=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
        with self.running("--share", "20", code=HOLD) as program:
            key = self.grant()["key"]
            self.assertNotIn("pid", self.grant()["labels"])
            ends = 2 * 3  # three leases
            with self.assertRaises(subprocess.TimeoutExpired):
                program.wait(ends)
            self.assertEqual(self.grant()["key"], key)
            program.stdin.close()
            self.assertEqual(program.wait(20), 0, program.stderr.read())
            self.assertEqual(self.claims(), {})


class BudgetTest(GrantNode):
    def lines(self, event: str) -> list[str]:
        return [line for line in self.agent.log.read_text().splitlines() if f" {event} " in line]

    def reload(self, text: str, event: str) -> str:
        """Returns the line of the log that follows from it."""
        before = len(self.lines(event))
        self.agent.text = text
        self.agent.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(self.lines(event)) > before, 10, event)
        return self.lines(event)[-1]

    def test_a_group_has_a_budget_for_each_of_its_users(self):
        self.budgets |= {"groups": {GROUP: {"share": 20}, SECOND_GROUP: {"share": 30}}, "default": {"share": 5}}
        self.reload(self.configuration(), "configuration_read")
        for groups, most in (((), 5), ((GROUP,), 20), ((SECOND_GROUP,), 30), ((SECOND_GROUP, GROUP), 20)):
            self.assertEqual(self.run_program(f"--share={most}", uid=STRANGER, groups=groups).returncode, 0)
            self.assertIn(f"may have {most} in all", self.run_program(f"--share={most + 1}", uid=STRANGER, groups=groups).stderr)
        self.assertIn("may have 60 in all", self.run_program("--share=61", groups=(GROUP,)).stderr)  # the user's own comes first
        with self.running("--share=20", uid=STRANGER, groups=(GROUP,)):
            self.assertEqual(self.run_program("--share=20", uid=STRANGER + 1, groups=(GROUP,)).returncode, 0)

    def test_what_is_read_again_is_in_force_and_grants_stay(self):
        with self.running("--share", "60", code=HOLD) as program:
            key = self.grant()["key"]
            self.budgets["users"][USER]["share"] = 20
            self.reload(self.configuration(), "configuration_read")
            self.assertEqual((self.grant()["key"], self.grant()["weight"]), (key, 60))
            self.assertIn("has 60 and may have 20 in all", self.run_program("--share=1").stderr)
            program.stdin.close()
            self.assertEqual(program.wait(20), 0)
        self.assertEqual(self.run_program("--share=20").returncode, 0)
        self.assertIn("has 0 and may have 20 in all", self.run_program("--share=21").stderr)
        self.assertEqual(self.lines("configuration_needs_restart"), [])

    def test_an_invalid_file_changes_nothing_and_shows(self):
        self.assertEqual(self.agent.readiness(), (200, "ok\n"))
        for text in ("grants: {users: {0: {share: 101}}, what: 1}", "grants: [", json.dumps({"slurm": {"enabled": True}, "grants": {"socket": "off"}})):
            self.assertIn("the old one stays in force", self.reload(text, "configuration_invalid"))
            status, page = self.agent.readiness()
            self.assertEqual(status, 503)
            self.assertRegex(page, r"\Aconfiguration: .*agent\.yaml:.*\n\Z")
            self.assertEqual(self.run_program("--share=60").returncode, 0)
        self.reload("grants: {users: {0: {share: 101}}, what: 1}", "configuration_invalid")
        self.assertRegex(self.agent.readiness()[1], "share: '101' is not allowed; use an integer from 1 to 100; .*unknown key 'what'")
        self.assertEqual(self.agent.metrics()['xpud_agent_condition_met{condition="configuration"}'], 0)
        self.reload(self.configuration(), "configuration_read")
        self.assertEqual(self.agent.readiness(), (200, "ok\n"))

    def test_keys_that_need_a_restart_are_named(self):
        changed = json.loads(self.configuration()) | {"state": "/elsewhere", "kubernetes": {"slots": 5}}
        changed["grants"]["users"] = {str(USER): {"share": 10}}
        self.assertIn('keys="state, kubernetes: slots"', self.reload(json.dumps(changed), "configuration_needs_restart"))
        self.assertIn("may have 10 in all", self.run_program("--share=11").stderr)  # the rest is in force
        self.assertEqual(self.agent.readiness()[0], 200)
