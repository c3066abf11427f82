"""deploy/monitoring with a real daemon and, if installed (Debian's package prometheus), a real Prometheus and promtool."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from harness import ROOT, DaemonTest, wait_until
from metrics import address_of, names, scrape

MONITORING = ROOT / "deploy/monitoring"
ALERTS, ALERTS_TEST = MONITORING / "xpud-alerts.yml", MONITORING / "xpud-alerts_test.yml"
PROMETHEUSS_OWN = {"up"}
KEYWORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
WORK = "x = xpud.random.uniform((64, 64)); x.numpy(); say('ready'); sys.stdin.readline()"


def need(*programs: str):
    missing = [program for program in programs if not shutil.which(program)]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)} (Debian's package prometheus)")


def metrics_of(expression: str) -> set[str]:
    """Returns the names of the metrics in a PromQL expression."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]', "", expression)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    return set(re.findall(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()", bare)) - KEYWORDS


def expressions_of_alerts() -> list[str]:
    return re.findall(r"^ +expr: (.*)$", ALERTS.read_text(), re.M)


def expressions_of_dashboard() -> list[str]:
    dashboard = json.loads((MONITORING / "xpud-dashboard.json").read_text())
    variables = [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]] + [
        re.match(r"label_values\((\w+), \w+\)$", query)[1] for query in variables]


def promtool(*arguments, stdin: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(["promtool", *arguments], input=stdin, capture_output=True, text=True, timeout=60)


class Names(unittest.TestCase):
    def test_are_found_in_expressions(self):
        self.assertEqual(metrics_of('sum by (tenant) (rate(a_total{job="x", i=~"$i"}[$__rate_interval])) / on (hw_id) (b:c > 0) and d offset 5m'),
                         {"a_total", "b:c", "d"})


class Files(DaemonTest):
    FLAGS = ("--metrics-listen", "0")

    def test_name_metrics_that_the_daemon_has(self):
        known = names(scrape(self.daemon)) | PROMETHEUSS_OWN
        for expressions in (expressions_of_alerts(), expressions_of_dashboard()):
            self.assertGreater(len(expressions), 7)
            for expression in expressions:
                with self.subTest(expression):
                    self.assertGreater(metrics_of(expression), set())
                    self.assertEqual(metrics_of(expression) - known, set())

    def test_test_each_alert_where_it_is_silent_and_where_it_speaks(self):
        for alert in re.findall(r"- alert: (\w+)", ALERTS.read_text()):
            self.assertRegex(ALERTS_TEST.read_text(), rf"alertname: {alert}, exp_alerts: \[\]")
            self.assertRegex(ALERTS_TEST.read_text(), rf"alertname: {alert}\n +exp_alerts:\n")

    @need("promtool")
    def test_are_what_promtool_accepts(self):
        for arguments in (("check", "rules", ALERTS), ("check", "config", MONITORING / "prometheus.yml"), ("test", "rules", ALERTS_TEST)):
            answer = promtool(*arguments)
            self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)

    @need("promtool")
    def test_promtool_has_no_complaint_about_the_metrics(self):
        client = self.light_client(WORK)
        client.hear()
        time.sleep(0.6)
        answer = promtool("check", "metrics", stdin=scrape(self.daemon))
        self.assertEqual((answer.returncode, answer.stdout + answer.stderr), (0, ""))


class Prometheus:
    """A Prometheus of its own, configured by the file in deploy/monitoring except for the target and the interval."""

    def __init__(self, folder: pathlib.Path, target: str):
        shutil.copy(ALERTS, folder)
        config = (MONITORING / "prometheus.yml").read_text()
        changed = config.replace("127.0.0.1:9464", target).replace("scrape_interval: 15s", "scrape_interval: 1s")
        (folder / "prometheus.yml").write_text(changed)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                              f"--web.listen-address={self.address}"], stdout=log, stderr=log)

    def ask(self, path: str, **parameters: str) -> dict | None:
        """Returns its answer, or None while it does not serve."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.URLError:
            return None

    def query(self, expression: str) -> list[float]:
        answer = self.ask("query", query=expression)
        return [float(row["value"][1]) for row in answer["result"]] if answer else []

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)


@need("prometheus")
class Scraped(DaemonTest):
    FLAGS = ("--metrics-listen", "0")

    def test_a_prometheus_answers_what_clients_use_and_that_the_daemon_is_gone(self):
        host, port = address_of(self.daemon)
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        prometheus = Prometheus(pathlib.Path(folder.name), f"{host}:{port}")
        self.addCleanup(prometheus.close)
        busy = self.light_client("x = xpud.random.uniform((256, 256)); say('ready')\nwhile True: x = (x * 1.5) - x / 2; x.sum().item()")
        idle = self.light_client(WORK)
        busy.hear(), idle.hear()
        wait_until(lambda: prometheus.query(f'rate(xpud_client_commands_total{{pid="{busy.process.pid}"}}[10s]) > 10'), 30)
        wait_until(lambda: prometheus.query(f'rate(xpud_client_commands_total{{pid="{idle.process.pid}"}}[10s])') == [0], 30)
        self.assertEqual(prometheus.query("xpud_sessions"), [2])
        self.assertEqual(len(prometheus.query("xpud_device_busy_seconds_total")), 1)
        self.assertEqual(prometheus.query("up"), [1])
        self.daemon.kill()
        wait_until(lambda: prometheus.query('up{job="xpud"} == 0'), 30)
        self.assertEqual(prometheus.query("xpud_sessions"), [])


if __name__ == "__main__":
    unittest.main()
