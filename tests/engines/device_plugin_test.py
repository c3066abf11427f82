"""Kubernetes without dynamic resource allocation gives out slots: a kubelet of the tests, a daemon and the agent, which is a device plugin."""

import concurrent.futures
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time
import unittest

import yaml
from cluster import BINARIES, NODE, ROOT, Agent, NodeTest, wait_until
from kubelet import Kubelet
from plugin_kubelet import PluginKubelet, Refused

PYTHON = [sys.executable, "-c"]
CLIENT = {"PYTHONPATH": str(BINARIES.parent / "lib")}
WHO = "import xpud; print(xpud.asarray([1.0, 2.0]).numpy().sum())"
HOLD = "import sys, xpud; x = xpud.zeros(1 << 18); x.numpy(); print('ready', flush=True); sys.stdin.read()"
TWO_LOOKS = 30  # seconds


def slots(device: int, *indices: int) -> list[str]:
    return [f"xpud-{device}-slot-{index}" for index in indices]


class PluginTest(NodeTest):
    MODE = "device-plugin"
    SLOTS = 10

    def start_cluster(self) -> None:
        self.kubelet = PluginKubelet(self.folder / "kubelet")
        self.kubelet.start()
        self.addCleanup(self.kubelet.stop)

    def find_agent(self) -> None:
        self.kubelet.wait_for_plugin()

    def configuration(self, mode: str | None = None, folder: str = "agent") -> str:
        return json.dumps({"socket": str(self.daemon.address), "state": str(self.folder / folder), "node": NODE, "metrics-listen": "127.0.0.1:0",
                           "grants": {"socket": "off"},
                           "kubernetes": {"mode": mode or self.MODE, "kubelet": str(self.folder / "kubelet"), "cdi": str(self.folder / "cdi"), "sysfs": str(self.folder / "sys"),
                                          "slots": self.SLOTS, "api-server": "https://127.0.0.1:9", "token-file": "/nonexistent", "ca-file": "/nonexistent"}})

    def claim(self) -> dict:
        (claim,) = self.claims().values()
        return claim

    def capacity(self) -> int:
        return sum(health == "Healthy" for health in self.kubelet.plugin.heard[-1].values())

    def run_in_container(self, mounts: list[dict], code: str) -> str:
        process = self.kubelet.start_container(mounts, [*PYTHON, code], CLIENT)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        return out

    def hold_in_container(self, mounts: list[dict]) -> subprocess.Popen:
        process = self.kubelet.start_container(mounts, [*PYTHON, HOLD], CLIENT)

        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        self.assertEqual(process.stdout.readline(), "ready\n", "the container ended early")
        return process

    def look_until(self, condition, what) -> None:
        """Waits until `condition()` holds. Has the agent look more often than it does by itself."""
        hastened = 0.0

        def holds() -> bool:
            nonlocal hastened
            if condition():
                return True
            if time.monotonic() - hastened > 0.5:
                hastened = time.monotonic()
                self.agent.process.send_signal(signal.SIGHUP)
            return False
        wait_until(holds, TWO_LOOKS, what)

    def wait_for_looks(self, count: int) -> None:
        seen = self.kubelet.looks
        self.look_until(lambda: self.kubelet.looks >= seen + count, f"{count} looks")

    def wait_for_label(self, **labels: str) -> None:
        self.look_until(lambda: labels.items() <= self.claim()["labels"].items(), lambda: f"labels {labels}: {self.claims()}")


class NumaTest(PluginTest):
    """Devices of both NUMA nodes, of none, and of an address that PCI cannot have."""

    FLAGS = ("--device", "cpu", "--test-devices", "4")
    SLOTS = 2
    PCI = {"0000:17:00.0": ("pci0000:16", 0), "0000:65:00.0": ("pci0000:64", 1), "0001:c7:1f.7": ("pci0001:c0", -1), "10000:66:00.0": ("pci10000:00", 0)}

    def test_slots_say_to_which_numa_node_they_belong(self):
        self.assertEqual(len(self.kubelet.plugin.heard[-1]), 8)
        self.assertEqual(self.kubelet.plugin.numa_nodes, dict.fromkeys(slots(0, 0, 1), [0]) | dict.fromkeys(slots(1, 0, 1), [1]))


