"""The part of a kubelet that speaks with device plugins: it registers them, listens to their devices, gives devices to containers, and tells
which containers have which (PodResources). What it does comes from Kubernetes' documentation and API."""

import os
import pathlib
import subprocess
import threading
import time

import grpc
import wire
from kubelet import Kubelet, serve

RESOURCE = "xpud.dev/slot"
MIN_AGE = 120  # seconds: a kubelet that seems to run for so long knows its pods


class Refused(Exception):
    """What the plugin says."""


class Plugin:
    """A registered plugin."""

    def __init__(self, socket: pathlib.Path, options: dict):
        self.options = options
        self.heard: list[dict[str, str]] = []  # health by id, each time all of them
        self.numa_nodes: dict[str, list[int]] = {}  # by id, of what was heard last; without those of which the plugin says nothing
        self._changed = threading.Condition()
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200)])
        self._stream = self._channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch", wire.EMPTY.encode, wire.PLUGIN_DEVICES.decode)(
            {}, wait_for_ready=True)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for message in self._stream:
                assert all(len(device["ID"]) <= 63 and device["health"] in ("Healthy", "Unhealthy") for device in message["devices"]), message
                with self._changed:
                    self.numa_nodes = {device["ID"]: [node["ID"] for node in device["topology"]["nodes"]] for device in message["devices"] if device["topology"]}
                    self.heard.append({device["ID"]: device["health"] for device in message["devices"]})
                    self._changed.notify_all()
        except (grpc.RpcError, ValueError):
            pass

    def wait(self, condition, seconds: float) -> float:
        """Waits until `condition(health by id)` holds for what was heard last. Returns how long it took."""
        began = time.monotonic()
        with self._changed:
            while not (self.heard and condition(self.heard[-1])):
                rest = began + seconds - time.monotonic()
                if rest <= 0:
                    raise AssertionError(f"not within {seconds} s: {self.heard[-2:]}")
                self._changed.wait(rest)
        return time.monotonic() - began

    def call(self, method: str, request: wire.Schema, message: dict, reply: wire.Schema, seconds: float = 45) -> dict:
        try:
            return self._channel.unary_unary(f"/v1beta1.DevicePlugin/{method}", request.encode, reply.decode)(message, timeout=seconds, wait_for_ready=True)
        except grpc.RpcError as failure:
            raise Refused(f"{failure.code()}: {failure.details()}") from failure

    def prefer(self, free: list[str], size: int, required: list[str] = ()) -> list[str]:
        request = {"available_deviceIDs": free, "must_include_deviceIDs": list(required), "allocation_size": size}
        (answer,) = self.call("GetPreferredAllocation", wire.PREFERRED_REQUEST, {"container_requests": [request]}, wire.PREFERRED)["container_responses"]
        return answer["deviceIDs"]

    def allocate(self, *containers: list[str], seconds: float = 45) -> list[dict]:
        request = {"container_requests": [{"devices_ids": ids} for ids in containers]}
        return self.call("Allocate", wire.ALLOCATE, request, wire.ALLOCATED, seconds)["container_responses"]

    def close(self) -> None:
        self._stream.cancel()
        self._channel.close()


