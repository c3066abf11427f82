"""deploy/kubernetes: what kustomize and Helm make of it is the same and valid, agrees with the agent, and gives no more rights than needed."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import admission
import kubernetes_validate
import yaml
from cluster import BINARIES, ROOT

FOLDER = ROOT / "deploy/kubernetes"
KUBECTL = pathlib.Path(sys.prefix, "bin/kubectl")
HELM = KUBECTL.with_name("helm")  # `tools/test engines` puts it there
CHART = ROOT / "build/chart/xpud"
OVERLAYS = sorted(path.parent for path in FOLDER.glob("overlays/*/kustomization.yaml"))
DEVICES, MODES = ("cpu", "intel", "nvidia"), ("dra", "device-plugin")


def output(*command: str | pathlib.Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PATH": f"{KUBECTL.parent}:{os.environ['PATH']}"})
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


@functools.cache
def built_text(folder: pathlib.Path) -> str:
    return output(KUBECTL, "kustomize", folder)


def built(folder: pathlib.Path) -> list[dict]:
    return list(yaml.safe_load_all(built_text(folder)))


@functools.cache
def chart() -> pathlib.Path:
    output(ROOT / "tools/chart")
    return CHART


@functools.cache
def rendered_text(namespace: str, values: str) -> str:
    return output(HELM, "template", "xpud", chart(), "--namespace", namespace, "--set-json", values)


def rendered(namespace: str = "xpud-system", **values) -> list[dict]:
    """What Helm makes of the chart."""
    return [item for item in yaml.safe_load_all(rendered_text(namespace, json.dumps({"image": {"tag": "latest"}} | values))) if item]


def every_build() -> list[tuple[str, list[dict]]]:
    """The objects of each overlay, and of the chart with values for each device and mode, also with every value set."""
    everything = {"nodeSelector": {"pool": "a"}, "tolerations": [{"key": "gpu", "operator": "Exists"}], "imagePullSecrets": [{"name": "registry"}],
                  "grants": {"users": {"1000": {"share": 25, "memory": "4GiB"}}}, "daemon": {"options": ["--batch-executor=on"], "groups": [44]}}
    builds = [(folder.name, built(folder)) for folder in OVERLAYS]
    for device in DEVICES:
        for mode in MODES:
            slots = {"slots": 4} if mode == "device-plugin" else {}
            builds.append((f"{device}, chart, {mode}", rendered(device=device, mode=mode)))
            builds.append((f"{device}, chart, {mode}, all values", rendered("other", device=device, mode=mode, **slots, **everything)))
    return builds


def found(items: list[dict], kind: str, name: str) -> dict:
    (item,) = [item for item in items if item["kind"] == kind and item["metadata"]["name"] == name]
    return item


class Manifests(unittest.TestCase):
    def test_every_object_is_valid(self):
        self.assertEqual([path.name for path in OVERLAYS if path.name in ("cpu", "intel", "nvidia")], ["cpu", "intel", "nvidia"])
        for name, items in every_build():
            for item in items:
                with self.subTest(build=name, kind=item["kind"], name=item["metadata"]["name"]):
                    kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)

    def test_examples_are_valid(self):
        examples = sorted(FOLDER.glob("examples/*.yaml"))
        self.assertTrue(examples)
        for path in examples:
            for item in yaml.safe_load_all(path.read_text()):
                with self.subTest(file=path.name, name=item["metadata"]["name"]):
                    kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)

    def test_an_upgrade_has_one_agent_and_one_daemon_at_a_time(self):
        for name in ("xpud", "xpud-node-agent"):
            update = found(built(OVERLAYS[0]), "DaemonSet", name)["spec"]["updateStrategy"]["rollingUpdate"]
            self.assertEqual(update["maxSurge"], 0)

    def test_containers_have_no_rights_but_the_few_that_are_named(self):
        allowed = {("xpud", "folders"): {"CHOWN", "FOWNER", "DAC_OVERRIDE"}}
        for name, items in every_build():
            for item in items:
                if item["kind"] != "DaemonSet":
                    continue
                pod = item["spec"]["template"]["spec"]
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertFalse({"hostPID", "hostNetwork", "hostIPC"} & set(pod))
                for container in [*pod["containers"], *pod.get("initContainers", [])]:
                    context = container["securityContext"]
                    self.assertTrue(context["readOnlyRootFilesystem"])
                    if context.get("privileged"):
                        self.assertEqual((name.split(",")[0], item["metadata"]["name"]), ("intel", "xpud"))
                        continue
                    self.assertEqual(context["capabilities"]["drop"], ["ALL"])
                    self.assertEqual(set(context["capabilities"].get("add", [])), allowed.get((item["metadata"]["name"], container["name"]), set()))
                    self.assertFalse(context["allowPrivilegeEscalation"])

    def test_the_agents_configuration_is_one(self):
        for name, items in every_build():
            text = found(items, "ConfigMap", "xpud-node-agent")["data"]["agent.yaml"]
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(text)
                file.flush()
                done = subprocess.run([BINARIES / "xpud-node-agent", "--config", file.name, "--check"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
            if "all values" not in name:
                self.assertEqual(yaml.safe_load(text)["grants"], {"socket": False}, "its folder is not there: the container's root is read-only")

    def test_the_daemons_arguments_are_options(self):
        usage = subprocess.run([BINARIES / "xpud", "--help"], capture_output=True, text=True, check=True).stdout
        for _, items in every_build():
            for argument in found(items, "DaemonSet", "xpud")["spec"]["template"]["spec"]["containers"][0]["args"]:
                self.assertRegex(usage, rf"(?m)^ +{re.escape(argument.split('=')[0])}\b")

    def test_the_class_selects_the_agents_driver(self):
        names = (ROOT / "deploy/agent/kubernetes/names.h").read_text()
        driver = re.search(r'kDriver\[\] = "([^"]+)"', names)[1]
        (selector,) = found(built(OVERLAYS[0]), "DeviceClass", "xpud")["spec"]["selectors"]
        self.assertEqual(selector["cel"]["expression"], f'device.driver == "{driver}"')
        policy = found(built(OVERLAYS[0]), "ValidatingAdmissionPolicy", "xpud-node-agent")
        self.assertIn(f'object.spec.driver == "{driver}"', str(policy["spec"]["validations"]))

    def test_folders_are_those_that_the_agent_uses(self):
        for _, items in every_build():
            volumes = found(items, "DaemonSet", "xpud-node-agent")["spec"]["template"]["spec"]
            hosts = {volume["name"]: volume["hostPath"]["path"] for volume in volumes["volumes"] if "hostPath" in volume}
            for mount in volumes["containers"][0]["volumeMounts"]:
                if mount["name"] in hosts:
                    self.assertEqual(mount["mountPath"], hosts[mount["name"]], "paths that the agent hands to the kubelet are the host's")


class ChartTest(unittest.TestCase):
    def refusal(self, *arguments: str) -> str:
        done = subprocess.run([HELM, "template", "xpud", *arguments], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stderr

    def test_it_makes_what_kustomize_makes(self):
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
            own = pathlib.Path(folder, "kustomization.yaml")
            for device in DEVICES:
                for mode in MODES:
                    up = "../../deploy/kubernetes"
                    components = [f"{up}/components/device-plugin"] if mode == "device-plugin" else []
                    own.write_text(yaml.safe_dump({"resources": [f"{up}/overlays/{device}"], "components": components}))
                    expected = [item for item in yaml.safe_load_all(output(KUBECTL, "kustomize", folder)) if item["kind"] != "Namespace"]
                    actual = rendered(device=device, mode=mode)

                    def by_name(item: dict) -> tuple[str, str]:
                        return item["kind"], item["metadata"]["name"]
                    with self.subTest(device=device, mode=mode):
                        self.assertEqual(sorted(actual, key=by_name), sorted(expected, key=by_name))

    def test_helm_finds_no_fault(self):
        self.assertIn("0 chart(s) failed", output(HELM, "lint", "--strict", chart()))

    def test_its_package_is_the_folder(self):
        (package,) = CHART.parent.glob("xpud-*.tgz") if chart() else []
        text = output(HELM, "template", "xpud", package, "--namespace", "xpud-system", "--set", "image.tag=latest")
        self.assertEqual([item for item in yaml.safe_load_all(text) if item], rendered())
        version = re.search(r"^project\(xpud VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
        self.assertEqual(package.name, f"xpud-{version}.tgz")
        self.assertIn(f"image: xpud:{version}", output(HELM, "template", "xpud", package))

    def test_values_change_what_they_name(self):
        changed = dict(device="nvidia", image={"repository": "registry.example/xpud", "digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
                       nodeSelector={"pool": "a"}, tolerations=[], imagePullSecrets=[{"name": "key"}],
                       daemon={"options": ["--batch-executor=on"], "groups": [44], "hostPID": True},
                       grants={"users": {"1000": {"share": 25}}, "socket": "/run/grants/agent.sock"})
        items, before = rendered("own", **changed), rendered("own", device="nvidia")
        for name in ("xpud", "xpud-node-agent"):
            pod, old = (found(each, "DaemonSet", name)["spec"]["template"]["spec"] for each in (items, before))
            for container in [*pod["containers"], *pod.get("initContainers", [])]:
                self.assertEqual((container["image"], container["imagePullPolicy"]), ("registry.example/xpud@sha256:" + "0" * 64, "Always"))
            self.assertEqual(pod["nodeSelector"], old["nodeSelector"] | {"pool": "a"})
            self.assertEqual((pod["tolerations"], pod["imagePullSecrets"]), ([], [{"name": "key"}]))
        pod, old = (found(each, "DaemonSet", "xpud")["spec"]["template"]["spec"] for each in (items, before))
        self.assertEqual(pod["containers"][0]["args"], [*old["containers"][0]["args"], "--batch-executor=on"])
        self.assertEqual(pod["securityContext"]["supplementalGroups"], [*old["securityContext"]["supplementalGroups"], 44])
        self.assertIs(pod["hostPID"], True)
        agent = found(items, "DaemonSet", "xpud-node-agent")["spec"]["template"]["spec"]
        self.assertIn({"name": "grants", "mountPath": "/run/grants"}, agent["containers"][0]["volumeMounts"])
        configuration, old = (yaml.safe_load(found(each, "ConfigMap", "xpud-node-agent")["data"]["agent.yaml"]) for each in (items, before))
        self.assertEqual(configuration, old | {"grants": changed["grants"]})
        slots = yaml.safe_load(found(rendered(mode="device-plugin", slots=4), "ConfigMap", "xpud-node-agent")["data"]["agent.yaml"])
        self.assertEqual((slots["kubernetes"]["slots"], slots["grants"]), (4, {"socket": "off"}))

    def test_another_configuration_restarts_the_agent_only(self):
        def templates(**values) -> list[dict]:
            return [found(rendered(mode="device-plugin", **values), "DaemonSet", name)["spec"]["template"] for name in ("xpud-node-agent", "xpud")]
        (agent, daemon), (other_agent, other_daemon) = templates(slots=4), templates(slots=5)
        self.assertNotEqual(agent, other_agent)
        self.assertEqual(daemon, other_daemon)

    def test_the_admission_policy_is_of_the_agent_in_its_namespace(self):
        policy = admission.Policy([item for item in rendered("own") if item["kind"].startswith("ValidatingAdmissionPolicy")])
        item = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": "a"}, "spec": {"driver": "xpud.dev", "nodeName": "node-1"}}
        for node, denied in (("node-1", False), ("node-2", True)):
            user = admission.service_account("own", "xpud-node-agent", node)
            self.assertEqual(policy.denial("CREATE", "resourceslices", user, item) is not None, denied)
        (subject,) = found(rendered("own"), "ClusterRoleBinding", "xpud-node-agent")["subjects"]
        self.assertEqual((subject["namespace"], found(rendered("own"), "ServiceAccount", "xpud-node-agent")["metadata"]["namespace"]), ("own", "own"))

    def test_wrong_values_are_refused_with_what_is_allowed(self):
        self.assertRegex(self.refusal(chart(), "--set", "device=amd"), "device.*'cpu', 'nvidia', 'intel'")
        self.assertRegex(self.refusal(chart(), "--set", "devise=cpu"), "devise")
        self.assertRegex(self.refusal(chart(), "--set", "mode=device-plugin,slots=101"), "slots.*100")
        self.assertIn("slots is for mode device-plugin", self.refusal(chart(), "--set", "slots=4"))
        self.assertIn("tools/chart makes the chart", self.refusal(FOLDER / "chart"))


if __name__ == "__main__":
    unittest.main()
