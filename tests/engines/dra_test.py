"""Kubernetes gives out parts of a device: a kubelet, an API server, a daemon and the agent, all real but for the first two."""

import concurrent.futures
import json
import os
import random
import shutil
import signal
import sys
import time
import unittest

import yaml
from cluster import BINARIES, NODE, ROOT, NodeTest, wait_until
from kubelet import DriverError
from metrics import scrape, series
from wire import HEALTHY, UNHEALTHY

PYTHON = [sys.executable, "-c"]
CLIENT = {"PYTHONPATH": str(BINARIES.parent / "lib")}
WHO = "import json, xpud; print(xpud.asarray([1.0, 2.0]).numpy().sum())"
HOLD = "import sys, xpud; x = xpud.zeros(1 << 18); x.numpy(); print('ready', flush=True); sys.stdin.read()"


class Dra(NodeTest):
    def run_in_container(self, ids: list[str], code: str) -> str:
        process = self.kubelet.start_container(ids, [*PYTHON, code], env=CLIENT)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        return out

    def hold_in_container(self, ids: list[str]):
        process = self.kubelet.start_container(ids, [*PYTHON, HOLD], env=CLIENT)

        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        self.assertEqual(process.stdout.readline(), "ready\n", "the container ended early")
        return process

    def reconcile(self) -> None:
        self.agent.process.send_signal(signal.SIGHUP)


class SliceTest(Dra):
    FLAGS = ("--device", "cpu", "--test-devices", "2")

    def test_the_slice_says_what_the_devices_are_and_what_can_be_guaranteed(self):
        item = self.slice()
        self.assertEqual(item["spec"]["nodeName"], NODE)
        self.assertEqual(item["spec"]["pool"]["name"], NODE)
        devices = {device["name"]: device for device in item["spec"]["devices"]}
        self.assertEqual(sorted(devices), ["xpud-0", "xpud-1"])
        device = devices["xpud-0"]
        self.assertTrue(device["allowMultipleAllocations"])
        self.assertEqual(device["attributes"]["kind"], {"string": "cpu"})
        self.assertEqual(device["capacity"]["share"]["value"], "100")
        self.assertIn(device["capacity"]["claims"]["value"], ("1024", "1Ki"))
        self.assertNotIn("taints", device)

    def test_what_others_are_guaranteed_is_not_offered(self):
        self.slice()
        self.daemon.ask("claim", "create", "other", "--time", "38%..", "--device", "1")

        def shares():
            return [device["capacity"]["share"]["value"] for device in self.slice()["spec"]["devices"]]
        wait_until(lambda: shares() == ["100", "60"], 15, f"60 shares, not {shares()}")
        self.kubelet.must_prepare(self.claim(share=60, device="xpud-1"))  # the agent's own claims change nothing
        time.sleep(0.5)
        self.assertEqual(shares(), ["100", "60"])

    def test_a_claim_has_the_devices_that_were_allocated(self):
        ids = self.kubelet.must_prepare(self.claim(device="xpud-1"))
        self.assertEqual(next(iter(self.claims().values()))["devices"], [1])
        self.assertEqual(self.run_in_container(ids, "import xpud; print(len(xpud.default_session().devices))"), "1\n")

    def test_a_drained_daemon_taints_its_devices(self):
        self.slice()
        self.daemon.ask("drain", "on")
        wait_until(lambda: all(device.get("taints") for device in self.slice()["spec"]["devices"]), 10, "taints")
        self.daemon.ask("drain", "off")
        wait_until(lambda: not any(device.get("taints") for device in self.slice()["spec"]["devices"]), 10, "no taints")


class PciTest(Dra):
    """PCI cannot have the second device's address; the third device is of no NUMA node."""

    FLAGS = ("--device", "cpu", "--test-devices", "3")
    PCI = {"0000:65:00.0": ("pci0000:64/0000:64:01.0", 1), "10000:66:00.0": ("pci10000:00", 0), "0001:c7:1f.7": ("pci0001:c0", -1)}

    def test_the_slice_says_where_devices_are_on_pci(self):
        attributes = [device["attributes"] for device in self.slice()["spec"]["devices"]]
        places = [{name.partition("/")[2]: value["string"] for name, value in each.items() if name.startswith("resource.kubernetes.io/")} for each in attributes]
        self.assertEqual(places, [{"pciBusID": "0000:65:00.0", "pcieRoot": "pci0000:64"}, {}, {"pciBusID": "0001:c7:1f.7", "pcieRoot": "pci0001:c0"}])
        self.assertEqual([each.get("pciAddress", {}).get("string") for each in attributes], ["0000:65:00.0", None, "0001:c7:1f.7"])