class AllocateTest(PluginTest):
    def test_slots_are_registered_and_listed(self):
        plugin = self.kubelet.plugin
        self.assertTrue(plugin.options["get_preferred_allocation_available"])
        self.assertFalse(plugin.options["pre_start_required"])
        self.assertEqual(plugin.heard[-1], dict.fromkeys(slots(0, *range(10)), "Healthy"))
        wait_until(lambda: self.agent.readiness()[0] == 200, 10, lambda: self.agent.readiness()[1])
        self.assertEqual((self.folder / "kubelet/device-plugins/xpud.dev.sock").stat().st_mode & 0o777, 0o600)

    def test_a_container_has_its_part_and_the_claim_its_pod(self):
        memory = int(json.loads(self.daemon.ask("claim", "list", "-o", "json"))["guaranteeable"][0]["memory_bytes"])
        mounts = self.kubelet.admit(3, "pod-1", namespace="team", container="main")
        claim = self.claim()
        self.assertRegex(claim["key"], r"^dp-0-0-[0-9a-f]{16}$")
        self.assertEqual((claim["devices"], claim["class"], claim["weight"], claim["time_least"]), ([0], "interactive", 30, 2850))
        self.assertEqual(claim["memory_least_bytes"], claim["memory_most_bytes"])
        self.assertEqual(int(claim["memory_least_bytes"]) % (1 << 20), 0)
        self.assertLess(abs(int(claim["memory_least_bytes"]) - 0.3 * memory), 0.1 * memory)
        self.assertLessEqual({"engine": "device-plugin", "slots": "0:0-2"}.items(), claim["labels"].items())
        self.assertEqual(mounts, [{"container_path": "/run/xpud", "host_path": claim["door"], "read_only": True}])
        self.assertEqual(self.run_in_container(mounts, WHO), "3.0\n")
        self.wait_for_label(namespace="team", pod="pod-1", container="main", slots="0:0-2", engine="device-plugin")
        self.hold_in_container(mounts)
        self.assertEqual([session["claim"] for session in self.daemon.sessions()], [claim["key"]])
        self.assertEqual(self.claim()["key"], claim["key"])

    def test_all_slots_of_a_device_can_be_given_out(self):
        for number in range(10):
            self.kubelet.admit(1, f"pod-{number}")
        self.assertEqual({claim["labels"]["slots"] for claim in self.claims().values()}, {f"0:{i}" for i in range(10)})
        self.assertEqual(self.kubelet.free(), [])

    def test_a_claim_goes_with_its_container_after_two_looks(self):
        self.kubelet.admit(2, "pod-1")
        self.kubelet.admit(1, "pod-2")
        self.look_until(lambda: all("pod" in claim["labels"] for claim in self.claims().values()), "labels")
        self.kubelet.remove("pod-1")
        self.wait_for_looks(1)
        self.assertEqual(len(self.claims()), 2, "one look is not enough")
        removed = wait_until(lambda: len(self.claims()) == 1, TWO_LOOKS, "one claim")  # by itself
        self.assertGreater(removed, 2)
        self.wait_for_label(pod="pod-2")
        metrics = self.agent.metrics()
        self.assertEqual(metrics['xpud_agent_corrections_total{engine="device-plugin",what="claim_deleted"}'], 1)
        self.assertEqual(metrics['xpud_agent_claims{engine="device-plugin"}'], 1)

    def test_claims_stay_while_the_list_cannot_be_read_or_is_young_or_a_session_is_open(self):
        mounts = self.kubelet.admit(2, "pod-1")
        self.wait_for_label(pod="pod-1")
        self.kubelet.remove("pod-1")
        self.kubelet.fails = True
        for _ in range(8):
            self.agent.process.send_signal(signal.SIGHUP)
            time.sleep(1)
        self.assertEqual(len(self.claims()), 1)
        self.assertIn("no list today", self.agent.readiness()[1])
        self.kubelet.fails = False
        self.kubelet.stop()
        self.kubelet.start(age=0)  # it does not know its pods yet
        self.kubelet.wait_for_plugin()
        self.wait_for_looks(10)  # in about 5 s
        self.assertEqual(len(self.claims()), 1)
        held = self.hold_in_container(mounts)  # a container that PodResources does not list: an init container
        self.kubelet.stop()
        self.kubelet.start()
        self.kubelet.wait_for_plugin()
        self.wait_for_looks(10)  # in about 5 s
        self.assertEqual(len(self.claims()), 1)
        held.kill()
        held.wait()
        self.look_until(lambda: not self.claims(), "no claim")

    def test_a_slot_that_is_given_anew_ends_its_older_claim(self):
        first = self.kubelet.admit(3, "pod-1")
        self.wait_for_label(pod="pod-1")
        held = self.hold_in_container(first)
        before = self.claim()["key"]
        self.kubelet.remove("pod-1")
        self.kubelet.admit(2, "pod-2", ids=slots(0, 1, 4))
        self.assertNotEqual(self.claim()["key"], before)
        self.assertEqual((self.claim()["labels"]["slots"], self.claim()["weight"]), ("0:1,4", 20))
        held.kill()
        self.assertEqual(self.daemon.sessions(), [])
        self.wait_for_label(pod="pod-2")
        # The same slots, but the container is known: it must have ended.
        before = self.claim()["key"]
        self.kubelet.admit(2, "pod-3", ids=slots(0, 1, 4))
        self.assertNotEqual(self.claim()["key"], before)

    def test_an_init_container_and_its_pod_have_one_claim(self):
        ids = slots(0, 0, 1)
        (first,) = self.kubelet.plugin.allocate(ids)
        (second,) = self.kubelet.plugin.allocate(list(reversed(ids)))
        self.assertEqual(first, second)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(lambda _: self.kubelet.plugin.allocate(ids), range(8))), [[first]] * 8)
        self.assertEqual(len(self.claims()), 1)

    def test_what_cannot_be_is_refused_with_the_reason(self):
        for ids, reason in ((["xpud-7-slot-0"], "no slot xpud-7-slot-0"), (["xpud-0-slot-10"], "no slot xpud-0-slot-10"), (["gpu-0"], "no slot .gpu-0"),
                            ([], "needs one"), (["\x1b[2J"], "no slot")):
            with self.assertRaisesRegex(Refused, reason):
                self.kubelet.plugin.allocate(ids)
            with self.assertRaisesRegex(Refused, reason):
                self.kubelet.plugin.allocate(slots(0, 5), ids)  # the others are not begun
        self.assertEqual(self.claims(), {})
        with self.assertRaisesRegex(Refused, "slot"):
            self.kubelet.plugin.prefer(["nonsense"], 1)
        self.daemon.ask("claim", "create", "other", "--time", "50%..")
        with self.assertRaisesRegex(Refused, "RESOURCE_EXHAUSTED"):
            self.kubelet.plugin.allocate(slots(0, *range(10)))
        # The list is corrected: half of the slots are left.
        wait_until(lambda: 4 <= self.capacity() <= 5, 5, lambda: str(self.kubelet.plugin.heard[-1]))
        self.kubelet.admit(self.capacity(), "pod-1")
        self.assertEqual(self.agent.metrics()['xpud_agent_refusals_total{engine="device-plugin",code="RESOURCE_EXHAUSTED"}'], 1)

    def test_claims_of_others_are_left_alone(self):
        self.daemon.ask("claim", "create", "operator", "--label", "slots=0:0-9")
        self.kubelet.admit(2, "pod-1")
        self.kubelet.remove("pod-1")
        self.look_until(lambda: set(self.claims()) == {"operator"}, lambda: str(self.claims()))


