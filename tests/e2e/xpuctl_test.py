"""xpuctl against a real daemon."""

import csv
import json
import pathlib
import subprocess
import tempfile
import unittest

from harness import BINARIES, Client, Daemon, DaemonTest

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
        self.assertEqual(xpuctl("--help").returncode, 0)

    def test_version_is_no_error_without_a_daemon(self):
        answer = xpuctl("--address", "/nowhere/xpud.sock", "version")
        self.assertEqual(answer.returncode, 0)
        self.assertIn("no daemon", answer.stdout)
        self.assertEqual(json.loads(self.ask("version", "-o", "json"))["daemon"]["version"], answer.stdout.split()[1])

    def test_status_says_who_answers(self):
        status = json.loads(self.ask("status", "-o", "json"))
        self.assertEqual(status["daemon"]["pid"], self.daemon.pid)
        self.assertEqual(status["daemon"]["socket"], str(self.daemon.address))
        self.assertIn(str(self.daemon.pid), self.ask("status"))

    def test_without_a_command_it_shows_the_status(self):
        self.assertIn(f"pid {self.daemon.pid}", self.ask())
        self.assertEqual(json.loads(self.ask("-o", "json"))["daemon"]["pid"], self.daemon.pid)

    VIEWS = {"status": None, "devices": "devices", "ps": "sessions", "quota": "quotas", "top": "sessions"}

    def test_each_json_document_names_its_schema_and_jsonl_is_one_a_sample(self):
        for view in self.VIEWS:
            lines = self.ask(view, "-o", "jsonl", "-w", "0.05", "-n", "3").splitlines()
            self.assertEqual([next(iter(json.loads(line).items())) for line in lines], [("schema", "xpuctl/1")] * 3, view)
            options = ["--once"] if view == "top" else []
            self.assertEqual(json.loads(self.ask(view, "-o", "json", *options))["schema"], "xpuctl/1")
        self.assertEqual(json.loads(self.ask("version", "-o", "json"))["schema"], "xpuctl/1")

    def test_csv_says_what_json_says_with_one_header_for_all_samples(self):
        client = self.client("x = torch.ones(4, device='xpud'); x.cpu(); say('ready'); sys.stdin.readline()")
        client.hear()
        for view, rows in self.VIEWS.items():
            options = ["--interval", "0.05"] if view == "top" else []
            lines = list(csv.reader(self.ask(view, "-o", "csv", "-w", "0.05", "-n", "2", *options).splitlines()))
            header, *values = lines
            self.assertTrue(all(len(line) == len(header) for line in values), lines)
            self.assertEqual(len({line[0] for line in values}), 2, f"{view}: a row of both samples, and no second header")
            document = json.loads(self.ask(view, "-o", "json", *(["--once"] if view == "top" else [])))
            if view in ("devices", "ps", "quota"):
                found = [dict(zip(header, line)) for line in values[:len(values) // 2]]
                for row, expected in zip(found, document[rows], strict=True):
                    for field in ("index", "id", "name", "pid", "client_name", "memory_total_bytes", "buffers", "device", "effective_bytes"):
                        self.assertEqual(row.get(field), str(expected[field]) if field in expected else None, (view, field))

    def test_wide_shows_more_and_says_why_something_is_not_there(self):
        for view in ("devices", "ps", "quota"):
            narrow, wide = self.ask(view).splitlines()[0], self.ask(view, "-o", "wide").splitlines()[0]
            self.assertGreater(len(wide.split()), len(narrow.split()))
        status, devices = json.loads(self.ask("-o", "json")), self.ask("devices", "-o", "wide")
        own_process = "executors_replaced" in status["devices"][0]
        self.assertEqual("has no process of its own" in devices, not own_process)
        self.assertNotIn("none of its own", self.ask("quota", "-o", "wide"))
        self.client("x = torch.ones(4, device='xpud'); x.cpu(); say('ready'); sys.stdin.readline()").hear()
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
        """The counters of a daemon with this cache folder, after 50 commands and a few."""
        daemon = Daemon(BINARIES, pathlib.Path(cache, "log"), "--cache-dir", str(pathlib.Path(cache, "kernels")))
        self.addCleanup(daemon.close)
        client = Client("x = torch.ones(100, device='xpud')\nfor _ in range(50): x = x * 1.01\nx.sum().item(); say('done')",
                        {"XPUD_ADDRESS": str(daemon.address)})
        client.hear()
        self.assertEqual(client.finish()[0], 0)
        device = daemon.status()["devices"][0]
        self.assertRegex(daemon.ask("status"), rf"kernels +{device['kernels_compiled']} compiled in .* launches\n")
        daemon.close()
        return device

    def test_query_prints_fields_as_nvidia_smi_does(self):
        fields = "--query-gpu=index,gpu_name,memory.total,memory.used,utilization.gpu,power.draw,xpud.sessions"
        client = self.client("x = torch.ones(64 << 20, dtype=torch.uint8, device='xpud'); say('ready'); sys.stdin.readline()")
        client.hear()
        device = self.daemon.devices()[0]
        total, used = (round(device[f"memory_{part}_bytes"] / 2**20) for part in ("total", "used"))
        header, row = self.ask("query", fields, "--format=csv").splitlines()
        self.assertEqual(header, "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%], power.draw [W], xpud.sessions")
        self.assertGreaterEqual(used, 64)
        self.assertRegex(row, rf"^0, {device['name']}, {total} MiB, {used} MiB, \d+ %, \[N/A\], 1$")
        self.assertRegex(self.ask("query", fields, "--format=csv,noheader,nounits", "-i", "0"),
                         rf"^0, {device['name']}, {total}, {used}, \d+, \[N/A\], 1\n$")
        self.assertEqual(self.ask("query", "--query-gpu=index", "--loop-ms=50", "-n", "3"), "index\n0\n0\n0\n")

    def test_query_measures_use_between_two_samples(self):
        use = ("query", "--query-gpu", "utilization.gpu", "--format", "csv,noheader,nounits")
        self.assertEqual(self.ask(*use), "0\n")
        client = self.client("x = torch.rand(512, 512, device='xpud'); say('ready')\nwhile True: x = x @ x / 512; x.sum().item()")
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

    def test_ps_and_top_charge_work_to_the_session_that_does_it(self):
        idle = self.client("x = torch.ones(4, device='xpud'); x.cpu(); say('ready'); sys.stdin.readline()")
        idle.hear()
        busy = self.client("x = torch.rand(256, 256, device='xpud'); say('ready')\nwhile True: x = (x * 1.5) - x / 2; x.sum().item()")
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
