"""A kubelet for the tests: it finds drivers as the real one does, has them prepare claims, watches the devices' health, and runs programs in
containers that CDI devices were injected into. What it does comes from Kubernetes' documentation and API, and from the CDI specification."""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import threading
import time

import grpc
import wire

SECONDS = 45  # for a call


class DriverError(Exception):
    pass


class Driver:
    """A registered driver."""

    def __init__(self, info: dict):
        self.info = info
        version = next(each.removesuffix(".DRAPlugin") for each in ("v1.DRAPlugin", "v1beta1.DRAPlugin") if each in info["supported_versions"])
        self.dra = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/"
        self.channel = grpc.insecure_channel(f"unix:{info['endpoint']}", options=[("grpc.use_local_subchannel_pool", 1),
                                                                                    ("grpc.max_reconnect_backoff_ms", 200)])

    def call(self, method: str, request: wire.Schema, message: dict, reply: wire.Schema, seconds: float = SECONDS) -> dict:
        stub = self.channel.unary_unary(method, request.encode, reply.decode)
        return stub(message, timeout=seconds, wait_for_ready=True)

    def close(self) -> None:
        self.channel.close()


def serve(socket: pathlib.Path, service: str, methods: dict) -> grpc.Server:
    """Serves a service of the kubelet. `methods`: handler, request and reply by name."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=[("grpc.use_local_subchannel_pool", 1)])
    handlers = {name: grpc.unary_unary_rpc_method_handler(handle, request.decode, reply.encode) for name, (handle, request, reply) in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    if not server.add_insecure_port(f"unix:{socket}"):
        raise RuntimeError(f"cannot listen at {socket}")
    server.start()
    return server


class Kubelet:
    """`root`: what is /var/lib/kubelet on a node; `cdi`: what is /var/run/cdi."""

    def __init__(self, root: pathlib.Path, cdi: pathlib.Path):
        self.root, self.cdi = root, cdi
        for folder in ("plugins", "plugins_registry"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        cdi.mkdir(parents=True, exist_ok=True)
        self.drivers: dict[str, Driver] = {}
        self.prepared: dict[str, list[str]] = {}  # CDI ids by uid: what a kubelet remembers, also after a reboot
        self.containers: dict[tuple[str, str, str], list[dict]] = {}  # claims by namespace, pod and container
        self.looks = 0  # at the containers
        self._pods: grpc.Server | None = None

    # ---- registration

    def _register(self, socket: pathlib.Path) -> Driver | None:
        with grpc.insecure_channel(f"unix:{socket}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            try:
                info = channel.unary_unary("/pluginregistration.Registration/GetInfo", wire.EMPTY.encode, wire.PLUGIN_INFO.decode)({}, timeout=5)
            except grpc.RpcError:
                return None  # a file that a killed driver left
            problem = ""
            if info["type"] != "DRAPlugin":
                problem = f"type {info['type']}"
            elif not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", info["name"]):
                problem = f"name {info['name']}"
            elif not {"v1.DRAPlugin", "v1beta1.DRAPlugin"} & set(info["supported_versions"]):
                problem = f"versions {info['supported_versions']}"
            notify = channel.unary_unary("/pluginregistration.Registration/NotifyRegistrationStatus", wire.REGISTRATION_STATUS.encode, wire.EMPTY.decode)
            notify({"plugin_registered": not problem, "error": problem}, timeout=5)
            if problem:
                raise DriverError(problem)
        return Driver(info)

    def find_drivers(self, name: str = "xpud.dev", seconds: float = 20) -> float:
        """Looks at plugins_registry until the driver is registered. Returns how long it took."""
        began = time.monotonic()
        while name not in self.drivers:
            for socket in (self.root / "plugins_registry").glob("*.sock"):
                driver = self._register(socket)
                if driver:
                    self.drivers[driver.info["name"]] = driver
            if time.monotonic() - began > seconds:
                raise AssertionError(f"no driver {name} has registered within {seconds} s")
            time.sleep(0.02)
        return time.monotonic() - began

    def restart(self) -> None:
        """A kubelet that starts anew knows what it has prepared, and no driver."""
        for driver in self.drivers.values():
            driver.close()
        self.drivers = {}

    @property
    def driver(self) -> Driver:
        return self.drivers["xpud.dev"]

    # ---- which containers have which claims

    def serve_containers(self) -> None:
        (self.root / "pod-resources").mkdir(exist_ok=True)
        self._pods = serve(self.root / "pod-resources/kubelet.sock", "v1.PodResourcesLister", {"List": (self._list, wire.EMPTY, wire.POD_RESOURCES)})

    def end_containers(self) -> None:
        if self._pods:
            self._pods.stop(0).wait()
            self._pods = None

    def _list(self, _: dict, context) -> dict:
        self.looks += 1
        # A real kubelet lists pods without devices and the claims of other drivers, too.
        other = {"claim_name": "other", "claim_namespace": "default", "claim_resources": [
            {"cdi_devices": [{"name": "example.com/claim=1"}], "driver_name": "example.com", "pool_name": "node-1", "device_name": "xpud-0"},
            {"driver_name": "example.com", "device_name": "no-cdi-device"}]}
        pods = [{"name": pod, "namespace": namespace, "containers": [{"name": container, "cpu_ids": [1, 2], "dynamic_resources": [other, *(
            {"claim_name": claim["name"], "claim_namespace": claim["namespace"], "claim_resources": [
                {"cdi_devices": [{"name": each} for each in self.prepared[claim["uid"]]], "driver_name": "xpud.dev", "pool_name": "node-1",
                 "device_name": "xpud-0", "share_id": "1"}]}
            for claim in claims if claim["uid"] in self.prepared)]}]} for (namespace, pod, container), claims in list(self.containers.items())]
        return {"pod_resources": [*pods, {"name": "without", "namespace": "default", "containers": [{"name": "any"}]}]}

    # ---- claims

    def prepare(self, *claims: dict, seconds: float = SECONDS) -> dict[str, dict]:
        """Returns what the driver says of each claim, by uid: {"devices": [...], "error": ""}."""
        reply = self.driver.call(self.driver.dra + "NodePrepareResources", wire.CLAIMS, {"claims": list(claims)}, wire.PREPARED, seconds)
        if set(reply["claims"]) != {claim["uid"] for claim in claims}:
            raise AssertionError(f"asked for {claims}, told of {reply}")
        for uid, answer in reply["claims"].items():
            if not answer["error"]:
                self.prepared[uid] = sorted({each for device in answer["devices"] for each in device["cdi_device_ids"]})
        return reply["claims"]

    def must_prepare(self, claim: dict, seconds: float = SECONDS) -> list[str]:
        """Returns the CDI ids. Raises DriverError with what the driver says."""
        answer = self.prepare(claim, seconds=seconds)[claim["uid"]]
        if answer["error"]:
            raise DriverError(answer["error"])
        return self.prepared[claim["uid"]]

    def unprepare(self, *claims: dict, seconds: float = SECONDS) -> None:
        reply = self.driver.call(self.driver.dra + "NodeUnprepareResources", wire.CLAIMS, {"claims": list(claims)}, wire.UNPREPARED, seconds)
        errors = {uid: answer["error"] for uid, answer in reply["claims"].items() if answer["error"]}
        if errors:
            raise DriverError(str(errors))
        for claim in claims:
            self.prepared.pop(claim["uid"], None)

    def watch_health(self, version: str = "v1") -> "HealthWatch":
        return HealthWatch(self.driver, version)

    # ---- containers

    def injections(self, ids: list[str]) -> dict[str, list]:
        """What the CDI files say of these devices, checked against the specification. Raises DriverError if there is no such device."""
        edits = {"mounts": [], "env": []}
        for full in ids:
            kind, name = full.split("=")
            found = [device for path in sorted(self.cdi.glob("*.json")) for spec in [json.loads(path.read_text())] if spec["kind"] == kind
                     for device in self._checked(spec, path) if device["name"] == name]
            if len(found) != 1:
                raise DriverError(f"{len(found)} CDI devices {full}")
            edits["mounts"] += found[0]["containerEdits"].get("mounts", [])
            edits["env"] += found[0]["containerEdits"].get("env", [])
        return edits

    @staticmethod
    def _checked(spec: dict, path: pathlib.Path) -> list[dict]:
        assert re.fullmatch(r"0\.[3-9]\.0|1\.[01]\.0", spec["cdiVersion"]), path
        assert set(spec) <= {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}, path
        for device in spec["devices"]:
            assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device["name"]), path
            assert set(device) <= {"name", "annotations", "containerEdits"}, path
            for mount in device["containerEdits"].get("mounts", []):
                assert set(mount) <= {"hostPath", "containerPath", "options", "type"}, path
        return spec["devices"]

    def start_container(self, ids: list[str], command: list, env: dict[str, str] | None = None, uid: int | None = None) -> subprocess.Popen:
        """Starts a program in a mount namespace with the devices' mounts. It finds xpud at /run/xpud, if anywhere."""
        return self.start_with_edits(self.injections(ids), command, env, uid)

    @staticmethod
    def start_with_edits(edits: dict[str, list], command: list, env: dict[str, str] | None = None, uid: int | None = None) -> subprocess.Popen:
        script = ["set -e", "mount --make-rprivate /", "mount -t tmpfs tmpfs /run"]  # the machine's own /run must not get a folder xpud
        for mount in edits["mounts"]:
            extra = ",".join(option for option in mount["options"] if option not in ("bind", "rbind"))
            script.append(f"mkdir -p '{mount['containerPath']}'; mount --bind '{mount['hostPath']}' '{mount['containerPath']}'")
            script.append(f"mount -o remount,bind,{extra} '{mount['containerPath']}'")
        user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"] if uid is not None else []
        script.append('exec "$@"')
        environment = {**os.environ, **(env or {}), "XPUD_ADDRESS": "", "XDG_RUNTIME_DIR": "/nonexistent",
                       **dict(entry.split("=", 1) for entry in edits["env"])}
        return subprocess.Popen(["unshare", "--mount", "sh", "-c", "\n".join(script), "sh", *user, *map(str, command)], env=environment, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class HealthWatch:
    """The devices' health, as the driver streams it."""

    def __init__(self, driver: Driver, version: str):
        self.heard: list[tuple[float, dict]] = []
        self._changed = threading.Condition()
        self._stream = driver.channel.unary_stream(f"/{version}.DRAResourceHealth/NodeWatchResources", wire.EMPTY.encode, wire.HEALTH.decode)({})
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._thread.submit(self._listen)

    def _listen(self) -> None:
        try:
            for message in self._stream:
                with self._changed:
                    self.heard.append((time.monotonic(), {each["device"]["device_name"]: each for each in message["devices"]}))
                    self._changed.notify_all()
        except grpc.RpcError:
            pass

    def wait(self, device: str, health: int, seconds: float) -> float:
        """Returns how long it took until the device's last known health was this."""
        began = time.monotonic()
        with self._changed:
            while not (self.heard and self.heard[-1][1].get(device, {}).get("health") == health):
                rest = began + seconds - time.monotonic()
                if rest <= 0:
                    raise AssertionError(f"{device} is not {health} within {seconds} s: {self.heard[-3:]}")
                self._changed.wait(rest)
        return time.monotonic() - began

    def close(self) -> None:
        self._stream.cancel()
        self._thread.shutdown()
