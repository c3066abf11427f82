"""A real Prometheus and promtool beside an agent and its daemon, if Debian's package prometheus is installed."""

import pathlib
import tempfile
import unittest

from cluster import ROOT, wait_until
from dra_test import Dra
from kubelet import DriverError
from metrics import address_of
from prometheus import Prometheus, need, promtool

# As deploy/kubernetes/README.md has it.
PER_POD = "xpud_tenant_device_seconds_total * on (tenant) group_left (label_namespace, label_pod) xpud_claim_info"
WORK = """
import time, numpy, xpud
x = xpud.asarray(numpy.full((512, 512), 1 / 512, "float32"))
end = time.monotonic() + 2
while time.monotonic() < end:
    for _ in range(10): x = x @ x * 1.0
    x.numpy()
"""


class MetricsTest(Dra):
    FLAGS = ("--device", "cpu", "--metrics-listen", "0")

    def test_the_readme_has_the_query(self):
        self.assertIn(PER_POD, (ROOT / "deploy/kubernetes/README.md").read_text())

    @need("promtool")
    def test_promtool_has_no_complaint_about_the_agents_metrics(self):
        name = self.claim(share=10)
        self.kubelet.must_prepare(name)
        self.kubelet.must_prepare(self.claim(share=10))
        with self.assertRaises(DriverError):
            self.kubelet.must_prepare(self.claim(share=101))
        self.kubelet.unprepare(name)
        text = self.agent.page("/metrics")[1]
        for family in ("call_seconds", "claims", "refusals_total", "api_requests_total", "condition_met"):
            self.assertRegex(text, rf"(?m)^xpud_agent_{family}\S* \S+$")
        answer = promtool("check", "metrics", stdin=text)
        self.assertEqual((answer.returncode, answer.stdout + answer.stderr), (0, ""))

    @need("prometheus")
    def test_a_prometheus_sums_by_pod_and_sees_that_the_agent_is_gone(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-engines-")
        self.addCleanup(folder.cleanup)
        prometheus = Prometheus(pathlib.Path(folder.name), xpud=":".join(map(str, address_of(self.daemon))), xpud_node_agent=self.agent.metrics_address())
        self.addCleanup(prometheus.close)
        ids = {}
        for pod in ("busy", "idle"):
            ids[pod] = self.kubelet.must_prepare(self.claim(share=30, pods=(pod,)))
            self.hold_in_container(ids[pod])
        self.run_in_container(ids["busy"], WORK)

        def seconds(pod: str) -> float:
            return sum(prometheus.query(f'{PER_POD} and on (tenant) xpud_claim_info{{label_namespace="default", label_pod="{pod}"}}'))
        wait_until(lambda: seconds("busy") > 0.5, 30, lambda: f"{seconds('busy')} s of the pod")
        self.assertLess(seconds("idle"), 0.1)
        wait_until(lambda: prometheus.query('xpud_agent_claims{engine="kubernetes"}') == [2], 30, "that there are two claims")
        self.agent.stop()
        wait_until(lambda: prometheus.query('up{job="xpud-node-agent"}') == [0], 30, "that the agent is gone")
        self.assertEqual(prometheus.query('up{job="xpud"}'), [1])


if __name__ == "__main__":
    unittest.main()