class PrepareTest(Dra):
    def test_a_pod_has_its_claim_and_nothing_else(self):
        name = self.claim(share=30, memory="1Gi", parameters={"class": "batch", "mostTime": "50%", "sessions": 4})
        ids = self.kubelet.must_prepare(name)
        self.assertEqual(ids, [f"xpud.dev/claim={name['uid']}"])
        ((key, claim),) = self.claims().items()
        self.assertEqual(key, f"k8s-{name['uid']}")
        self.assertEqual((claim["class"], claim["weight"], claim["time_least"], claim["time_most"], claim["sessions_most"]), ("batch", 30, 2850, 5000, 4))
        self.assertEqual((int(claim["memory_least_bytes"]), int(claim["memory_most_bytes"])), (1 << 30, 1 << 30))
        self.assertEqual(claim["labels"] | {"engine": "kubernetes", "namespace": "default", "pod": "pod-1"}, claim["labels"])
        self.assertTrue(claim["kept"])
        self.hold_in_container(ids)
        (session,) = self.daemon.sessions()
        self.assertEqual(session["claim"], key)
        self.kubelet.unprepare(name)
        self.expect_nothing_left()
        self.assertEqual(self.daemon.sessions(), [])

    def test_a_container_cannot_change_what_is_mounted(self):
        ids = self.kubelet.must_prepare(self.claim())
        self.run_in_container(ids, """
import errno, os
for change in (lambda: os.unlink("/run/xpud/xpud.sock"), lambda: open("/run/xpud/x", "w"), lambda: os.rename("/run/xpud/xpud.sock", "/run/xpud/y")):
    try: change()
    except OSError as error: assert error.errno == errno.EROFS, error
    else: raise SystemExit("changed")
flags = os.statvfs("/run/xpud").f_flag
assert flags & os.ST_NOSUID and flags & os.ST_NODEV and flags & os.ST_NOEXEC and flags & os.ST_RDONLY, flags
""")

    def test_any_user_of_a_container_has_the_claim(self):
        ids = self.kubelet.must_prepare(self.claim())
        process = self.kubelet.start_container(ids, ["/usr/bin/python3", "-c", "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('/run/xpud/xpud.sock')"], uid=12345)
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0, err)

    def test_the_same_call_again_changes_nothing(self):
        name = self.claim()
        first = self.kubelet.prepare(name)
        self.assertEqual(self.kubelet.prepare(name), first)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(lambda _: self.kubelet.prepare(name), range(16))), [first] * 16)
        self.assertEqual(len(self.claims()), 1)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: self.kubelet.unprepare(name), range(16)))
        self.expect_nothing_left()
        self.kubelet.unprepare({"namespace": "default", "uid": "00000000-0000-0000-0000-000000000000", "name": "never"})

    def test_a_late_prepare_is_refused_also_by_the_next_agent(self):
        name = self.claim(pods=("pod-1",))
        self.kubelet.must_prepare(name)
        self.kubelet.unprepare(name)
        for _ in range(2):
            with self.assertRaisesRegex(DriverError, "was unprepared after this call"):
                self.kubelet.must_prepare(name)
            self.expect_nothing_left()
            self.agent.stop()
            self.agent.start()
            self.kubelet.restart()
            self.kubelet.find_drivers()
        item = self.api.all("resourceclaims")[0]
        item["status"]["reservedFor"] = [{"resource": "pods", "name": "pod-2", "uid": "uid-of-pod-2"}]
        self.api.put("resourceclaims", item)
        self.kubelet.must_prepare(name)  # another pod has the same claim
        self.assertEqual(len(self.claims()), 1)

    def test_a_prepare_that_was_overtaken_by_its_unprepare_is_refused(self):
        name = self.claim()
        self.kubelet.unprepare(name)
        with self.assertRaisesRegex(DriverError, "was unprepared after this call"):
            self.kubelet.must_prepare(name)
        self.expect_nothing_left()

    def test_one_wrong_claim_does_not_keep_the_others_from_being_prepared(self):
        good = self.claim(share=10)
        wrong = {"class": self.claim(share=10, parameters={"class": "urgent"}), "field": self.claim(share=10, parameters={"speed": 9}),
                 "share": self.claim(share=101), "node": self.claim(share=10, node="node-2"), "driver": self.claim(share=10, driver="gpu.example.com"),
                 "most": self.claim(share=50, parameters={"mostTime": "10%"}), "device": self.claim(share=10, device="xpud-7")}
        missing = {"namespace": "default", "uid": "11111111-0000-0000-0000-000000000000", "name": "missing"}
        other_uid = dict(good, uid="22222222-0000-0000-0000-000000000000")
        hostile = {"namespace": "../../etc", "uid": "../x", "name": "a/b?c"}
        answers = self.kubelet.prepare(good, *wrong.values(), missing, other_uid, hostile)
        self.assertEqual(answers[good["uid"]]["error"], "")
        said = {what: answers[name["uid"]]["error"] for what, name in wrong.items()}
        self.assertRegex(said["class"], "urgent.*realtime, interactive,? (or )?batch")
        self.assertRegex(said["field"], "speed")
        self.assertRegex(said["share"], "101.*100")
        self.assertRegex(said["node"], "node-2.*node-1")
        self.assertRegex(said["most"], "below")
        self.assertRegex(said["device"], "no device 7")
        for name in (*wrong.values(), missing, other_uid, hostile):
            self.assertTrue(answers[name["uid"]]["error"], name)
        self.assertEqual(len(self.claims()), 1)
        self.assertEqual(len(self.files()), 1)

    def test_more_than_the_daemon_can_guarantee_is_refused_with_the_sums(self):
        self.kubelet.must_prepare(self.claim(share=80))
        with self.assertRaisesRegex(DriverError, r"19% of its time are wanted, and claims are guaranteed 76% of 95%|28.5% of its time"):
            self.kubelet.must_prepare(self.claim(share=30))
        self.assertEqual(len(self.claims()), 1)

    def test_beyond_its_memory_a_pod_is_refused_and_its_neighbour_computes_on(self):
        small, other = self.claim(share=30, memory="64Mi"), self.claim(share=70, memory="64Mi")
        ids, other_ids = self.kubelet.must_prepare(small), self.kubelet.must_prepare(other)
        code = "import xpud, numpy\nfor i in range(300):\n    a = xpud.asarray(numpy.full((64, 64), 2.0, 'float32'))\n    assert ((a @ a).numpy() == 256).all()\nprint('right')"
        neighbour = self.kubelet.start_container(other_ids, [*PYTHON, code], env=CLIENT)
        out = self.run_in_container(ids, "import xpud\ntry: x = xpud.zeros(32 << 20); x.numpy()\nexcept Exception as error: print(type(error).__name__)")
        self.assertRegex(out, "Memory")
        self.assertEqual(neighbour.communicate(timeout=120)[0], "right\n")

    def test_many_claims_at_once(self):
        names = [self.claim(share=1, memory="1Mi") for _ in range(80)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(self.kubelet.must_prepare, names))
        self.assertEqual((len(self.claims()), len(self.files())), (80, 80))
        self.kubelet.unprepare(*names)
        self.expect_nothing_left()

    def test_an_engine_that_is_served_and_has_no_claims_has_the_number_0(self):
        counts = {name: value for name, value in self.agent.metrics().items() if name.startswith("xpud_agent_claims")}
        self.assertEqual(counts, {'xpud_agent_claims{engine="kubernetes"}': 0})

    def test_metrics_and_logs_say_what_was_done(self):
        name = self.claim()
        self.kubelet.must_prepare(name)
        with self.assertRaises(DriverError):
            self.kubelet.must_prepare(self.claim(share=101))
        metrics = self.agent.metrics()
        self.assertEqual(metrics['xpud_agent_claims{engine="kubernetes"}'], 1)
        self.assertEqual(metrics['xpud_agent_call_seconds_count{engine="kubernetes",action="prepare"}'], 2)
        self.assertEqual(metrics['xpud_agent_refusals_total{engine="kubernetes",code="INVALID_ARGUMENT"}'], 1)
        self.assertGreaterEqual(metrics['xpud_agent_api_requests_total{engine="kubernetes",code="200"}'], 2)
        log = self.agent.log.read_text()
        self.assertIn(f"prepare engine=kubernetes claim=default/{name['name']} uid={name['uid']}", log)
        self.assertNotIn(self.api.token_file.read_text().strip(), log)

    def test_the_manifest_allows_what_the_agent_asks_and_no_more(self):
        self.kubelet.must_prepare(self.claim())
        wait_until(lambda: any(verb == "watch" for verb, *_ in self.seen()), 10, "a watch")
        self.api.remove("resourceslices", self.slice()["metadata"]["name"])  # it is made again
        self.slice()
        self.daemon.ask("drain", "on")
        wait_until(lambda: any(verb == "update" for verb, *_ in self.seen()), 10, "an update")
        rules = next(item for item in yaml.safe_load_all((ROOT / "deploy/kubernetes/base/role.yaml").read_text()) if item["kind"] == "ClusterRole")["rules"]
        allowed = {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
        used = {(verb, resource) for verb, resource, _ in self.seen()}
        self.assertEqual(used - allowed, set())
        self.assertEqual({(verb, resource) for verb, resource in allowed - used}, set(), "rights that the agent does not need")

    def seen(self) -> list:
        self._seen = getattr(self, "_seen", []) + self.api.asked()
        return self._seen


class ContainerLabelTest(Dra):
    FLAGS = ("--device", "cpu", "--metrics-listen", "0")

    def start_cluster(self) -> None:
        super().start_cluster()
        self.kubelet.serve_containers()
        self.addCleanup(self.kubelet.end_containers)

    def label(self, name: dict) -> str | None:
        return self.claims()[f"k8s-{name['uid']}"]["labels"].get("container")

    def wait_for_label(self, name: dict, text: str) -> None:
        wait_until(lambda: self.label(name) == text, 20, lambda: f"{text}, not {self.label(name)}")

    def test_a_claim_is_labelled_with_its_container(self):
        name, other = self.claim(), self.claim(pods=("pod-2",))
        self.kubelet.must_prepare(name)  # the kubelet makes the container afterwards
        self.kubelet.must_prepare(other)
        self.assertIsNone(self.label(name))
        self.kubelet.containers[("default", "pod-1", "main")] = [name]
        self.wait_for_label(name, "main")
        self.assertEqual(self.claims()[f"k8s-{name['uid']}"]["labels"]["pod"], "pod-1")
        self.assertIsNone(self.label(other))
        expected = {"label_container": "main", "label_pod": "pod-1", "label_namespace": "default"}

        def infos() -> dict[str, dict[str, str]]:
            return {labels["claim"]: labels for labels, _ in series(scrape(self.daemon), "xpud_claim_info")}
        wait_until(lambda: expected.items() <= infos()[f"k8s-{name['uid']}"].items(), 10, lambda: str(infos()))
        self.assertNotIn("label_container", infos()[f"k8s-{other['uid']}"])
        self.kubelet.must_prepare(name)  # the same call again does not take the label away
        self.assertEqual(self.label(name), "main")
        self.reconcile()
        self.kubelet.containers[("default", "pod-2", "side")] = [other]
        self.wait_for_label(other, "side")
        self.assertEqual(self.label(name), "main")
        self.assertNotIn('xpud_agent_corrections_total', str(self.agent.metrics()))

    def test_several_containers_and_pods_are_all_named(self):
        name, shared = self.claim(), self.claim(pods=("pod-1", "pod-2"))
        self.kubelet.containers = {("default", "pod-1", "worker"): [name, shared], ("default", "pod-1", "main"): [name], ("default", "pod-2", "main"): [shared]}
        self.kubelet.must_prepare(name)
        self.kubelet.must_prepare(shared)
        self.wait_for_label(name, "main,worker")
        self.wait_for_label(shared, "pod-1/worker,pod-2/main")

    def test_a_claim_of_the_same_name_has_its_own_label(self):
        first = self.claim(name="part")
        self.kubelet.must_prepare(first)
        self.kubelet.containers = {("default", "pod-1", "main"): [first]}
        self.wait_for_label(first, "main")
        self.kubelet.unprepare(first)
        self.api.remove("resourceclaims", "part", "default")
        second = self.claim(name="part", pods=("pod-2",))
        looks = self.kubelet.looks
        self.kubelet.must_prepare(second)
        wait_until(lambda: self.kubelet.looks > looks + 1, 10, "two looks")
        self.assertIsNone(self.label(second))

    def test_the_label_outlives_the_agent_and_the_daemons_claims(self):
        name = self.claim()
        self.kubelet.must_prepare(name)
        self.kubelet.containers = {("default", "pod-1", "main"): [name]}
        self.wait_for_label(name, "main")
        self.kubelet.end_containers()
        self.agent.stop(signal.SIGKILL)
        self.agent.start()
        self.kubelet.restart()
        self.kubelet.find_drivers()
        wait_until(lambda: self.agent.readiness()[0] == 200, 20, lambda: self.agent.readiness()[1])
        self.assertEqual(self.label(name), "main")
        self.daemon.ask("claim", "delete", f"k8s-{name['uid']}")
        self.reconcile()
        wait_until(self.claims, 10, "the claim is there again")
        self.assertEqual(self.label(name), "main")

    def test_looks_end_when_nothing_is_missing(self):
        name = self.claim()
        self.kubelet.containers = {("default", "pod-1", "main"): [name]}
        self.kubelet.must_prepare(name)
        self.wait_for_label(name, "main")
        looks = self.kubelet.looks
        other = self.claim(pods=("pod-2",))
        self.kubelet.must_prepare(other)
        wait_until(lambda: self.kubelet.looks == looks + 2, 10, "a second look, because the other claim has no container yet")
        self.kubelet.unprepare(other)
        wait_until(lambda: self.kubelet.looks == looks + 3, 10, "the look that finds nothing missing")
        time.sleep(3)  # the next one would have come after 2 s
        self.assertEqual(self.kubelet.looks, looks + 3)

    def test_a_kubelet_that_lists_nothing_disturbs_nothing(self):
        self.kubelet.end_containers()
        name = self.claim()
        self.kubelet.must_prepare(name)
        wait_until(lambda: "containers_unknown" in self.agent.log.read_text(), 10, "a look")
        self.reconcile()
        wait_until(lambda: self.agent.readiness()[0] == 200, 20, lambda: self.agent.readiness()[1])
        self.assertIsNone(self.label(name))
        self.kubelet.containers = {("default", "pod-1", "main"): [name]}
        self.kubelet.serve_containers()
        self.reconcile()
        self.wait_for_label(name, "main")
        self.kubelet.unprepare(name)
        self.expect_nothing_left()


class RecoveryTest(Dra):
    def test_what_was_deleted_while_the_agent_was_away_is_removed(self):
        gone, stays, anew = self.claim(share=10), self.claim(share=10), self.claim(share=10)
        for name in (gone, stays, anew):
            self.kubelet.must_prepare(name)
        self.agent.stop()
        self.assertEqual(len(self.claims()), 3, "SIGTERM leaves claims in place")
        self.api.remove("resourceclaims", gone["name"], "default")
        self.api.remove("resourceclaims", anew["name"], "default")
        self.claim(share=10, name=anew["name"])  # another claim of the same name
        self.agent.start()
        wait_until(lambda: set(self.claims()) == {f"k8s-{stays['uid']}"}, 10, "one claim")
        wait_until(lambda: len(self.files()) == 1, 10, "one file")
        self.assertGreaterEqual(self.agent.metrics()['xpud_agent_corrections_total{engine="kubernetes",what="claim_deleted"}'], 2)

    def test_a_claim_that_nobody_has_reserved_is_removed(self):
        name = self.claim()
        item = self.api.all("resourceclaims")[0]
        item["status"]["reservedFor"] = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "group", "uid": "uid-of-group"}]
        self.api.put("resourceclaims", item)
        self.kubelet.must_prepare(name)
        self.api.asked()
        self.reconcile()
        wait_until(lambda: ("get", "resourceclaims", name["name"]) in self.api.asked(), 10, "a reconciliation")
        self.assertEqual((len(self.claims()), len(self.files())), (1, 1), "not only pods reserve claims")
        item["status"]["reservedFor"] = []
        self.api.put("resourceclaims", item)
        self.reconcile()
        wait_until(lambda: not self.claims() and not self.files(), 10, "nothing")

    def test_files_lost_at_a_reboot_are_written_anew(self):
        name = self.claim()
        ids = self.kubelet.must_prepare(name)
        text = (self.folder / "cdi" / self.files()[0]).read_text()
        for folder_too in (False, True):
            shutil.rmtree(self.folder / "cdi")
            if not folder_too:
                (self.folder / "cdi").mkdir()
            self.reconcile()  # it happens each 55 s anyway
            wait_until(lambda: (self.folder / "cdi").exists() and self.files(), 10, "the file")
            self.assertEqual((self.folder / "cdi" / self.files()[0]).read_text(), text)
        shutil.rmtree(self.folder / "cdi")
        self.api.stop()  # nor is the API server needed
        self.reconcile()
        wait_until(lambda: (self.folder / "cdi").exists() and self.files(), 30, "the file")
        self.assertEqual(self.run_in_container(ids, WHO), "3.0\n")

    def test_unreadable_files_stop_nothing(self):
        good = self.claim()
        self.kubelet.must_prepare(good)
        self.agent.stop()
        cdi = self.folder / "cdi"
        right = (cdi / self.files()[0]).read_text()
        (cdi / self.files()[0]).write_text("{")
        (cdi / "xpud.dev-claim_33333333-0000-0000-0000-000000000000.json").write_text("\0\xff")
        (cdi / "xpud.dev-claim_44444444-0000-0000-0000-000000000000.json").mkdir()
        (cdi / "other-vendor.json").write_text("not ours")
        (self.folder / "agent/tombstones").write_text("\0\0 x\n\n")
        self.agent.start()
        wait_until(lambda: (cdi / f"xpud.dev-claim_{good['uid']}.json").read_text() == right, 10, "the file of the claim")
        wait_until(lambda: not (cdi / "xpud.dev-claim_33333333-0000-0000-0000-000000000000.json").exists(), 10, "no garbage")
        self.assertEqual((cdi / "other-vendor.json").read_text(), "not ours")
        self.kubelet.restart()
        self.kubelet.find_drivers()
        self.kubelet.must_prepare(self.claim())

    def test_a_daemon_that_lost_its_claims_gets_them_again(self):
        name = self.claim(share=40)
        ids = self.kubelet.must_prepare(name)
        before = self.claims()[f"k8s-{name['uid']}"]
        self.daemon.kill()
        for path in (self.folder / "state").rglob("*"):
            if path.is_file():
                path.unlink()
        self.daemon.start()
        wait_until(lambda: self.claims(), 15, "the claim")
        after = self.claims()[f"k8s-{name['uid']}"]
        self.assertEqual({key: after[key] for key in ("devices", "weight", "time_least", "labels")},
                         {key: before[key] for key in ("devices", "weight", "time_least", "labels")})
        self.assertEqual(self.run_in_container(ids, WHO), "3.0\n")

    def test_a_daemon_that_restarts_keeps_them(self):
        name = self.claim()
        ids = self.kubelet.must_prepare(name)
        self.daemon.kill()
        self.assertEqual(self.agent.health(), 200)
        with self.assertRaises(Exception):
            self.kubelet.prepare(self.claim(), seconds=3)  # no daemon: it is retried
        wait_until(lambda: "daemon" in self.agent.readiness()[1], 10, "the condition")
        self.daemon.start()
        self.assertEqual(self.run_in_container(ids, WHO), "3.0\n")
        wait_until(lambda: self.agent.readiness()[0] == 200, 15, "ready")

    def test_claims_of_others_are_left_alone(self):
        self.daemon.ask("claim", "create", "operator")
        name = self.claim()
        self.daemon.ask("claim", "create", f"k8s-{name['uid']}")
        with self.assertRaisesRegex(DriverError, "did not make"):
            self.kubelet.must_prepare(name)
        with self.assertRaisesRegex(DriverError, "not one that this agent made"):
            self.kubelet.unprepare(name)
        self.reconcile()
        time.sleep(1)
        self.assertEqual(set(self.claims()), {"operator", f"k8s-{name['uid']}"})

    def test_a_kubelet_that_restarts_finds_the_driver_again(self):
        name = self.claim()
        self.kubelet.must_prepare(name)
        self.kubelet.restart()
        self.assertLess(self.kubelet.find_drivers(), 2)
        self.kubelet.unprepare(name)
        self.expect_nothing_left()

    def test_no_api_server_an_expired_token_or_a_full_disk_end_no_pod(self):
        first = self.claim(share=10)
        ids = self.kubelet.must_prepare(first)
        wait_until(lambda: self.agent.readiness()[0] == 200, 10, self.agent.readiness()[1])
        self.hold_in_container(ids)

        self.api.rotate(write=False)
        with self.assertRaisesRegex(DriverError, "(?i)token|unauthorized"):
            self.kubelet.must_prepare(self.claim(share=10))
        wait_until(lambda: "api-server" in self.agent.readiness()[1], 10, "the condition")
        self.api.rotate()
        self.kubelet.must_prepare(self.claim(share=10))

        self.api.stop()
        with self.assertRaisesRegex(DriverError, "connect"):
            self.kubelet.must_prepare({"namespace": "default", "uid": "55555555-0000-0000-0000-000000000000", "name": "x"})
        self.api.start()
        wait_until(lambda: self.agent.readiness()[0] == 200, 20, "ready")

        cdi = self.folder / "cdi"
        name = self.claim(share=10)
        saved = {path.name: path.read_text() for path in cdi.iterdir()}
        os.system(f"mount -t tmpfs -o size=4k,nr_inodes=2 tmpfs {cdi}")
        try:
            (cdi / "full").write_text("x" * 4096)
            with self.assertRaisesRegex(DriverError, "(?i)no space"):
                self.kubelet.must_prepare(name)
            self.assertIn("cdi-folder", self.agent.readiness()[1])
        finally:
            os.system(f"umount {cdi}")
        self.kubelet.must_prepare(name)
        self.assertLessEqual(saved.keys(), {path.name for path in cdi.iterdir()})
        self.assertEqual(self.agent.readiness()[0], 200)
        self.assertEqual(len(self.daemon.sessions()), 1, "the pod runs on")
        self.assertNotIn(self.api.token_file.read_text().strip(), self.agent.log.read_text())

    def test_kills_at_any_point_leave_nothing_and_lose_nothing(self):
        """SIGKILL of the agent or the daemon while claims are prepared and unprepared, and a kubelet that forgets its calls."""
        chosen = random.Random(43)
        rounds = 1000 if os.environ.get("XPUD_TEST_FULL") else 25
        wanted: dict[str, dict] = {}

        def call(action, *names) -> bool:
            try:
                action(*names, seconds=chosen.choice((0.02, 0.2, 30)))
                return True
            except Exception as failure:  # cut, refused while the daemon is away, or out of time: a kubelet asks again
                self.failure = failure
                return False

        for number in range(rounds):
            new = [self.claim(share=1, memory="1Mi", pods=(f"pod-{number}-{i}",)) for i in range(2)]
            with concurrent.futures.ThreadPoolExecutor(5) as pool:
                work = [pool.submit(call, self.kubelet.must_prepare, name) for name in new]
                leaving = list(wanted.values())[:chosen.randrange(4) if len(wanted) < 40 else 10]
                work += [pool.submit(call, self.kubelet.unprepare, name) for name in leaving]
                time.sleep(chosen.uniform(0, 0.03))
                victim = chosen.choice(("agent", "daemon", "kubelet"))
                if victim == "agent":
                    self.agent.stop(signal.SIGKILL)
                    self.agent.start()
                elif victim == "daemon":
                    self.daemon.kill()
                    self.daemon.start()
                concurrent.futures.wait(work)
            self.kubelet.restart()
            self.kubelet.find_drivers()
            for name in leaving:
                wait_until(lambda: call(self.kubelet.unprepare, name), 60, lambda: f"unprepare after the {victim} ended: {self.failure}")
                self.api.remove("resourceclaims", name["name"], "default")
                del wanted[name["uid"]]
            for name in new:
                wait_until(lambda: call(self.kubelet.must_prepare, name), 60, lambda: f"prepare after the {victim} ended: {self.failure}")
                wanted[name["uid"]] = name
            self.assertEqual(set(self.claims()), {f"k8s-{uid}" for uid in wanted}, f"round {number}, {victim}")
            self.assertEqual(self.files(), sorted(f"xpud.dev-claim_{uid}.json" for uid in wanted), f"round {number}, {victim}")
            if number % 100 == 99:  # a thousand take minutes
                print(f"{number + 1} of {rounds} kills, {len(wanted)} claims", file=sys.stderr, flush=True)
        for name in list(wanted.values()):
            self.kubelet.unprepare(name)
        self.expect_nothing_left()


