"""xpuctl against a real daemon."""

import csv
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import unittest

from harness import BINARIES, Daemon, DaemonTest, LightClient, wait_until

EXIT_ERROR, EXIT_USAGE, EXIT_NO_DAEMON = 1, 2, 3


def xpuctl(*arguments, env=None) -> subprocess.CompletedProcess:
    return subprocess.run([BINARIES / "xpuctl", *arguments], capture_output=True, text=True, env=env, timeout=30)


class Xpuctl(DaemonTest):
    def ask(self, *arguments) -> str:
        answer = xpuctl("--address", self.daemon.address, *arguments)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        return answer.stdout

    def test_exit_codes_are_those_of_the_usage_text(self):
        self.assertEqual(xpuctl("--address", "/nowhere/xpud.sock", "status").returncode, EXIT_NO_DAEMON)
        self.assertEqual(xpuctl("nonsense").returncode, EXIT_USAGE)
        for wrong in (["-o", "yaml", "status"], ["ps", "surplus"], ["ps", "--once"], ["version", "-o", "csv"], ["version", "-w", "1"],
                      ["ps", "-w", "soon"], ["ps", "-w", "0"], ["ps", "-w", "nan"], ["ps", "-n", "0"], ["ps", "-o"], ["top", "--interval", "nan"]):
            answer = xpuctl("--address", self.daemon.address, *wrong)
            self.assertEqual((answer.returncode, answer.stdout), (EXIT_USAGE, ""), wrong)
            self.assertRegex(answer.stderr, r"\Axpuctl[^\n]*; see xpuctl [^\n]*--help\n\Z", wrong)

    def test_help_is_there_for_everything_and_for_each_command(self):
        whole = self.ask("--help")
        self.assertEqual((self.ask("help"), self.ask("-h")), (whole, whole))
        self.assertEqual(whole.split("Without a command")[0].count("--once"), 1)
        for command in self.commands():
            text = self.ask(command, "--help")
            self.assertEqual((self.ask("help", command), self.ask(command, "surplus", "more", "than", "allowed", "-h")), (text, text))
            self.assertTrue(text.startswith(f"usage: xpuctl {command} "), text)
            self.assertIn("--address", text)
        events, top = self.ask("events", "--help"), self.ask("top", "--help")
        self.assertIn("--once", top)
        self.assertIn("-n COUNT", top)
        self.assertNotIn("-n COUNT", events)
        self.assertIn("formats of -o: table json jsonl", events)
        self.assertEqual(xpuctl("help", "nonsense").returncode, EXIT_USAGE)

    def test_version_is_an_option_too(self):
        self.assertEqual(xpuctl("--version").stdout, xpuctl("--address", "/nowhere/xpud.sock", "version").stdout.splitlines()[0].replace("  ", " ") + "\n")

    def test_errors_name_what_was_wrong_and_nothing_else(self):
        def error(*arguments) -> str:
            answer = xpuctl("--address", self.daemon.address, *arguments)
            self.assertNotEqual(answer.returncode, 0)
            return answer.stderr
        self.assertIn("events does not take -n;", error("events", "-n", "3"))  # but it takes -w
        self.assertIn("version does not take -w;", error("version", "-w", "3"))
        self.assertIn("0.05 to 10^6", error("ps", "-w", "1e9"))
        client = self.light_client(self.IDLE)
        client.hear()
        self.ask("profile", "start", "--all")
        self.assertIn("cannot write /nowhere/trace: No such file or directory", error("profile", "save", "--all", "/nowhere/trace"))
        for file, why in (("/nowhere/dump", "No such file or directory"), ("/", "Is a directory")):
            answer = xpuctl("flight", file)
            self.assertEqual(answer.returncode, EXIT_ERROR)  # not the status for a missing daemon
            self.assertIn(f"cannot read {file}: {why}", answer.stderr)

    def test_version_is_no_error_without_a_daemon(self):
        answer = xpuctl("--address", "/nowhere/xpud.sock", "version")
        self.assertEqual(answer.returncode, 0)
        self.assertIn("no daemon", answer.stdout)
        self.assertEqual(json.loads(self.ask("version", "-o", "json"))["daemon"]["version"], answer.stdout.split()[1])

    def test_version_is_no_error_behind_a_dead_gateway(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
        answer = xpuctl("--address", address, "version")
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        self.assertIn("no daemon answers: ", answer.stdout)
        self.assertNotIn("daemon", json.loads(xpuctl("--address", address, "version", "-o", "json").stdout))

    def test_output_that_cannot_be_written_is_an_error(self):
        self.ask("quota", "4712", "5GiB")  # an event
        for program, words in [("xpuctl", words) for words in (["events"], ["logs"], ["logs", "-o", "json"], ["doctor"], ["version"], ["config", "example"],
                                                               ["completion", "bash"], ["--help"], ["status"], ["ps", "-o", "csv"], ["quota"], ["profile", "list"])] + \
                              [(name, [word]) for name in ("xpud", "xpud-gateway") for word in ("--help", "--version")]:
            address = ["--address", self.daemon.address] if program == "xpuctl" else []
            with open("/dev/full", "w") as full:
                done = subprocess.run([BINARIES / program, *address, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30)
            self.assertEqual(done.returncode, EXIT_ERROR, (program, words))
            self.assertIn("cannot write the output", done.stderr, (program, words))

    def test_doctor_asks_the_daemon_for_its_limits_and_folders(self):
        _, checks = self.doctor("--address", self.daemon.address)
        limit = resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE)[0]
        self.assertIn(f"the daemon's limit is {limit}: ", checks["open files"]["found"])
        cache = next(value["value"] for value in json.loads(self.ask("config", "show", "-o", "json"))["values"] if value["key"] == "cache-dir")
        self.assertIn(os.environ.get("XDG_CACHE_HOME", str(pathlib.Path.home() / ".cache")) + "/xpud", checks["cache"]["found"], cache)

    def test_status_says_who_answers(self):
        status = json.loads(self.ask("status", "-o", "json"))
        self.assertEqual(status["daemon"]["pid"], self.daemon.pid)
        self.assertEqual(status["daemon"]["socket"], str(self.daemon.address))
        self.assertIn(str(self.daemon.pid), self.ask("status"))

    def test_without_a_command_it_shows_the_status(self):
        self.assertIn(f"pid {self.daemon.pid}", self.ask())
        self.assertEqual(json.loads(self.ask("-o", "json"))["daemon"]["pid"], self.daemon.pid)

    VIEWS = {"status": None, "devices": "devices", "ps": "sessions", "quota": "quotas", "memory": "tenants", "top": "sessions"}

    def test_each_json_document_names_its_schema_and_jsonl_is_one_a_sample(self):
        for view in self.VIEWS:
            lines = self.ask(view, "-o", "jsonl", "-w", "0.05", "-n", "3").splitlines()
            self.assertEqual([next(iter(json.loads(line).items())) for line in lines], [("schema", "xpuctl/1")] * 3, view)
            options = ["--once"] if view == "top" else []
            self.assertEqual(json.loads(self.ask(view, "-o", "json", *options))["schema"], "xpuctl/1")
        self.assertEqual(json.loads(self.ask("version", "-o", "json"))["schema"], "xpuctl/1")

    def test_csv_says_what_json_says_with_one_header_for_all_samples(self):
        client = self.light_client("x = xpud.ones(4); x.numpy(); say('ready'); sys.stdin.readline()")
        client.hear()
        for view, rows in self.VIEWS.items():
            options = ["--interval", "0.05"] if view == "top" else []
            lines = list(csv.reader(self.ask(view, "-o", "csv", "-w", "0.05", "-n", "2", *options).splitlines()))
            header, *values = lines
            self.assertTrue(all(len(line) == len(header) for line in values), lines)
            self.assertEqual(len({line[0] for line in values}), 2, f"{view}: a row of both samples, and no second header")
            document = json.loads(self.ask(view, "-o", "json", *(["--once"] if view == "top" else [])))
            if view in ("devices", "ps", "quota", "memory"):
                found = [dict(zip(header, line)) for line in values[:len(values) // 2]]
                for row, expected in zip(found, document[rows], strict=True):
                    for field in ("index", "id", "name", "pid", "client_name", "memory_total_bytes", "buffers", "device", "effective_bytes",
                                  "tenant", "holds_bytes", "on_device_bytes", "sharers"):
                        self.assertEqual(row.get(field), str(expected[field]) if field in expected else None, (view, field))

    def test_wide_shows_more_and_says_why_something_is_not_there(self):
        for view in ("devices", "ps", "quota", "memory"):
            narrow, wide = self.ask(view).splitlines()[0], self.ask(view, "-o", "wide").splitlines()[0]
            self.assertGreater(len(wide.split()), len(narrow.split()))
        status, devices = json.loads(self.ask("-o", "json")), self.ask("devices", "-o", "wide")
        own_process = "executors_replaced" in status["devices"][0]
        self.assertEqual("has no process of its own" in devices, not own_process)
        self.assertNotIn("none of its own", self.ask("quota", "-o", "wide"))
        self.light_client("x = xpud.ones(4); x.numpy(); say('ready'); sys.stdin.readline()").hear()
        self.assertIn("none of its own", self.ask("quota", "-o", "wide"))

    def test_a_repeated_view_ends_with_the_first_signal(self):
        with subprocess.Popen([BINARIES / "xpuctl", "--address", self.daemon.address, "ps", "-o", "jsonl", "-w", "0.05"],
                              stdout=subprocess.PIPE, text=True) as process:
            for _ in range(3):
                self.assertEqual(json.loads(process.stdout.readline())["sessions"], [])
            process.terminate()
            self.assertEqual(process.wait(5), 0)

    def test_devices_lists_the_processor_with_its_memory(self):
        device = json.loads(self.ask("devices", "-o", "json"))["devices"][0]
        self.assertEqual(device["kind"], "cpu")
        self.assertGreater(device["memory_total_bytes"], 1 << 28)
        self.assertIn(device["name"], self.ask("devices"))

    def test_status_counts_kernels_by_where_they_came_from(self):
        with tempfile.TemporaryDirectory(prefix="xpud-e2e-") as cache:
            first, again = (self.kernels_of_a_daemon(cache) for _ in range(2))
        self.assertGreater(first["kernels_compiled"], 1)
        self.assertEqual(first["kernel_disk_cache_hits"], 0)
        self.assertGreater(first["kernel_compile_ns"], 0)
        self.assertGreaterEqual(first["kernel_cache_hits"], 50)
        self.assertGreaterEqual(first["launches"], 50)
        self.assertEqual(first["kernel_compiles_failed"], 0)
        self.assertEqual((again["kernels_compiled"], again["kernel_compile_ns"]), (0, 0))
        self.assertEqual(again["kernel_disk_cache_hits"], first["kernels_compiled"])

    def kernels_of_a_daemon(self, cache: str) -> dict:
        """Returns the counters of a daemon with this cache folder, after 50 commands and a few."""
        daemon = Daemon(BINARIES, pathlib.Path(cache, "log"), "--cache-dir", str(pathlib.Path(cache, "kernels")))
        self.addCleanup(daemon.close)
        client = LightClient("x = xpud.ones(100)\nfor _ in range(50): x = x * 1.01\nx.sum().item(); say('done')",
                        {"XPUD_ADDRESS": str(daemon.address)})
        client.hear()
        self.assertEqual(client.finish()[0], 0)
        device = daemon.status()["devices"][0]
        self.assertRegex(daemon.ask("status"), rf"kernels +{device['kernels_compiled']} compiled in .* launches\n")
        daemon.close()
        return device

    def test_memory_shows_what_each_tenant_has(self):
        client = self.light_client("x = xpud.ones(64 << 20, dtype='uint8'); x.numpy(); tickets = [xpud.share(x) for _ in range(2)]\n"
                                   "say('ready'); sys.stdin.readline()")
        client.hear()
        document = json.loads(self.ask("memory", "-o", "json"))
        (tenant,), (device,) = document["tenants"], document["devices"]
        self.assertEqual((tenant["tenant"], tenant["device"], tenant["shared_bytes"], tenant["sharers"]), (f"uid:{os.getuid()}", 0, 64 << 20, 1))
        self.assertGreaterEqual(tenant["holds_bytes"], 64 << 20)
        self.assertEqual(tenant["on_device_bytes"], tenant["holds_bytes"] + tenant["cached_bytes"])
        self.assertEqual((device["on_device_bytes"], device["device_bytes"]), (tenant["on_device_bytes"], self.daemon.devices()[0]["memory_total_bytes"]))
        heading, row, line = self.ask("memory").splitlines()
        self.assertEqual(re.split("  +", heading), ["TENANT", "HOLDS", "ON DEVICE", "MOVED OUT", "SHARED", "CACHED", "IN/S", "OUT/S"])
        self.assertEqual(re.split("  +", row)[4], "64.0 MiB by 1")
        self.assertRegex(line, r"^device 0: [\d.]+ (.iB )?of [\d.]+ .iB$")
        self.assertEqual(self.ask("memory", "--device", "0").splitlines()[0], heading)
        for wrong, status, why in (("9", EXIT_ERROR, "there is no device 9; there are 1"), ("first", EXIT_USAGE, '--device takes numbers of devices, not "first"')):
            answer = xpuctl("--address", self.daemon.address, "memory", "--device", wrong)
            self.assertEqual((answer.returncode, answer.stdout), (status, ""))
            self.assertIn(why, answer.stderr)
        self.assertRegex(self.ask("ps", "-o", "wide").splitlines()[0], "  TENANT OUT  TENANT SAVED  ")

    def test_query_prints_fields_as_nvidia_smi_does(self):
        fields = "--query-gpu=index,gpu_name,memory.total,memory.used,utilization.gpu,power.draw,xpud.sessions"
        client = self.light_client("x = xpud.ones(64 << 20, dtype='uint8'); say('ready'); sys.stdin.readline()")
        client.hear()
        device = self.daemon.devices()[0]
        total, used = (round(device[f"memory_{part}_bytes"] / 2**20) for part in ("total", "used"))
        header, row = self.ask("query", fields, "--format=csv").splitlines()
        self.assertEqual(header, "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%], power.draw [W], xpud.sessions")
        self.assertGreaterEqual(used, 64)
        name = re.escape(device["name"])  # "Intel(R) Xeon(R) Processor"
        self.assertRegex(row, rf"^0, {name}, {total} MiB, {used} MiB, \d+ %, \[N/A\], 1$")
        self.assertRegex(self.ask("query", fields, "--format=csv,noheader,nounits", "-i", "0"),
                         rf"^0, {name}, {total}, {used}, \d+, \[N/A\], 1\n$")
        self.assertEqual(self.ask("query", "--query-gpu=index", "--loop-ms=50", "-n", "3"), "index\n0\n0\n0\n")

    def test_query_measures_use_between_two_samples(self):
        use = ("query", "--query-gpu", "utilization.gpu", "--format", "csv,noheader,nounits")
        self.assertEqual(self.ask(*use), "0\n")
        client = self.light_client("x = xpud.random.uniform((512, 512)); say('ready')\nwhile True: x = x @ x / 512; x.sum().item()")
        client.hear()
        samples = [int(line) for line in self.ask(*use, "-w", "0.5", "-n", "3").split()]
        self.assertEqual(len(samples), 3)
        self.assertTrue(all(0 < sample <= 100 for sample in samples), samples)

    def test_query_knows_its_fields_and_devices(self):
        listed = [line.split()[0] for line in self.ask("query", "--help-query-gpu").splitlines()]
        header = self.ask("query", "--query-gpu", ",".join(listed)).splitlines()[0]
        self.assertEqual([word.split()[0] for word in header.split(", ")], listed)
        for wrong in (["--query-gpu=index,beauty"], ["--query-gpu="], [], ["--query-gpu=index", "--format=xml"],
                      ["--query-gpu=index", "--format=noheader"], ["--query-gpu=index", "-i", "first"], ["--query-gpu=index", "--loop-ms=1"]):
            self.assertEqual(xpuctl("--address", self.daemon.address, "query", *wrong).returncode, EXIT_USAGE, wrong)
        answer = xpuctl("--address", self.daemon.address, "query", "--query-gpu=index", "-i", "9")
        self.assertEqual((answer.returncode, answer.stdout), (EXIT_ERROR, ""))
        self.assertIn("there is no device 9", answer.stderr)

    def doctor(self, *arguments, env=None, preexec=None) -> tuple[int, dict[str, dict]]:
        """Returns doctor's exit status and checks, by name."""
        answer = subprocess.run([BINARIES / "xpuctl", *arguments, "doctor", "-o", "json"], capture_output=True, text=True,
                                env=os.environ | (env or {}), preexec_fn=preexec, timeout=30)
        document = json.loads(answer.stdout)
        self.assertEqual((document["schema"], answer.stderr), ("xpuctl/1", ""))
        checks = {check["check"]: check for check in document["checks"]}
        for check in checks.values():
            self.assertEqual("remedy" in check, check["result"] != "ok", check)
        self.assertEqual(answer.returncode, EXIT_ERROR if any(check["result"] == "fail" for check in checks.values()) else 0)
        return answer.returncode, checks

    def test_doctor_finds_the_daemon_and_its_state(self):
        status, checks = self.doctor("--address", self.daemon.address)
        self.assertEqual(status, 0)
        device = self.daemon.devices()[0]
        self.assertIn(str(self.daemon.address), checks["daemon"]["found"])
        self.assertIn(f"{self.daemon.address}, mode 0", checks["socket"]["found"])
        self.assertEqual((checks["version"]["result"], checks["device 0"]["found"]), ("ok", f"{device['name']} ({device['vendor']})"))
        for needed in ("kernel", "landlock", "memfd seals", "pidfd", "membarrier", "open files", "mappings", "memory", "huge shm",
                       "processor", "amx", "nvidia", "dri"):
            self.assertIn(needed, checks)
        table = self.ask("doctor").splitlines()
        self.assertEqual([line.split()[0] for line in table if not line.startswith(" ")], [check["result"] for check in checks.values()])
        self.ask("drain")
        self.assertEqual(self.doctor("--address", self.daemon.address)[1]["drained"]["remedy"], "xpuctl drain off")

    def test_doctor_fails_where_something_does_not_work(self):
        status, checks = self.doctor("--address", "/nowhere/xpud.sock")
        self.assertEqual((status, checks["daemon"]["result"]), (EXIT_ERROR, "fail"))
        self.assertNotIn("version", checks)
        status, checks = self.doctor(env={"XPUD_ADDRESS": "/nowhere/xpud.sock"})
        self.assertIn("unset XPUD_ADDRESS", checks["daemon"]["remedy"])
        folder = self.daemon.address.parent
        folder.chmod(0o777)
        self.assertEqual(self.doctor("--address", self.daemon.address)[1]["socket"]["remedy"],
                         f"other users could replace the socket: chmod o-w {folder}")
        folder.chmod(0o700)
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))  # noqa: E731
        self.assertEqual(self.doctor("--address", "/nowhere/xpud.sock", preexec=few)[1]["open files"]["result"], "fail")
        self.assertEqual(self.doctor("--address", self.daemon.address, preexec=few)[0], 0, "the daemon has its own limit")
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, (60, 60))
        status, checks = self.doctor("--address", self.daemon.address)
        self.assertEqual((status, checks["open files"]["result"]), (EXIT_ERROR, "fail"))
        with tempfile.TemporaryDirectory() as cache:
            kernels = pathlib.Path(cache, "xpud")
            kernels.mkdir()
            for mode, result in ((0o700, "ok"), (0o770, "warn")):
                kernels.chmod(mode)
                check = self.doctor("--address", "/nowhere/xpud.sock", env={"XDG_CACHE_HOME": cache})[1]["cache"]
                self.assertEqual((check["result"], str(kernels) in check["found"]), (result, True))

    def commands(self) -> list[str]:
        """Returns the commands in the usage text."""
        usage = self.ask("--help").split("Without a command")[0]
        return [line.split()[0] for line in usage.splitlines()[1:] if line.startswith("  ") and line[2] != " "]

    def complete(self, *words: str) -> list[str]:
        """Returns what bash offers for the last word."""
        script = 'source <("$1" completion bash); shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _xpuctl; printf "%s\\n" "${COMPREPLY[@]}"'
        answer = subprocess.run(["bash", "-c", script, "bash", BINARIES / "xpuctl", *words], capture_output=True, text=True, timeout=30)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        return answer.stdout.split()

    def test_bash_completes_commands_options_and_values(self):
        self.assertGreater(len(self.commands()), 10)
        self.assertEqual([word for word in self.complete("xpuctl", "") if word[0] != "-"], self.commands())
        self.assertEqual(self.complete("xpuctl", "-o", "js"), ["json", "jsonl"])
        self.assertEqual(self.complete("xpuctl", "-o", "json", "dr"), ["drain"])
        self.assertEqual(self.complete("xpuctl", "-o", "json", "drain", "o"), ["on", "off"])
        self.assertEqual(self.complete("xpuctl", "drain", "-"), ["--address", "--host", "--help"])
        self.assertEqual(self.complete("xpuctl", "top", "--o"), ["--once"])
        self.assertEqual(self.complete("xpuctl", "query", "--query-gpu", "=", "memory.t"), ["memory.total"])
        self.assertEqual(self.complete("xpuctl", "events", "-w", "--a"), ["--address"])
        self.assertEqual(self.complete("xpuctl", "ps", "-w", ""), [])

    def test_each_shell_and_the_manual_know_each_command_and_option(self):
        manual = self.ask("man")
        for text in (self.ask("completion", "zsh"), self.ask("completion", "fish"), self.ask("completion", "bash"), manual.replace("\\fB", " ").replace("\\-", "-")):
            for word in [*self.commands(), "query-gpu", "once", "interval", "address"]:
                self.assertRegex(text, rf"\b{word}\b")
        self.assertEqual(xpuctl("completion", "tcsh").returncode, EXIT_USAGE)
        shown = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-c"], input=manual, capture_output=True, text=True, timeout=30)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        for code, meaning in ((0, "done"), (1, "error"), (2, "wrong usage"), (3, "no daemon is running")):
            self.assertRegex(shown.stdout, rf"\b{code}\W.*\s+{meaning}")
        for shell in ("zsh", "fish"):
            if shutil.which(shell):
                checked = subprocess.run([shell, "-n"], input=self.ask("completion", shell), capture_output=True, text=True, timeout=30)
                self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    IDLE = "x = xpud.ones(4); x.numpy(); say('ready'); sys.stdin.readline()\n"

    def events(self) -> list[dict]:
        return json.loads(self.ask("events", "-o", "json"))["events"]

    def test_kill_closes_one_session_and_its_client_is_told_why(self):
        victim, other = (self.light_client(self.IDLE + "(x + 1).numpy(); say('alive')") for _ in range(2))
        for client in (victim, other):
            client.hear()
        session = next(row for row in self.daemon.sessions() if row["pid"] == victim.process.pid)
        self.assertEqual(self.ask("kill", str(session["id"])), f"closed session {session['id']} of {session['client_name']}, pid {session['pid']}\n")
        self.assertEqual([row["pid"] for row in self.daemon.sessions()], [other.process.pid])
        for client in (victim, other):
            client.tell()
        status, _, error = victim.finish()
        self.assertEqual(status, 1)
        self.assertIn("session closed by an operator", error)
        self.assertEqual(other.hear(), "alive")
        self.assertEqual(self.daemon.status()["daemon"]["sessions_closed_for_fault"], 0)
        again = xpuctl("--address", self.daemon.address, "kill", str(session["id"]))
        self.assertEqual((again.returncode, again.stdout), (EXIT_ERROR, ""))
        self.assertIn(f"there is no session {session['id']}", again.stderr)
        for wrong in ([], ["all"], ["-1"], ["1", "2"]):
            self.assertEqual(xpuctl("--address", self.daemon.address, "kill", *wrong).returncode, EXIT_USAGE, wrong)

    def test_a_drained_daemon_refuses_newcomers_and_serves_those_who_are_there(self):
        there = self.light_client(self.IDLE + "(x + 1).numpy(); say('alive')")
        there.hear()
        self.assertNotIn("drained", self.ask("status"))
        self.assertIn("1 sessions are open", self.ask("drain"))
        self.assertIn("drained", self.ask("status"))
        self.assertIs(self.daemon.status()["daemon"]["drained"], True)
        status, _, error = self.light_client(self.IDLE).finish()
        self.assertEqual(status, 1)
        self.assertIn("refused this client: it is drained", error)
        there.tell()
        self.assertEqual(there.hear(), "alive")
        self.ask("drain", "off")
        self.assertIs(self.daemon.status()["daemon"]["drained"], False)
        self.light_client(self.IDLE).hear()
        self.assertEqual([event["kind"] for event in self.events() if "drain" in event["kind"]], ["drain_on", "drain_off"])

    def test_events_say_who_came_who_went_and_why(self):
        client = self.light_client(self.IDLE)
        client.hear()
        self.ask("quota", "default", "1GiB", "--device", "0")
        client.tell()
        client.finish()
        wait_until(lambda: len(self.events()) == 3, 10)
        opened, quota, closed = self.events()
        self.assertEqual([event["sequence"] for event in (opened, quota, closed)], [1, 2, 3])
        self.assertEqual((opened["kind"], opened["pid"], opened["uid"]), ("session_opened", client.process.pid, os.getuid()))
        self.assertEqual((quota["kind"], quota["text"]), ("quota_set", f"default, device 0: {1 << 30} bytes"))
        self.assertEqual((closed["kind"], closed["session"]), ("session_closed", opened["session"]))
        self.assertIn(closed["text"], ("its process ended", "it hung up"))
        self.assertNotIn("session", quota)
        self.assertAlmostEqual(closed["unix_ms"] / 1e3, time.time(), delta=60)
        self.assertRegex(self.ask("events"), rf"session_closed session 1 pid {client.process.pid} user \S+ \".*\": {closed['text']}\n$")
        self.assertEqual([json.loads(line)["sequence"] for line in self.ask("events", "-o", "jsonl").splitlines()], [1, 2, 3])

    def test_followed_events_come_as_they_happen_and_end_with_the_daemon(self):
        with subprocess.Popen([BINARIES / "xpuctl", "--address", self.daemon.address, "events", "-w", "-o", "jsonl"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            for state in ("on", "off"):
                self.ask("drain", state)
                self.assertEqual(json.loads(process.stdout.readline())["kind"], "drain_" + state)
            self.daemon.close()
            self.assertEqual(process.wait(5), EXIT_ERROR)
            self.assertIn("the daemon is ending", process.stderr.read())

    def test_followers_that_do_not_read_hold_up_nobody(self):
        """Their pipes are full and they request no more; the daemon continues, and ends at once."""
        follow = [BINARIES / "xpuctl", "--address", self.daemon.address, "events", "-w", "-o", "jsonl"]
        stuck = [subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(12)]
        for process in stuck:
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
        for state in ("on", "off"):
            self.ask("drain", state)
        for process in stuck:
            self.assertIn(b"drain_on", process.stdout.readline())
        self.flood(1500)
        wait_until(lambda: self.events()[-1]["sequence"] == 3002, 20)
        self.assertEqual(len(self.events()), 1024)
        self.assertEqual(len(self.ask("events").splitlines()), 1025)
        self.assertTrue(self.ask("events").startswith("(1978 earlier events are no longer kept)\n"))
        began = time.monotonic()
        self.daemon.close()
        self.assertLess(time.monotonic() - began, 5)

    def test_a_limited_number_may_wait_for_events(self):
        follow = [BINARIES / "xpuctl", "--address", self.daemon.address, "events", "-w"]
        waiting = [subprocess.Popen(follow, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(17)]
        for process in waiting:
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
        wait_until(lambda: any(process.poll() is not None for process in waiting), 20)
        ended = [process for process in waiting if process.poll() is not None]
        self.assertEqual([process.returncode for process in ended], [EXIT_ERROR])
        self.assertIn("16 readers wait for events or log lines already", ended[0].stderr.read())
        self.assertEqual(self.events(), [])

    def flood(self, sessions: int) -> None:
        """Opens and closes `sessions` sessions: two events each."""
        version = json.loads(self.ask("version", "-o", "json"))["daemon"]["protocol_max"]
        for _ in range(sessions):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(str(self.daemon.address))
                client.send(struct.pack("<IHH64s", 0x64757078, version, version, b"flood"))
                client.recv(1 << 16)

    def test_ps_and_top_charge_work_to_the_session_that_does_it(self):
        idle = self.light_client("x = xpud.ones(4); x.numpy(); say('ready'); sys.stdin.readline()")
        idle.hear()
        busy = self.light_client("x = xpud.random.uniform((256, 256)); say('ready')\nwhile True: x = (x * 1.5) - x / 2; x.sum().item()")
        busy.hear()
        top = json.loads(self.ask("top", "--once", "--interval", "1", "-o", "json"))
        by_pid = {session["pid"]: session for session in top["sessions"]}
        self.assertEqual(set(by_pid), {idle.process.pid, busy.process.pid})
        self.assertGreater(by_pid[busy.process.pid]["commands_per_second"], 100)
        self.assertGreater(by_pid[busy.process.pid]["busy"], 0)
        self.assertLessEqual(by_pid[busy.process.pid]["busy"], 1.05)
        self.assertEqual(by_pid[idle.process.pid]["commands_per_second"], 0)
        for session in top["status"]["sessions"]:
            self.assertEqual([share["busy_ns"] for share in session["devices"]], [session["busy_ns"]])
        self.assertEqual(top["sessions"][0]["pid"], busy.process.pid)
        self.assertGreater(top["devices"][0]["busy"], 0)
        self.assertIn(str(busy.process.pid), self.ask("ps"))
        self.assertIn("commands/s", self.ask("top", "-n", "2", "--interval", "0.1"))


if __name__ == "__main__":
    unittest.main()
