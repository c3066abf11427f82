"""The tests' API server itself: that it refuses what Kubernetes refuses, also by the packages of requirements.txt."""

import copy
import json
import pathlib
import ssl
import tempfile
import unittest
import urllib.error
import urllib.request

import slice_rules
from api_server import ApiServer

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def range_of(low: str, high: str, step: str, default: str, value: str) -> dict:
    return {"value": value, "requestPolicy": {"default": default, "validRange": {"min": low, "max": high, "step": step}}}


def a_slice() -> dict:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "node-1-xpud.dev"},
            "spec": {"driver": "xpud.dev", "nodeName": "node-1", "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
                     "devices": [{"name": "xpud-0", "allowMultipleAllocations": True, "attributes": {"kind": {"string": "cpu"}},
                                  "capacity": {"share": range_of("1", "100", "1", "100", "100"), "memory": range_of("1Mi", "4Gi", "1Mi", "4Gi", "4Gi"),
                                               "claims": {"value": "1k", "requestPolicy": {"default": "1", "validValues": ["1"]}}}}]}}


class Rules(unittest.TestCase):
    def assert_refused(self, change) -> None:
        item = a_slice()
        change(item["spec"]["devices"][0])
        self.assertTrue(slice_rules.violations(item), item)

    def test_a_good_slice_is_accepted(self):
        self.assertEqual(slice_rules.violations(a_slice()), [])

    def test_capacities_keep_the_rules_of_consumable_capacity(self):
        for share in (range_of("1", "1", "1", "1", "1"), range_of("1", "100", "1", "101", "100"), range_of("1", "100", "3", "99", "100"),
                      range_of("0", "0", "1", "0", "0"), {"value": "0", "requestPolicy": {"default": "1", "validValues": ["1"]}},
                      {"value": "9", "requestPolicy": {"default": "1", "validValues": ["2", "3"]}},
                      {"value": "9", "requestPolicy": {"default": "1", "validRange": {"max": "9"}}},
                      {"value": "9", "requestPolicy": {"validRange": {"min": "1"}}}):
            self.assert_refused(lambda device, share=share: device["capacity"].update(share=share))
        self.assert_refused(lambda device: device.pop("allowMultipleAllocations"))

    def test_attributes_names_and_taints_are_bounded(self):
        self.assert_refused(lambda device: device["attributes"].update(model={"string": "x" * 65}))
        self.assert_refused(lambda device: device["attributes"].update(model={"string": "x", "int": 1}))
        self.assert_refused(lambda device: device["attributes"].update({"no-name": {"int": 1}}))
        self.assert_refused(lambda device: device.update(name="XPUD"))
        self.assert_refused(lambda device: device.update(taints=[{"key": "xpud.dev/unhealthy", "value": "two words", "effect": "NoSchedule"}]))
        self.assert_refused(lambda device: device.update(taints=[{"key": "xpud.dev/unhealthy", "value": "a", "effect": "Never"}]))

    def test_driver_node_and_pool_cannot_be_changed(self):
        changed = a_slice()
        changed["spec"]["nodeName"] = "node-2"
        self.assertEqual(slice_rules.violations(changed, a_slice()), ["spec.nodeName cannot be changed"])

    def test_quantities(self):
        for text, value in (("4Gi", 4 << 30), ("30", 30), ("1500m", 1.5), ("1e3", 1000), ("2G", 2e9), (".5k", 500), ("1E", 1e18)):
            self.assertEqual(slice_rules.quantity(text), value, text)
        for text in ("", "Gi", "1.2.3", "4GiB", "1e", "lots"):
            self.assertRaises(ValueError, slice_rules.quantity, text)


class Server(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="xpud-api-")
        cls.addClassCleanup(folder.cleanup)
        cls.server = ApiServer(pathlib.Path(folder.name), models=True)
        cls.addClassCleanup(cls.server.close)
        cls.context = ssl.create_default_context(cafile=str(cls.server.ca_file))

    def ask(self, method: str, path: str, item: dict | None = None, token: str | None = None) -> tuple[int, dict]:
        token = token or self.server.token_file.read_text().strip()
        request = urllib.request.Request(self.server.url + path, None if item is None else json.dumps(item).encode(), method=method,
                                         headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as failure:
            return failure.code, json.load(failure)

    def test_objects_are_created_replaced_and_deleted_by_version(self):
        status, item = self.ask("POST", SLICES, a_slice())
        self.assertEqual(status, 201, item)
        self.assertEqual(self.ask("POST", SLICES, a_slice())[1]["reason"], "AlreadyExists")
        status, changed = self.ask("PUT", f"{SLICES}/node-1-xpud.dev", item)
        self.assertEqual(status, 200, changed)
        self.assertEqual(self.ask("PUT", f"{SLICES}/node-1-xpud.dev", item)[0], 409, "a stale version")
        self.assertEqual(len(self.ask("GET", SLICES)[1]["items"]), 1)
        self.assertEqual(self.ask("DELETE", f"{SLICES}/node-1-xpud.dev")[0], 200)
        self.assertEqual(self.ask("GET", f"{SLICES}/node-1-xpud.dev")[0], 404)

    def test_what_the_models_do_not_know_is_refused(self):
        def with_change(change):
            item = copy.deepcopy(a_slice())
            change(item)
            return item

        for bad in (with_change(lambda item: item["spec"].update(nodes="node-1")), with_change(lambda item: item["spec"]["pool"].pop("generation")),
                    with_change(lambda item: item["spec"]["devices"][0].update(allowMultipleAllocations="yes")),
                    with_change(lambda item: item["spec"]["devices"][0]["capacity"]["share"]["requestPolicy"].update(steps="1")),
                    with_change(lambda item: item["spec"]["devices"][0]["capacity"]["share"].update(requestPolicy=range_of("1", "1", "1", "1", "1")))):
            status, answer = self.ask("POST", SLICES, bad)
            self.assertEqual(status, 422, answer)

    def test_a_wrong_token_is_refused(self):
        self.assertEqual(self.ask("GET", SLICES, token="wrong")[0], 401)


if __name__ == "__main__":
    unittest.main()
