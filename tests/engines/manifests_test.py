"""deploy/kubernetes: what kustomize makes of it is valid, agrees with the agent, and gives no more rights than needed."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import kubernetes_validate
import yaml
from cluster import BINARIES, ROOT

FOLDER = ROOT / "deploy/kubernetes"
KUBECTL = pathlib.Path(sys.prefix, "bin/kubectl")
OVERLAYS = sorted(path.parent for path in FOLDER.glob("overlays/*/kustomization.yaml"))


def built(folder: pathlib.Path) -> list[dict]:
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return list(yaml.safe_load_all(done.stdout))


def found(items: list[dict], kind: str, name: str) -> dict:
    (item,) = [item for item in items if item["kind"] == kind and item["metadata"]["name"] == name]
    return item


class Manifests(unittest.TestCase):
    def test_every_object_is_valid(self):
        self.assertEqual([path.name for path in OVERLAYS if path.name in ("cpu", "intel", "nvidia")], ["cpu", "intel", "nvidia"])
        for folder in OVERLAYS:
            for item in built(folder):
                with self.subTest(overlay=folder.name, kind=item["kind"], name=item["metadata"]["name"]):
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
        for folder in OVERLAYS:
            for item in built(folder):
                if item["kind"] != "DaemonSet":
                    continue
                pod = item["spec"]["template"]["spec"]
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertFalse({"hostPID", "hostNetwork", "hostIPC"} & set(pod))
                for container in [*pod["containers"], *pod.get("initContainers", [])]:
                    context = container["securityContext"]
                    self.assertTrue(context["readOnlyRootFilesystem"])
                    if context.get("privileged"):
                        self.assertEqual((folder.name, item["metadata"]["name"]), ("intel", "xpud"))
                        continue
                    self.assertEqual(context["capabilities"]["drop"], ["ALL"])
                    self.assertEqual(set(context["capabilities"].get("add", [])), allowed.get((item["metadata"]["name"], container["name"]), set()))
                    self.assertFalse(context["allowPrivilegeEscalation"])

    def test_the_agents_configuration_is_one(self):
        for folder in OVERLAYS:
            text = found(built(folder), "ConfigMap", "xpud-node-agent")["data"]["agent.yaml"]
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(text)
                file.flush()
                done = subprocess.run([BINARIES / "xpud-node-agent", "--config", file.name, "--check"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(yaml.safe_load(text)["grants"], {"socket": False}, "its folder is not there: the container's root is read-only")

    def test_the_daemons_arguments_are_options(self):
        usage = subprocess.run([BINARIES / "xpud", "--help"], capture_output=True, text=True, check=True).stdout
        for folder in OVERLAYS:
            for argument in found(built(folder), "DaemonSet", "xpud")["spec"]["template"]["spec"]["containers"][0]["args"]:
                self.assertRegex(usage, rf"(?m)^ +{re.escape(argument.split('=')[0])}\b")

    def test_the_class_selects_the_agents_driver(self):
        names = (ROOT / "deploy/agent/kubernetes/names.h").read_text()
        driver = re.search(r'kDriver\[\] = "([^"]+)"', names)[1]
        (selector,) = found(built(OVERLAYS[0]), "DeviceClass", "xpud")["spec"]["selectors"]
        self.assertEqual(selector["cel"]["expression"], f'device.driver == "{driver}"')
        policy = found(built(OVERLAYS[0]), "ValidatingAdmissionPolicy", "xpud-node-agent")
        self.assertIn(f'object.spec.driver == "{driver}"', str(policy["spec"]["validations"]))

    def test_folders_are_those_that_the_agent_uses(self):
        volumes = found(built(OVERLAYS[0]), "DaemonSet", "xpud-node-agent")["spec"]["template"]["spec"]
        hosts = {volume["name"]: volume["hostPath"]["path"] for volume in volumes["volumes"] if "hostPath" in volume}
        for mount in volumes["containers"][0]["volumeMounts"]:
            if mount["name"] in hosts:
                self.assertEqual(mount["mountPath"], hosts[mount["name"]], "paths that the agent hands to the kubelet are the host's")


if __name__ == "__main__":
    unittest.main()