class HealthTest(PluginTest):
    FLAGS = ("--device", "cpu", "--test-devices", "2", "--executor", "process")
    SLOTS = 4

    def healthy(self, expected: set[int]):
        return lambda heard: {int(name.split("-")[1]) for name, health in heard.items() if health == "Healthy"} == expected and len(heard) == 8

    def test_slots_are_unhealthy_while_their_device_is_and_healthy_again(self):
        plugin = self.kubelet.plugin
        plugin.wait(self.healthy({0, 1}), 5)
        self.daemon.ask("drain", "on")
        plugin.wait(self.healthy(set()), 5)
        self.daemon.ask("drain", "off")
        plugin.wait(self.healthy({0, 1}), 5)
        self.daemon.kill()
        plugin.wait(self.healthy(set()), 5)
        self.daemon.start()
        plugin.wait(self.healthy({0, 1}), 5)
        self.assertEqual(self.kubelet.registrations, 1)

    def test_requests_are_packed_and_spread_equally(self):
        plugin = self.kubelet.plugin
        plugin.wait(self.healthy({0, 1}), 5)
        self.kubelet.admit(2, "pod-1")
        self.assertEqual(self.kubelet.plugin.prefer(self.kubelet.free(), 2), slots(0, 2, 3), "the fuller device")
        self.assertEqual(self.kubelet.plugin.prefer(self.kubelet.free(), 3), slots(1, 0, 1, 2))
        self.assertEqual(self.kubelet.plugin.prefer(self.kubelet.free(), 2, slots(1, 3)), slots(1, 0, 3))
        both = self.kubelet.plugin.prefer(self.kubelet.free(), 4, slots(0, 2))
        self.assertEqual(both, slots(0, 2, 3) + slots(1, 0, 1))
        (answer,) = plugin.allocate(both)
        claim = next(claim for claim in self.claims().values() if len(claim["devices"]) == 2)
        self.assertEqual((claim["devices"], claim["weight"], claim["time_least"], claim["labels"]["slots"]), ([0, 1], 50, 4750, "0:2-3;1:0-1"))
        self.assertEqual(self.run_in_container(answer["mounts"], "import xpud; print(len(xpud.default_session().devices))"), "2\n")
        with self.assertRaisesRegex(Refused, "INVALID_ARGUMENT.*1 slots of xpud-0 and 2 of xpud-1"):
            plugin.allocate(slots(0, 2) + slots(1, 0, 1))


