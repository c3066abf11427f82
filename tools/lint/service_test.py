"""Checks that the systemd unit and the daemon's own confinement fit together."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy/systemd/xpud.service"
GATEWAY = ROOT / "deploy/systemd/xpud-gateway.service"
AGENT = ROOT / "deploy/systemd/xpud-node-agent.service"
EXIT_USAGE = 2  # of xpud, xpud-gateway and xpud-node-agent
METRICS = ROOT / "deploy/systemd/metrics.conf"
MOST_EXPOSED = 10  # in tenths; systemd's scale ends at ten, the worst
MOST_EXPOSED_WITH_METRICS = 15


def group(name: str) -> set[str]:
    """Returns the calls of systemd's group @name, with the groups that it contains."""
    text = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True).stdout
    words = [line.strip() for line in text.splitlines()[1:] if not line.strip().startswith("#")]
    return {word for word in words if word and word[0] != "@"}.union(*(group(word) for word in words if word.startswith("@")))


def calls_of(words: str) -> set[str]:
    return set().union(*(group(word) if word.startswith("@") else {word} for word in words.split()))


def allowed_by_unit() -> set[str]:
    allowed: set[str] = set()
    for words in re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.M):
        allowed = allowed - calls_of(words[1:]) if words.startswith("~") else allowed | calls_of(words)
    return allowed


class Restarts(unittest.TestCase):
    def test_an_invalid_configuration_is_not_tried_again(self):
        for unit in (UNIT, GATEWAY, AGENT):
            self.assertIn("\nRestart=on-failure\n", unit.read_text())
            self.assertIn(f"\nRestartPreventExitStatus={EXIT_USAGE}\n", unit.read_text(), unit.name)

    def test_gateway_and_agent_outlive_the_daemon(self):
        for unit in (GATEWAY, AGENT):
            wants = re.findall(r"^(Wants|Requires|BindsTo|PartOf|Requisite)=(.*)$", unit.read_text(), re.M)
            self.assertEqual([kind for kind, units in wants if "xpud.service" in units], ["Wants"], unit.name)

    def test_an_executor_that_is_killed_for_memory_does_not_end_the_service(self):
        self.assertIn("\nOOMPolicy=continue\n", UNIT.read_text())


class Service(unittest.TestCase):
    def setUp(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")

    def test_the_unit_allows_every_call_that_the_daemons_table_allows(self):
        source = (ROOT / "daemon/confinement/system_calls.cc").read_text()
        table = set(re.findall(r"{CALL\((\w+)\)", source[:source.index("#ifdef XPUD_SANITIZED  //")]))
        self.assertGreater(len(table), 100)
        self.assertEqual(sorted(table - allowed_by_unit()), [])

    def test_the_unit_refuses_what_no_service_of_this_kind_needs(self):
        self.assertEqual(sorted(allowed_by_unit() & {"ptrace", "mount", "bpf", "init_module", "chroot", "setuid", "keyctl", "io_uring_setup"}), [])

    def test_systemd_finds_it_little_exposed(self):
        found = subprocess.run(["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", UNIT], capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stdout[-200:] + found.stderr)

    def test_metrics_add_an_address_to_what_the_unit_starts_and_nothing_else(self):
        command = re.search(r"^ExecStart=(.+)$", UNIT.read_text(), re.M)[1]
        self.assertEqual(re.findall(r"^ExecStart=(.*)$", METRICS.read_text(), re.M), ["", command + " --metrics-listen 127.0.0.1:9464"])

    def test_systemd_finds_it_little_exposed_with_metrics(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder, "xpud.service")
            unit.write_text(UNIT.read_text().replace("[Install]", METRICS.read_text() + "[Install]"))
            found = subprocess.run(["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED_WITH_METRICS}", unit], capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stdout[-200:] + found.stderr)


if __name__ == "__main__":
    unittest.main()
