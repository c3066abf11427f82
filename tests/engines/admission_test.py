"""The CEL expressions of deploy/kubernetes: what the admission policy lets an agent write, and what the DeviceClass selects."""

import copy
import json
import pathlib
import re
import ssl
import tempfile
import unittest
import urllib.error
import urllib.request

import yaml
from admission import NODE_OF_TOKEN, Policy, evaluated, service_account
from api_server import ApiServer
from api_server_test import SLICES, a_slice
from cluster import ROOT

BASE = ROOT / "deploy/kubernetes/base"
AGENT = ("xpud-system", "xpud-node-agent")


def of_node(node: str | None, **changes) -> dict:
    item = a_slice()
    item["spec"] |= changes
    if node is None:
        del item["spec"]["nodeName"]
        item["spec"]["allNodes"] = True
    else:
        item["spec"]["nodeName"] = node
    return item


class PolicyTest(unittest.TestCase):
    def setUp(self):
        self.policy = Policy.of(BASE / "admission.yaml")

    def denials(self, user: dict, item: dict) -> list[str | None]:
        return [self.policy.denial("CREATE", "resourceslices", user, item), self.policy.denial("UPDATE", "resourceslices", user, item, of_node("node-1"))]

    def assert_denied(self, user: dict, item: dict, reason: str) -> None:
        for denial in self.denials(user, item):
            self.assertRegex(denial or "admitted", reason)

    def test_an_agent_writes_the_slices_of_its_node(self):
        self.assertEqual(self.denials(service_account(*AGENT, "node-1"), of_node("node-1")), [None, None])

    def test_it_writes_none_of_another_node_of_all_nodes_or_of_another_driver(self):
        user, reason = service_account(*AGENT, "node-1"), "^this agent may write slices of the driver xpud.dev for the node node-1 only$"
        self.assert_denied(user, of_node("node-2"), reason)
        self.assert_denied(user, of_node(None), reason)
        self.assert_denied(user, of_node("node-1", driver="gpu.example.com"), reason)

    def test_a_token_that_names_no_node_writes_nothing(self):
        for change in ({}, {NODE_OF_TOKEN: [""]}):
            user = service_account(*AGENT, None)
            user["extra"] |= change
            for item in (of_node("node-1"), of_node(None), of_node("")):
                self.assert_denied(user, item, "^the token of an xpud-node-agent must name its node$")
        nothing = service_account(*AGENT, None)
        del nothing["extra"]
        self.assert_denied(nothing, of_node("node-1"), "^the token of an xpud-node-agent must name its node$")
        empty = service_account(*AGENT, None)
        empty["extra"][NODE_OF_TOKEN] = []
        self.assert_denied(empty, of_node("node-1"), "must name its node|^expression failed")

    def test_others_are_not_its_business(self):
        for user in (service_account("xpud-system", "xpud", "node-1"), service_account("default", "xpud-node-agent", "node-1"),
                     {"username": "admin", "groups": ["system:masters"]}):
            self.assertEqual(self.denials(user, of_node("node-2", driver="gpu.example.com")), [None, None])

    def test_it_is_asked_of_writes_only(self):
        user = service_account(*AGENT, "node-1")
        self.assertIsNone(self.policy.denial("DELETE", "resourceslices", user, of_node("node-2")))
        self.assertIsNone(self.policy.denial("CREATE", "resourceclaims", user, of_node("node-2")))

    def test_one_that_is_not_enforced_is_no_policy(self):
        items = list(yaml.safe_load_all((BASE / "admission.yaml").read_text()))
        for change in (lambda policy, _: policy.update(failurePolicy="Ignore"), lambda _, binding: binding.update(validationActions=["Audit"]),
                       lambda _, binding: binding.update(policyName="another")):
            changed = copy.deepcopy(items)
            change(changed[0]["spec"], changed[1]["spec"])
            with self.assertRaisesRegex(ValueError, "not enforced"):
                Policy(changed)

    def test_an_api_server_with_it_refuses_what_it_denies(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        server = ApiServer(pathlib.Path(folder.name), models=True, policy=self.policy, user=service_account(*AGENT, "node-1"))
        self.addCleanup(server.close)
        context = ssl.create_default_context(cafile=str(server.ca_file))

        def post(item: dict) -> str:
            request = urllib.request.Request(server.url + SLICES, json.dumps(item).encode(), {"Authorization": f"Bearer {server.token_file.read_text().strip()}"})
            try:
                with urllib.request.urlopen(request, context=context, timeout=10) as answer:
                    return str(answer.status)
            except urllib.error.HTTPError as failure:
                return json.load(failure)["message"]
        self.assertEqual(post(of_node("node-1")), "201")
        self.assertRegex(post(of_node("node-2") | {"metadata": {"name": "node-2-xpud.dev"}}), "xpud-node-agent' denied request: .* for the node node-1 only")


class DeviceClassTest(unittest.TestCase):
    def test_it_selects_the_agents_devices_and_no_others(self):
        device_class = yaml.safe_load((BASE / "device-class.yaml").read_text())
        (selector,) = device_class["spec"]["selectors"]
        driver = re.search(r'kDriver\[\] = "([^"]+)"', (ROOT / "deploy/agent/kubernetes/names.h").read_text())[1]
        for name, selected in ((driver, True), ("gpu.example.com", False), ("", False)):
            self.assertIs(evaluated(selector["cel"]["expression"], device={"driver": name, "attributes": {}, "capacity": {}}), selected)

    def test_an_expression_that_is_wrong_is_an_error(self):
        for expression in ("device.driver ==", "devise.driver == 'xpud.dev'", "device.drivers == 'xpud.dev'"):
            with self.assertRaises(ValueError):
                evaluated(expression, device={"driver": "xpud.dev"})


if __name__ == "__main__":
    unittest.main()
