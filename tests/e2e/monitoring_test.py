"""deploy/monitoring with a real daemon and, if installed (Debian's package prometheus), a real Prometheus and promtool."""

import json
import pathlib
import re
import tempfile
import time
import unittest

from harness import DaemonTest, wait_until
from metrics import address_of, names, scrape
from prometheus import ALERTS, MONITORING, Prometheus, need, promtool

ALERTS_TEST = MONITORING / "xpud-alerts_test.yml"
PROMETHEUSS_OWN = {"up"}
KEYWORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
WORK = "x = xpud.random.uniform((64, 64)); x.numpy(); say('ready'); sys.stdin.readline()"


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


@need("prometheus")
class Scraped(DaemonTest):
    FLAGS = ("--metrics-listen", "0")

    def test_a_prometheus_answers_what_clients_use_and_that_the_daemon_is_gone(self):
        host, port = address_of(self.daemon)
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        prometheus = Prometheus(pathlib.Path(folder.name), xpud=f"{host}:{port}")
        self.addCleanup(prometheus.close)
        busy = self.light_client("x = xpud.random.uniform((256, 256)); say('ready')\nwhile True: x = (x * 1.5) - x / 2; x.sum().item()")
        idle = self.light_client(WORK)
        busy.hear(), idle.hear()
        wait_until(lambda: prometheus.query(f'rate(xpud_client_commands_total{{pid="{busy.process.pid}"}}[10s]) > 10'), 30)
        wait_until(lambda: prometheus.query(f'rate(xpud_client_commands_total{{pid="{idle.process.pid}"}}[10s])') == [0], 30)
        self.assertEqual(prometheus.query("xpud_sessions"), [2])
        self.assertEqual(len(prometheus.query("xpud_device_busy_seconds_total")), 1)
        self.assertEqual(prometheus.query('up{job="xpud"}'), [1])
        self.daemon.kill()
        wait_until(lambda: prometheus.query('up{job="xpud"} == 0'), 30)
        self.assertEqual(prometheus.query("xpud_sessions"), [])


if __name__ == "__main__":
    unittest.main()