class PluginKubelet:
    """`root`: what is /var/lib/kubelet on a node."""

    def __init__(self, root: pathlib.Path):
        self.plugins_folder, self.pods_folder = root / "device-plugins", root / "pod-resources"
        for folder in (self.plugins_folder, self.pods_folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.containers: dict[tuple[str, str, str], list[str]] = {}  # ids by namespace, pod and container: kept, as a kubelet's checkpoint is
        self.plugin: Plugin | None = None
        self.registrations = 0
        self.looks = 0  # at the containers
        self.fails = False  # PodResources
        self._registered = threading.Condition()
        self._servers: list[grpc.Server] = []

    # ---- its life

    def start(self, age: float = MIN_AGE) -> None:
        """`age`: of the kubelet's socket for PodResources, in seconds."""
        for path in self.plugins_folder.iterdir():
            path.unlink()
        self._serve(self.plugins_folder / "kubelet.sock", "v1beta1.Registration", {"Register": (self._register, wire.REGISTER, wire.EMPTY)})
        socket = self.pods_folder / "kubelet.sock"
        socket.unlink(missing_ok=True)
        self._serve(socket, "v1.PodResourcesLister", {"List": (self._list, wire.EMPTY, wire.POD_RESOURCES)})
        made = time.time() - age
        os.utime(socket, (made, made))

    def _serve(self, socket: pathlib.Path, service: str, methods: dict) -> None:
        self._servers.append(serve(socket, service, methods))

    def stop(self) -> None:
        for server in self._servers:
            server.stop(0).wait()
        self._servers = []
        if self.plugin:
            self.plugin.close()
            self.plugin = None

    def wait_for_plugin(self, seconds: float = 20) -> float:
        """Waits until a plugin is registered and has told its devices. Returns how long it took."""
        began = time.monotonic()
        with self._registered:
            while self.plugin is None:
                if not self._registered.wait(began + seconds - time.monotonic()):
                    raise AssertionError(f"no plugin has registered within {seconds} s")
        self.plugin.wait(bool, seconds)
        return time.monotonic() - began

    # ---- what it serves

    def _register(self, request: dict, context) -> dict:
        socket = self.plugins_folder / request["endpoint"]
        if request["version"] != "v1beta1" or request["resource_name"] != RESOURCE or "/" in request["endpoint"] or not socket.is_socket():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(request))
        with self._registered:
            if self.plugin:
                self.plugin.close()
            self.plugin = Plugin(socket, request["options"])
            self.registrations += 1
            self._registered.notify_all()
        return {}

    def _list(self, _: dict, context) -> dict:
        if self.fails:
            context.abort(grpc.StatusCode.INTERNAL, "no list today")
        self.looks += 1
        # A real kubelet lists the devices of each NUMA node by themselves, and pods without any.
        pods = [{"name": pod, "namespace": namespace, "containers": [{"name": container, "devices": [
            {"resource_name": RESOURCE, "device_ids": ids[:1], "topology": {"nodes": [{"ID": 0}]}}, {"resource_name": RESOURCE, "device_ids": ids[1:]},
            {"resource_name": "example.com/other", "device_ids": ["xpud-0-slot-0"]}], "cpu_ids": [1, 2]}]}
            for (namespace, pod, container), ids in list(self.containers.items())]
        return {"pod_resources": [*pods, {"name": "without", "namespace": "default", "containers": [{"name": "any"}]}]}

    # ---- containers

    def free(self) -> list[str]:
        used = {each for ids in self.containers.values() for each in ids}
        return [each for each, health in self.plugin.heard[-1].items() if health == "Healthy" and each not in used]

    def admit(self, count: int, pod: str, namespace: str = "default", container: str = "main", ids: list[str] | None = None) -> list[dict]:
        """Gives a container slots, those that the plugin prefers or `ids`. Returns its mounts."""
        chosen = ids or self.plugin.prefer(self.free(), count)
        (answer,) = self.plugin.allocate(chosen)
        self.containers[namespace, pod, container] = chosen
        return answer["mounts"]

    def remove(self, pod: str) -> None:
        self.containers = {key: ids for key, ids in self.containers.items() if key[1] != pod}

    @staticmethod
    def start_container(mounts: list[dict], command: list, env: dict[str, str]) -> subprocess.Popen:
        """Starts a program with these mounts, as a container runtime does."""
        edits = [{"hostPath": mount["host_path"], "containerPath": mount["container_path"],
                  "options": ["rbind", "ro" if mount["read_only"] else "rw"]} for mount in mounts]
        return Kubelet.start_with_edits({"mounts": edits, "env": []}, command, env)