class RecoveryTest(PluginTest):
    def test_a_kubelet_that_restarts_knows_the_plugin_again(self):
        mounts = self.kubelet.admit(2, "pod-1")
        self.hold_in_container(mounts)
        for _ in range(3):
            self.kubelet.stop()  # its files stay, as after SIGKILL
            time.sleep(random.uniform(0, 1))
            self.kubelet.start()
            self.assertLess(self.kubelet.wait_for_plugin(), 2)
        self.wait_for_label(pod="pod-1")
        self.kubelet.admit(1, "pod-2")
        self.assertEqual(len(self.claims()), 2)
        self.assertEqual(len(self.daemon.sessions()), 1, "the pod runs on")

    def test_a_removed_socket_is_made_again(self):
        self.kubelet.plugin.close()
        self.kubelet.plugin = None
        (self.folder / "kubelet/device-plugins/xpud.dev.sock").unlink()
        self.assertLess(self.kubelet.wait_for_plugin(), 2)
        self.kubelet.admit(1, "pod-1")

    def test_no_kubelet_is_a_condition(self):
        self.kubelet.stop()
        wait_until(lambda: "kubelet" in self.agent.readiness()[1], 10, lambda: self.agent.readiness()[1])
        self.assertEqual(self.agent.health(), 200)
        for path in (self.folder / "kubelet/device-plugins").iterdir():
            path.unlink()
        (self.folder / "kubelet/device-plugins").rmdir()
        time.sleep(1)
        (self.folder / "kubelet/device-plugins").mkdir(exist_ok=True)
        self.kubelet.start()
        self.assertLess(self.kubelet.wait_for_plugin(), 5)
        wait_until(lambda: self.agent.readiness()[0] == 200, 10, lambda: self.agent.readiness()[1])

    def test_an_agent_that_was_killed_before_it_knew_the_pod_learns_of_it(self):
        self.kubelet.fails = True
        mounts = self.kubelet.admit(2, "pod-1")
        self.kubelet.plugin.allocate(slots(0, 8))  # a container that never came to be
        self.hold_in_container(mounts)
        self.agent.stop(signal.SIGKILL)
        registrations = self.kubelet.registrations
        self.agent.start()
        wait_until(lambda: self.kubelet.registrations > registrations, 5, "a registration")
        self.assertEqual(len(self.claims()), 2)
        self.kubelet.fails = False
        self.look_until(lambda: len(self.claims()) == 1, "one claim")
        self.wait_for_label(pod="pod-1", slots="0:0-1")
        self.assertEqual(len(self.daemon.sessions()), 1)

    def test_sigterm_leaves_claims_and_the_socket_goes(self):
        self.kubelet.admit(2, "pod-1")
        self.assertEqual(self.agent.stop(), 0)
        self.assertEqual(len(self.claims()), 1)
        self.assertFalse((self.folder / "kubelet/device-plugins/xpud.dev.sock").exists())

    def test_a_daemon_that_lost_its_claims_gets_them_again(self):
        mounts = self.kubelet.admit(4, "pod-1")
        self.wait_for_label(pod="pod-1")
        before = self.claim()
        self.daemon.kill()
        for path in (self.folder / "state").rglob("*"):
            if path.is_file():
                path.unlink()
        self.daemon.start()
        wait_until(self.claims, 15, "the claim")
        keys = ("key", "devices", "weight", "time_least", "memory_least_bytes", "labels")
        self.assertEqual({key: self.claim()[key] for key in keys}, {key: before[key] for key in keys})
        self.assertEqual(self.run_in_container(mounts, WHO), "3.0\n")

    def test_an_allocation_waits_for_a_daemon_that_restarts(self):
        self.daemon.kill()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.kubelet.plugin.allocate, slots(0, 0))
            time.sleep(1)
            self.daemon.start()
            ((mount,),) = [each["mounts"] for each in answer.result()]
        self.assertEqual(mount["host_path"], self.claim()["door"])

    def test_kills_at_any_point_leave_nothing(self):
        chosen = random.Random(7)
        for number in range(100 if os.environ.get("XPUD_TEST_FULL") else 6):
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                work = [pool.submit(self.kubelet.plugin.allocate, slots(0, 3 * number % 9, 3 * number % 9 + 1 + each), seconds=5) for each in range(2)]
                time.sleep(chosen.uniform(0, 0.03))
                victim = chosen.choice(("agent", "daemon", "kubelet"))
                if victim == "agent":
                    registrations = self.kubelet.registrations
                    self.agent.stop(signal.SIGKILL)
                    self.agent.start()
                    wait_until(lambda: self.kubelet.registrations > registrations, 10, "a registration")
                elif victim == "daemon":
                    self.daemon.kill()
                    self.daemon.start()
                else:
                    self.kubelet.stop()
                    self.kubelet.start()
                    self.kubelet.wait_for_plugin(5)
                concurrent.futures.wait(work)
        self.look_until(lambda: not self.claims(), lambda: str(self.claims()))
        wait_until(lambda: all(health == "Healthy" for health in self.kubelet.plugin.heard[-1].values()), 10, "all healthy")
        for pod in range(10):
            self.kubelet.admit(1, f"pod-{pod}")
        self.assertEqual(len(self.claims()), 10)


