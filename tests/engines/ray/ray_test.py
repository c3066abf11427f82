"""Ray gives out parts of a device: real Ray from PyPI, a daemon, the agent, and the package of deploy/ray.

Ray runs in a network namespace of this process, because it listens on the machine's addresses. Needs root.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from cluster import BINARIES, ROOT, Agent, wait_until  # noqa: E402
from daemon import Daemon  # noqa: E402

PACKAGE = ROOT / "deploy/ray"
sys.path.insert(0, str(PACKAGE))

import ray  # noqa: E402
import xpud_ray  # noqa: E402

CLIENT = str(BINARIES.parent / "lib")
LEASE_SECONDS = 3
USER, STRANGER = 61_001, 61_002
CLONE_NEWNET = 0x40000000


def setUpModule():
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare: Ray's tests need root")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def arguments_of(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def descendants(parent: int) -> list[int]:
    parents = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass
    found = [parent]
    for each in found:
        found += [pid for pid, its_parent in parents.items() if its_parent == each]
    return found[1:]


class Worker:
    """An actor that computes on the device that it finds."""

    def pid(self) -> int:
        return os.getpid()

    def total(self, count: int) -> float:
        import xpud
        return float(xpud.arange(count, dtype="float32").sum().numpy())


def where() -> tuple[str, int]:
    """A task."""
    time.sleep(0.3)
    return os.environ["XPUD_ADDRESS"], os.getpid()


class Node(unittest.TestCase):
    """A Ray cluster of one node for each class, beside a daemon and an agent. Its two CPUs are for tasks; actors take none."""

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="xr-"))  # short, because Ray has sockets far below it
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        for name in ("state", "agent"):
            (folder / name).mkdir()
        cls.daemon = Daemon(BINARIES, folder / "daemon.log", "--device", "cpu", "--state-dir", str(folder / "state"))
        cls.addClassCleanup(cls.daemon.close)
        cls.socket = folder / "agent.sock"
        folder.chmod(0o755)  # for users
        cls.agent = Agent(folder / "agent", json.dumps({
            "socket": str(cls.daemon.address), "state": str(folder / "agent"), "node": "node-1",
            "grants": {"socket": str(cls.socket), "users": {str(USER): {"share": 40, "memory": "1GiB", "claims": 2, "class": "batch", "lease": "10s"}}}}))
        cls.addClassCleanup(cls.agent.stop, signal.SIGKILL)
        cls.agent.start()
        variables = {"RAY_RUNTIME_ENV_PLUGINS": '[{"class": "xpud_ray.RuntimeEnvPlugin"}]', "XPUD_AGENT_SOCKET": str(cls.socket),
                     "XPUD_RAY_LEASE_SECONDS": str(LEASE_SECONDS), "PYTHONPATH": f"{PACKAGE}:{CLIENT}", "RAY_USAGE_STATS_ENABLED": "0",
                     "RAY_AUTH_MODE": "disabled",  # else Ray writes a token into the home folder; nobody else is in the namespace
                     "RUNTIME_ENV_RETRY_INTERVAL_MS": "100", "BAD_RUNTIME_ENV_CACHE_TTL_SECONDS": "1"}
        before = dict(os.environ)
        os.environ.update(variables)
        cls.addClassCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        cls.addClassCleanup(ray.shutdown)
        ray.init(num_cpus=2, resources={"xpud": 1}, include_dashboard=False, object_store_memory=80 << 20, _temp_dir=str(folder / "r"),
                 _node_ip_address="127.0.0.1", logging_level="ERROR", log_to_driver=False)
        cls.address = ray.get_runtime_context().gcs_address

    def claims(self) -> list[dict]:
        return sorted(json.loads(self.daemon.ask("claim", "list", "-o", "json"))["claims"], key=lambda claim: claim["weight"])

    def expect_no_claims(self, seconds: float = 5) -> float:
        return wait_until(lambda: not self.claims(), seconds, lambda: f"no claims, not {self.claims()}")

    def start(self, worker=None, **options):
        """An actor with the options of ray_options. It has computed."""
        actor = (worker or ray.remote(Worker)).options(**xpud_ray.ray_options(num_cpus=0, **options)).remote()
        self.addCleanup(ray.kill, actor)
        self.assertEqual(ray.get(actor.total.remote(4), timeout=60), 6.0)
        return actor

    def refusal(self, value) -> str:
        """The error of a task with this value of "xpud"."""
        with self.assertRaises(ray.exceptions.RuntimeEnvSetupError) as caught:
            ray.get(ray.remote(where).options(runtime_env={"xpud": value}).remote(), timeout=60)
        return str(caught.exception)


class PartsTest(Node):
    def tearDown(self):
        self.doCleanups()
        self.expect_no_claims()

    def test_two_actors_have_their_parts_and_lose_them_when_they_die(self):
        small = self.start(share=25, memory="256MiB", class_="batch", name="small", runtime_env={"env_vars": {"XPUD_CLIENT_NAME": "small"}})
        large = self.start(share=75, memory=1 << 28)
        first, second = self.claims()
        self.assertEqual((first["weight"], first["time_least"], first["class"]), (25, 2375, "batch"))
        self.assertEqual((second["weight"], second["time_least"], second["class"]), (75, 7125, "interactive"))
        self.assertEqual([(int(claim["memory_least_bytes"]), int(claim["memory_most_bytes"])) for claim in (first, second)], [(1 << 28, 1 << 28)] * 2)
        self.assertEqual(first["labels"]["part"], "small")
        pids = ray.get([small.pid.remote(), large.pid.remote()])
        sessions = {session["pid"]: session for session in self.daemon.sessions()}
        self.assertEqual([sessions[pid]["claim"] for pid in pids], [first["key"], second["key"]])
        self.assertEqual(sessions[pids[0]]["client_name"], "small")
        self.assertEqual(ray.get([actor.total.remote(1000) for actor in (small, large)]), [499500.0] * 2)
        time.sleep(1.5 * LEASE_SECONDS)  # the leases go on while the actors live
        self.assertEqual([claim["key"] for claim in self.claims()], [first["key"], second["key"]])
        self.assertEqual(ray.get([actor.total.remote(1000) for actor in (small, large)]), [499500.0] * 2)
        os.kill(pids[0], signal.SIGKILL)
        killed = wait_until(lambda: [claim["weight"] for claim in self.claims()] == [75], 5, "one claim")
        ray.kill(large)
        print(f"claim gone after SIGKILL: {killed * 1000:.0f} ms, after ray.kill: {self.expect_no_claims() * 1000:.0f} ms", flush=True)

    def test_a_part_that_another_has_waits_for_it(self):
        first = self.start(share=75)
        second = ray.remote(Worker).options(**xpud_ray.ray_options(share=50, num_cpus=0)).remote()
        self.addCleanup(ray.kill, second)
        answer = second.total.remote(4)
        self.assertEqual(ray.wait([answer], timeout=1)[0], [])
        ray.kill(first)
        self.assertEqual(ray.get(answer, timeout=60), 6.0)
        self.assertEqual([claim["weight"] for claim in self.claims()], [50])

    def test_tasks_and_environments_with_equal_parts_share_a_claim(self):
        task = xpud_ray.part(share=30, memory="64MiB", num_cpus=1, max_calls=1)(where)
        other = task.options(runtime_env={"xpud": {"memory": 64 << 20, "share": 30}, "env_vars": {"OTHER": "1"}})
        answers = [task.remote(), other.remote(), task.remote()]
        wait_until(self.claims, 30, "a claim")
        self.assertEqual(len(self.claims()), 1)
        places = ray.get(answers, timeout=60)
        self.assertEqual(len({address for address, _ in places}), 1)
        self.assertGreaterEqual(len({pid for _, pid in places}), 2)
        self.expect_no_claims()

    def test_wrong_values_are_refused_where_they_are_written(self):
        for key, value, allowed in (("share", 0, "1 to 100"), ("share", 101, "1 to 100"), ("share", 2.5, "1 to 100"), ("share", True, "1 to 100"),
                                    ("memory", "lots", "4GiB"), ("memory", 0, "4GiB"), ("memory", "4GB", "4GiB"), ("memory", "9999999TiB", "4GiB"),
                                    ("class_", "best", "realtime, interactive, batch"), ("devices", [0, 0], "each once"), ("devices", [-1], "0 to 1023"),
                                    ("name", "a b", "letters")):
            with self.subTest(key=key, value=value):
                with self.assertRaisesRegex(ValueError, f"{key.strip('_')} is .*{re.escape(str(value))}.*; allowed: .*{allowed}"):
                    xpud_ray.part(**({"share": 25} | {key: value}))
        with self.assertRaisesRegex(TypeError, "remove @ray.remote"):
            xpud_ray.part(share=25)(ray.remote(where))
        with self.assertRaisesRegex(ValueError, "share is None; allowed: a whole number from 1 to 100"):
            xpud_ray.RuntimeEnvPlugin.validate({"xpud": {}})
        self.assertEqual(xpud_ray.ray_options(share=25, num_cpus=1), {"num_cpus": 1, "resources": {"xpud": 0.25}, "runtime_env": {"xpud": {"share": 25}}})
        self.assertEqual(xpud_ray.ray_options(share=20, devices=[1, 0], resources={"disk": 1})["resources"], {"xpud-1": 0.2, "xpud-0": 0.2, "disk": 1})

    def test_wrong_values_of_an_environment_are_refused_by_the_node(self):
        self.assertIn("xpud: unknown key shares; allowed: share, memory, class, devices, name", self.refusal({"shares": 25}))
        self.assertIn("there is no device 7", self.refusal({"share": 25, "devices": [7]}))

    def test_more_than_the_daemon_can_guarantee_is_refused_in_the_agents_words(self):
        self.start(share=75)
        self.assertRegex(self.refusal({"share": 50}), "xpud-node-agent: .*guarantee")

    def test_without_an_agent_the_error_says_what_to_do(self):
        self.agent.stop()
        try:
            self.assertRegex(self.refusal({"share": 11}), r"no xpud-node-agent answers at .*agent.sock \(.*\); start it \(systemctl start xpud-node-agent\)")
        finally:
            self.agent.start()
        self.assertIn("no xpud-node-agent", self.refusal({"share": 11}), "Ray repeats it, once with the README's variables")
        time.sleep(1.5)
        self.start(share=11)

    def test_the_example_of_the_readme_computes_with_both_parts(self):
        done = subprocess.run([sys.executable, PACKAGE / "examples/two_parts.py", "5"], env=os.environ | {"RAY_ADDRESS": self.address}, timeout=90,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        print(done.stdout, end="", flush=True)
        parts = re.findall(r"share (\d+): (\d+) products a second, ([\d.]+)% of all", done.stdout)
        self.assertEqual([share for share, *_ in parts], ["25", "75"])
        self.assertAlmostEqual(float(parts[0][2]), 25, delta=7)

    def plugin(self, program: str, *arguments: str) -> list[str]:
        """Runs the program with a `plugin` alone, as Ray's agent would call it, and the function `create`. Returns the lines that it prints."""
        before = """
import asyncio, logging, os, sys, types
import xpud_ray
plugin = xpud_ray.RuntimeEnvPlugin()
async def create(part):
    environment, context = {"xpud": part}, types.SimpleNamespace(env_vars={})
    (uri,) = plugin.get_uris(environment)
    assert await plugin.create(uri, environment, context, logging.getLogger()) > 0
    plugin.modify_context([uri], environment, context, logging.getLogger())
    return uri, context.env_vars["XPUD_ADDRESS"]
"""
        done = subprocess.run([sys.executable, "-c", before + program, *arguments], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_a_users_budget_is_told_in_the_agents_words(self):
        """As USER, who may have 40 hundredths, and as STRANGER, who may have nothing."""
        program = """
os.setuid(int(sys.argv[1]))
for share in (30, 11):
    try:
        print(asyncio.run(create({"share": share, "memory": "1MiB"})))
    except Exception as error:
        print(error)
"""
        granted, refused = self.plugin(program, str(USER))
        self.assertIn("xpud.sock", granted)
        self.assertRegex(refused, "^xpud-node-agent: .*11.*40")
        self.assertEqual(self.claims(), [], "the grants of a process that ends are returned")
        self.assertRegex(self.plugin(program, str(STRANGER))[0], "^xpud-node-agent: .*agent.yaml")

    def test_many_environments_at_once_have_a_claim_each_and_leave_none(self):
        (line,) = self.plugin("""
async def many():
    made = await asyncio.gather(*(create({"share": 1, "name": f"part-{i % 20}"}) for i in range(60)))
    for uri in {uri for uri, _ in made}:
        plugin.delete_uri(uri, logging.getLogger())
    again = await asyncio.gather(*(create({"share": 1, "name": f"part-{i}"}) for i in range(20)))
    return made, again
made, again = asyncio.run(many())
print(len({address for _, address in made}), len({uri for uri, _ in made}), len({address for _, address in made + again}))
""")
        self.assertEqual(line, "20 20 40")
        self.assertEqual(self.claims(), [])

    def test_pip_builds_the_package(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(PACKAGE, f"{folder}/source")
            subprocess.run([ROOT / ".venv/bin/python", "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, f"{folder}/source"],
                           check=True, timeout=120)
            self.assertEqual([path.name for path in pathlib.Path(folder).glob("*.whl")], ["xpud_ray-0.1.0-py3-none-any.whl"])


class KilledTest(Node):
    def test_claims_end_with_their_lease_if_rays_agent_hangs_and_at_once_if_it_is_killed(self):
        """Ray's raylet and workers end with it."""
        self.start(share=25)
        (pid,) = [pid for pid in descendants(os.getpid()) if arguments_of(pid).startswith("ray::RuntimeEnvAgent")]
        os.kill(pid, signal.SIGSTOP)
        self.assertGreater(self.expect_no_claims(LEASE_SECONDS + 3), LEASE_SECONDS / 3)
        os.kill(pid, signal.SIGCONT)
        self.start(share=30)
        os.kill(pid, signal.SIGKILL)
        print(f"claim gone after SIGKILL of Ray's agent: {self.expect_no_claims(LEASE_SECONDS / 3) * 1000:.0f} ms", flush=True)


if __name__ == "__main__":
    unittest.main()
