"""The configuration file of a real daemon: at its start, and when SIGHUP makes the daemon read it again."""

import json
import os
import pathlib
import pwd
import signal
import socket
import subprocess
import tempfile
import unittest

from harness import BINARIES, Daemon, wait_until

EXIT_ERROR, EXIT_USAGE = 1, 2
GIB = 1 << 30
NAME = pwd.getpwuid(os.geteuid()).pw_name


class ConfigFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "etc" / "xpud.yaml"
        self.file.parent.mkdir()

    def write(self, text: str) -> None:
        """Replaces the file, as editors do."""
        draft = self.file.with_suffix(".new")
        draft.write_text(text)
        draft.rename(self.file)


class Config(ConfigFolder):
    def start(self, *options: str) -> Daemon:
        daemon = Daemon(BINARIES, self.folder / "log", "--config", str(self.file), *options)
        self.addCleanup(daemon.close)
        return daemon

    def reload(self, daemon: Daemon) -> str:
        """Returns what the daemon logs about it."""
        before = len(daemon.log.read_text())
        os.kill(daemon.pid, signal.SIGHUP)
        wait_until(lambda: any(word in daemon.log.read_text()[before:] for word in ("config_reloaded", "config_refused")), 10)
        return daemon.log.read_text()[before:]

    def value(self, daemon: Daemon, key: str) -> dict:
        values = json.loads(daemon.ask("config", "show", "-o", "json"))["values"]
        return next(value for value in values if value["key"] == key)

    def quota(self, daemon: Daemon, uid: int | None) -> int:
        quotas = json.loads(daemon.ask("quota", "-o", "json"))["quotas"]
        return next(quota["effective_bytes"] for quota in quotas if (quota.get("uid") == uid if uid is not None else quota.get("default")))

    def test_a_daemon_starts_with_what_the_file_says_and_the_command_line_above_it(self):
        self.write(f"log-level: debug\nmemory-quota: 3GiB\nuser-clients: 5\nquotas:\n  {NAME}: 1.5GiB\n  4711: 2GiB\n")
        daemon = self.start("--user-clients", "6")
        self.assertEqual([self.quota(daemon, uid) for uid in (None, os.geteuid(), 4711)], [3 * GIB, 3 * GIB // 2, 2 * GIB])
        self.assertEqual(self.value(daemon, "log-level"), {"key": "log-level", "value": "debug", "origin": f"{self.file}:1:1", "live": True})
        self.assertEqual(self.value(daemon, "user-clients"), {"key": "user-clients", "value": "6", "origin": "command line", "live": True})
        self.assertEqual(self.value(daemon, "device")["origin"], "default")
        self.assertRegex(daemon.log.read_text(), "config_overridden key=user-clients")

    def test_a_file_that_is_not_valid_keeps_a_daemon_from_starting_and_is_explained(self):
        self.write("log-levl: debug\nuser-clients: none\n")
        program = [BINARIES / "xpud", "--socket", str(self.folder / "xpud.sock"), "--config"]
        failed = subprocess.run([*program, str(self.file)], capture_output=True, text=True, timeout=30)
        self.assertEqual(failed.returncode, EXIT_USAGE)
        self.assertEqual(failed.stderr, f"xpud: {self.file}:1:1: unknown key 'log-levl'; did you mean 'log-level'?\n"
                                        f"xpud: {self.file}:2:15: user-clients: 'none' is not allowed; use an integer of at least 1\n")
        absent = subprocess.run([*program, str(self.folder / "absent.yaml")], capture_output=True, text=True, timeout=30)
        self.assertEqual(absent.returncode, EXIT_USAGE)
        self.assertIn("absent.yaml", absent.stderr)

    def test_one_that_need_not_be_there_is_read_once_it_is(self):
        daemon = Daemon(BINARIES, self.folder / "log", "--config", f"-{self.file}")
        self.addCleanup(daemon.close)
        self.assertEqual(self.value(daemon, "user-clients")["value"], "768")
        self.write("user-clients: 3\n")
        self.reload(daemon)
        self.assertEqual(self.value(daemon, "user-clients")["value"], "3")

    def test_a_reload_changes_what_can_change_in_a_confined_daemon(self):
        self.write(f"log-level: info\nquotas: {{{NAME}: 1GiB, 4711: 2GiB}}\n")
        daemon = self.start()
        daemon.ask("quota", "4712", "5GiB")
        self.write(f"log-level: debug\ndevice: cpu\nmemory-quota: 7GiB\nquotas: {{{NAME}: 3GiB}}\n")
        log = self.reload(daemon)
        self.assertRegex(log, 'config_changed key=log-level from="info" to="debug"')
        self.assertRegex(log, 'config_pending key=device from="auto" to="cpu" note="takes effect after a restart"')
        self.assertEqual([self.quota(daemon, uid) for uid in (None, os.geteuid())], [7 * GIB, 3 * GIB])
        uids = {quota.get("uid"): quota for quota in json.loads(daemon.ask("quota", "-o", "json"))["quotas"]}
        self.assertNotIn(4711, uids, "taken out of the file")
        self.assertEqual(uids[4712]["bytes"], 5 * GIB, "not the file's to take away")
        self.assertEqual(self.value(daemon, "device"), {"key": "device", "value": "auto", "origin": f"{self.file}:2:1", "live": False, "pending": "cpu"})
        self.assertIn("after a restart", daemon.ask("config", "show").lower())

    def test_a_reload_of_a_file_that_is_not_valid_changes_nothing(self):
        self.write("memory-quota: 3GiB\n")
        daemon = self.start()
        for wrong in ("memory-quota: 4GiB\nuser-clients: 0\n", "memory-quota: [\n", "memory-quota: 4\n"):
            self.write(wrong)
            log = self.reload(daemon)
            self.assertRegex(log, rf"error config_refused changed=nothing error=.{self.file}:\d+:\d+: ", wrong)
            self.assertEqual(self.quota(daemon, None), 3 * GIB)
        self.file.unlink()
        self.assertIn("config_refused", self.reload(daemon))
        self.assertEqual(self.quota(daemon, None), 3 * GIB)
        self.write("memory-quota: 5GiB\n")
        self.reload(daemon)
        self.assertEqual(self.quota(daemon, None), 5 * GIB)

    def test_what_the_check_refuses_a_start_refuses_without_being_tried_again(self):
        socket_path = self.folder / "xpud.sock"
        for wrong in ("metrics-listen: 99999", "metrics-listen: '::1:9464'", "metrics-listen: somewhere:9464", "metrics-listen: unix:/tmp/elsewhere.sock",
                      "user-clients: 0", "log-level: loud"):
            self.write(wrong + "\n")
            check = subprocess.run([BINARIES / "xpuctl", "config", "check", self.file], capture_output=True, text=True)
            self.assertEqual(check.returncode, EXIT_ERROR, wrong)
            self.assertIn(f"{self.file}:1:", check.stdout)
            start = subprocess.run([BINARIES / "xpud", "--config", self.file, "--socket", socket_path, "--exit-when-idle", "0"], capture_output=True, text=True,
                                   timeout=30)
            self.assertEqual(start.returncode, EXIT_USAGE, "RestartPreventExitStatus= of the unit")
            self.assertIn(f"{self.file}:1:", start.stderr)

    def test_a_limit_that_was_lowered_counts_for_the_next_client(self):
        self.write("user-clients: 2\n")
        daemon = self.start()

        def connected() -> bool:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.settimeout(0.3)
                client.connect(str(daemon.address))
                try:
                    return b"clients" not in client.recv(65536)  # a refusal
                except TimeoutError:
                    return True

        self.assertTrue(connected())
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
            first.connect(str(daemon.address))
            self.assertTrue(connected())
            self.write("user-clients: 1\n")
            self.reload(daemon)
            self.assertFalse(connected())

    def test_the_service_manager_is_told_of_a_reload(self):
        self.write("")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(self.folder / "notify"))
            manager.settimeout(10)
            os.environ["NOTIFY_SOCKET"] = str(self.folder / "notify")
            self.addCleanup(os.environ.pop, "NOTIFY_SOCKET")
            daemon = self.start()
            while "READY=1" not in manager.recv(4096).decode():
                continue
            os.kill(daemon.pid, signal.SIGHUP)
            self.assertRegex(manager.recv(4096).decode(), r"^RELOADING=1\nMONOTONIC_USEC=\d+")
            self.assertEqual(manager.recv(4096).decode(), "READY=1")


class ConfigCheck(ConfigFolder):
    def check(self, *options: str) -> subprocess.CompletedProcess:
        return subprocess.run([BINARIES / "xpuctl", "config", "check", *options], capture_output=True, text=True, timeout=30)

    def test_says_what_is_wrong_as_the_daemon_does(self):
        self.write("device: tpu\nquotas: {no-such-user-here: 1GiB}\n")
        found = self.check(str(self.file))
        self.assertEqual((found.returncode, found.stderr), (EXIT_ERROR, ""))
        self.assertRegex(found.stdout, rf"^{self.file}:1:9: device: 'tpu' is not allowed.*\n{self.file}:2:10: quotas: unknown user")
        document = json.loads(self.check(str(self.file), "-o", "json").stdout)
        self.assertEqual((document["schema"], document["valid"]), ("xpuctl/1", False))
        self.assertEqual([(problem["line"], problem["column"]) for problem in document["problems"]], [(1, 9), (2, 10)])

    def test_of_a_valid_file_is_no_error(self):
        example = subprocess.run([BINARIES / "xpuctl", "config", "example"], capture_output=True, text=True, check=True, timeout=30).stdout
        self.write(example)
        found = self.check(str(self.file))
        self.assertEqual((found.returncode, found.stdout), (0, f"{self.file}: valid, with 0 keys\n"))
        self.assertEqual(self.check("/nowhere/xpud.yaml").returncode, EXIT_ERROR)
        self.assertEqual(self.check(str(self.file), "surplus").returncode, EXIT_USAGE)
        self.assertEqual(self.check(str(self.file), "-o", "csv").returncode, EXIT_USAGE)


if __name__ == "__main__":
    unittest.main()
