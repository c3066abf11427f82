"""xpuctl against a real daemon."""

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
        self.assertEqual(xpuctl().returncode, EXIT_USAGE)
        self.assertEqual(xpuctl("-o", "yaml", "status").returncode, EXIT_USAGE)
        self.assertEqual(xpuctl("ps", "surplus").returncode, EXIT_USAGE)
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
        self.assertEqual(top["sessions"][0]["pid"], busy.process.pid)
        self.assertGreater(top["devices"][0]["busy"], 0)
        self.assertIn(str(busy.process.pid), self.ask("ps"))
        self.assertIn("commands/s", self.ask("top", "-n", "2", "--interval", "0.1"))


if __name__ == "__main__":
    unittest.main()
