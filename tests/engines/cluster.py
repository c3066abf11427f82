"""A node of a cluster for the tests: a daemon, the agent, a kubelet, an API server and a scheduler's decisions."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = ROOT / "build/release/bin"
sys.path.insert(0, str(ROOT / "tools/lib"))

from api_server import ApiServer  # noqa: E402
from daemon import Daemon  # noqa: E402
from kubelet import Kubelet  # noqa: E402

NODE = "node-1"


def wait_until(condition, seconds: float, what: str | Callable[[], str] = "") -> float:
    """Waits until `condition()` holds. Returns the seconds. `what`: for the message, or what makes it."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.01)
    return time.monotonic() - began


class Agent:
    """An xpud-node-agent with the configuration `text`."""

    def __init__(self, folder: pathlib.Path, text: str):
        self.folder, self.log = folder, folder / "agent.log"
        # As a ConfigMap is mounted: a link in a folder that everybody could write to, were it not read-only.
        mounted, data = folder / "configuration", folder / "configuration/..2026"
        data.mkdir(parents=True)
        self._file = data / "agent.yaml"
        self.text = text
        (mounted / "..data").symlink_to("..2026")
        self.configuration = mounted / "agent.yaml"
        self.configuration.symlink_to("..data/agent.yaml")
        mounted.chmod(0o777)
        self.log.write_text("")
        self.process: subprocess.Popen | None = None

    @property
    def text(self) -> str:
        """The configuration, which the agent reads when it starts and at SIGHUP."""
        return self._file.read_text()

    @text.setter
    def text(self, text: str) -> None:
        self._file.write_text(text)

    def start(self, before: list[str] | None = None) -> None:
        """`before`: a program and its arguments, which runs the agent."""
        ready, ready_child = os.pipe()
        with self.log.open("ab") as out:
            self.process = subprocess.Popen([*(before or []), BINARIES / "xpud-node-agent", "--config", self.configuration, "--ready-fd", str(ready_child)],
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[ready_child])
        os.close(ready_child)
        with os.fdopen(ready, "rb") as pipe:
            if not pipe.read(1):
                raise RuntimeError(f"the agent did not start:\n{self.log.read_text()[-3000:]}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Returns the exit status."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        status = self.process.wait(20)
        self.process = None
        return status

    def metrics_address(self) -> str:
        return next(line.split("address=")[1].strip() for line in reversed(self.log.read_text().splitlines()) if " metrics address=" in line)

    def page(self, path: str) -> tuple[int, str]:
        """Returns status and body."""
        try:
            with urllib.request.urlopen(f"http://{self.metrics_address()}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as failure:
            return failure.code, failure.read().decode()

    def readiness(self) -> tuple[int, str]:
        return self.page("/readyz")

    def health(self) -> int:
        return self.page("/healthz")[0]

    def metrics(self) -> dict[str, float]:
        """The series, by name and labels as they are written."""
        text = self.page("/metrics")[1]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line and not line.startswith("#")}


class NodeTest(unittest.TestCase):
    """A node for each test. Its daemon has one CPU device, unless FLAGS say otherwise."""

    FLAGS: tuple[str, ...] = ("--device", "cpu")
    PCI: dict[str, tuple[str, int]] = {}  # what the CPU devices say as their addresses, with the PCIe root and the NUMA node in the agent's sysfs

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="xpud-node-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        for name in ("state", "agent", "api"):
            (self.folder / name).mkdir()
        self.make_sysfs()
        with unittest.mock.patch.dict(os.environ, {"XPUD_CPU_PCI": ",".join(self.PCI)} if self.PCI else {}):
            self.daemon = Daemon(BINARIES, self.folder / "daemon.log", "--state-dir", str(self.folder / "state"), *self.FLAGS)
        self.addCleanup(self.daemon.close)
        self.start_cluster()
        self.agent = Agent(self.folder / "agent", self.configuration())
        self.addCleanup(self.agent.stop, signal.SIGKILL)
        self.agent.start()
        self.find_agent()

    def make_sysfs(self) -> None:
        links = self.folder / "sys/bus/pci/devices"
        links.mkdir(parents=True)
        for address, (root, numa_node) in self.PCI.items():
            device = self.folder / "sys/devices" / root / address
            device.mkdir(parents=True)
            (device / "numa_node").write_text(f"{numa_node}\n")
            (links / address).symlink_to(f"../../../devices/{root}/{address}")

    def start_cluster(self) -> None:
        """Starts what the agent of the test speaks with."""
        import admission  # its library is not in the environment of Ray's tests
        self.api = ApiServer(self.folder / "api", models=True, policy=admission.Policy.of(ROOT / "deploy/kubernetes/base/admission.yaml"),
                             user=admission.service_account("xpud-system", "xpud-node-agent", NODE))
        self.addCleanup(self.api.close)
        self.kubelet = Kubelet(self.folder / "kubelet", self.folder / "cdi")
        self.addCleanup(self.kubelet.restart)

    def find_agent(self) -> None:
        self.kubelet.find_drivers()

    def configuration(self) -> str:
        return json.dumps({"socket": str(self.daemon.address), "state": str(self.folder / "agent"), "node": NODE, "metrics-listen": "127.0.0.1:0",
                           "grants": {"socket": "off"},
                           "kubernetes": {"mode": "dra", "kubelet": str(self.folder / "kubelet"), "cdi": str(self.folder / "cdi"), "sysfs": str(self.folder / "sys"),
                                          "api-server": self.api.url, "token-file": str(self.api.token_file), "ca-file": str(self.api.ca_file)}})

    # ---- what a scheduler and its controllers do

    def claim(self, share: int | None = 30, memory: str | None = "1Gi", name: str | None = None, pods: tuple[str, ...] = ("pod-1",),
              device: str = "xpud-0", node: str = NODE, parameters: dict | None = None, **changes) -> dict:
        """Creates a ResourceClaim that is allocated and reserved. Returns the kubelet's name of it."""
        capacity = self.slice()["spec"]["devices"][0]["capacity"] if share is None or memory is None else {}
        consumed = {"share": str(share) if share is not None else capacity["share"]["value"],
                    "memory": memory if memory is not None else capacity["memory"]["value"], "claims": "1"}
        uid = str(uuid.uuid4())
        name = name or f"claim-{uid[:8]}"
        result = {"request": "part", "driver": "xpud.dev", "pool": node, "device": device, "shareID": str(uuid.uuid4()), "consumedCapacity": consumed}
        devices = {"results": [result | changes]}
        if parameters is not None:
            devices["config"] = [{"source": "FromClaim", "opaque": {"driver": "xpud.dev", "parameters": {
                "apiVersion": "xpud.dev/v1", "kind": "ClaimParameters"} | parameters}}]
        item = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"namespace": "default", "name": name, "uid": uid},
                "spec": {"devices": {"requests": [{"name": "part", "exactly": {"deviceClassName": "xpud"}}]}},
                "status": {"allocation": {"devices": devices},
                           "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-of-{pod}"} for pod in pods]}}
        self.api.put("resourceclaims", item)
        return {"namespace": "default", "uid": uid, "name": name}

    def slice(self) -> dict:
        wait_until(lambda: self.api.all("resourceslices"), 10, "a ResourceSlice")
        (found,) = self.api.all("resourceslices")
        return found

    # ---- what is there

    def claims(self) -> dict[str, dict]:
        """The daemon's claims, by key."""
        return {claim["key"]: claim for claim in json.loads(self.daemon.ask("claim", "list", "-o", "json"))["claims"]}

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "cdi").iterdir())

    def expect_nothing_left(self) -> None:
        self.assertEqual(self.claims(), {})
        self.assertEqual(self.files(), [])