class HealthTest(Dra):
    FLAGS = ("--device", "cpu", "--executor", "process")

    def executor(self) -> int | None:
        return self.daemon.devices()[0].get("executor_pid")

    def test_a_device_is_unhealthy_while_its_executor_is_away_and_healthy_again(self):
        self.kubelet.must_prepare(self.claim())
        watches = {version: self.kubelet.watch_health(version) for version in ("v1", "v1beta1", "v1alpha1")}
        for watch in watches.values():
            self.addCleanup(watch.close)
            watch.wait("xpud-0", HEALTHY, 5)
        self.daemon.kill()
        for watch in watches.values():
            watch.wait("xpud-0", UNHEALTHY, 5)
        wait_until(lambda: self.slice()["spec"]["devices"][0].get("taints"), 5, "a taint")
        self.daemon.start()
        for watch in watches.values():
            watch.wait("xpud-0", HEALTHY, 5)
        wait_until(lambda: not self.slice()["spec"]["devices"][0].get("taints"), 5, "no taint")
        os.kill(self.executor(), signal.SIGKILL)
        wait_until(lambda: self.executor(), 10, "a new executor")
        watches["v1"].wait("xpud-0", HEALTHY, 5)


# Computes and compares until its input ends. Answers each line with the rounds so far, after one more; ends with an error if a number is wrong.
COMPUTING = """
import queue, sys, threading, numpy, xpud
lines = queue.SimpleQueue()
def listen():
    for line in sys.stdin: lines.put(line)
    lines.put("")
threading.Thread(target=listen, daemon=True).start()
start = numpy.arange(64 * 64, dtype="float32").reshape(64, 64) % 7
swap = xpud.asarray(numpy.eye(64, dtype="float32")[::-1].copy())
rounds, line = 0, "go"
while line:
    x = xpud.asarray(start)
    for _ in range(9): x = x @ swap
    assert (x.numpy() == start[:, ::-1]).all(), f"wrong numbers in round {rounds}"
    rounds += 1
    line = "go" if lines.empty() else lines.get()
    if line == "\\n": print(rounds, flush=True)
"""
# The daemon's own misbehaving kernels (--test-kernels): number, attributes.
MISBEHAVING = """
import xpud
from xpud import _families
x = xpud.asarray([1.0])
_families.execute({{"number": {number}}}, (x,), (x,), {attributes})
try: x.numpy()
except xpud.ConnectionError as error: print(error)
"""
# What a PyTorch program does: a product that takes longer than the daemon's limit for one command.
TORCH_TOO_LONG = """
import torch
x = torch.ones(8000, 8000, device="xpud")
for attempt in range(2):
    try: print((x @ x)[0, 0].item())
    except torch.AcceleratorError as error: print(error)
"""