class OneModeTest(PluginTest):
    def second(self, mode: str) -> Agent:
        (self.folder / "second").mkdir()
        agent = Agent(self.folder / "second", self.configuration(mode, "second"))
        self.addCleanup(agent.stop, signal.SIGKILL)
        agent.start()
        return agent

    def drivers(self) -> list[pathlib.Path]:
        return list((self.folder / "kubelet/plugins_registry").glob("*.sock"))

    def test_an_agent_of_the_other_mode_waits_until_this_one_has_ended(self):
        second = self.second("dra")
        wait_until(lambda: "another agent serves" in second.readiness()[1], 5, lambda: second.readiness()[1])
        self.assertEqual(self.drivers(), [])
        self.kubelet.admit(1, "pod-1")
        self.agent.stop()
        wait_until(self.drivers, 5, "the socket")
        dra = Kubelet(self.folder / "kubelet", self.folder / "cdi")
        dra.find_drivers()
        self.addCleanup(dra.restart)
        # And the other way round.
        self.agent.start()
        wait_until(lambda: "another agent serves" in self.agent.readiness()[1], 5, lambda: self.agent.readiness()[1])
        registrations = self.kubelet.registrations
        time.sleep(2)
        self.assertEqual(self.kubelet.registrations, registrations)
        second.stop(signal.SIGKILL)  # its socket's file stays
        wait_until(lambda: self.kubelet.registrations > registrations, 5, "a registration")

    def test_a_second_agent_of_this_mode_takes_nothing(self):
        second = self.second("device-plugin")
        wait_until(lambda: "another agent serves" in second.readiness()[1], 5, lambda: second.readiness()[1])
        self.kubelet.admit(1, "pod-1")
        self.assertEqual(self.kubelet.registrations, 1)

    def test_a_socket_that_nobody_serves_hinders_nobody(self):
        self.agent.stop()
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(self.folder / "kubelet/device-plugins/xpud.dev.sock"))
        left.close()
        registrations = self.kubelet.registrations
        self.agent.start()
        wait_until(lambda: self.kubelet.registrations > registrations, 5, "a registration")


class ManifestTest(unittest.TestCase):
    def test_the_overlay_sets_the_mode_and_gives_no_rights(self):
        kubectl = pathlib.Path(sys.executable).parent / "kubectl"
        built = subprocess.run([kubectl, "kustomize", ROOT / "deploy/kubernetes/overlays/device-plugin"], check=True, capture_output=True, text=True).stdout
        items = [item for item in yaml.safe_load_all(built) if item]
        kinds = {item["kind"] for item in items}
        self.assertFalse(kinds & {"ClusterRole", "ClusterRoleBinding", "DeviceClass", "ValidatingAdmissionPolicy"}, kinds)
        (text,) = [item["data"]["agent.yaml"] for item in items if item["kind"] == "ConfigMap" and item["metadata"]["name"] == "xpud-node-agent"]
        self.assertEqual(yaml.safe_load(text)["kubernetes"]["mode"], "device-plugin")
        (agent,) = [item for item in items if item["kind"] == "DaemonSet" and item["metadata"]["name"] == "xpud-node-agent"]
        pod = agent["spec"]["template"]["spec"]
        mounted = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        self.assertLessEqual({"/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources", "/var/lib/kubelet/plugins_registry"}, mounted)
        self.assertEqual({volume["name"] for volume in pod["volumes"]}, {mount["name"] for mount in pod["containers"][0]["volumeMounts"]})
        self.assertIs(pod["automountServiceAccountToken"], False)


if __name__ == "__main__":
    unittest.main()