class MisbehavingPodTest(Dra):
    """A pod whose kernel faults or does not end gets an error. Two pods that compute beside it get nothing but a pause."""

    FLAGS = ("--device", "cpu", "--executor", "process", "--test-kernels", "--command-limit", "1000")

    def beside_two_that_compute(self, code: str, pattern: str) -> None:
        neighbours = [self.kubelet.start_container(self.kubelet.must_prepare(self.claim(share=30, memory="64Mi")), [*PYTHON, COMPUTING], env=CLIENT)
                      for _ in range(2)]
        for process in neighbours:
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
        before = [self.rounds(process) for process in neighbours]
        for guilty in range(2):  # again: the executor's replacement is as good
            said = self.run_in_container(self.kubelet.must_prepare(self.claim(share=10, memory="1Gi")), code)
            self.assertRegex(said, pattern)
            self.assertEqual(self.daemon.status()["daemon"]["sessions_closed_for_fault"], guilty + 1)
            after = [self.rounds(process) for process in neighbours]
            for few, more in zip(before, after, strict=True):
                self.assertGreater(more, few)
            before = after
        for process in neighbours:
            self.assertEqual((process.communicate(timeout=60)[1], process.returncode), ("", 0))

    def rounds(self, process) -> int:
        process.stdin.write("\n")
        process.stdin.flush()
        line = process.stdout.readline()
        self.assertTrue(line, "the container ended early")
        return int(line)

    def test_one_whose_kernel_faults(self):
        self.beside_two_that_compute(MISBEHAVING.format(number=240, attributes=()), r"closed this session: .*(faulted|it ended \(killed by signal)")

    def test_one_whose_kernel_never_ends(self):
        self.beside_two_that_compute(MISBEHAVING.format(number=241, attributes=(1,)), "closed this session: a command of session .* ran for longer than 1000 ms")

    def test_one_of_pytorch_whose_kernel_takes_too_long(self):
        line = "XPUD error: the xpud daemon closed this session: a command of session .* ran for longer than 1000 ms\n"
        self.beside_two_that_compute(TORCH_TOO_LONG, f"^{line}{line}$")


if __name__ == "__main__":
    unittest.main()
