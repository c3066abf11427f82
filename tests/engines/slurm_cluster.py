"""A Slurm cluster for the tests: Debian's munged, slurmctld and slurmd, in namespaces of this process, with a daemon and the agent. A second node has
a name, a /run, a daemon and an agent of its own, and shares the network and munged."""

import contextlib
import ctypes
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from cluster import BINARIES, Agent, Daemon, wait_until

NODE = "node-1"
ADDRESS = "10.78.0.1"
SECOND, SECOND_ADDRESS, SECOND_PORT = "node-2", "10.78.0.2", 6819
USER = pwd.getpwnam("nobody")
PLUGIN = BINARIES.parent / "lib/spank_xpud.so"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "ip")
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x20000, 0x4000000, 0x40000000
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 0x40000, 0x1000
LIBC = ctypes.CDLL(None, use_errno=True)


def why_not() -> str | None:
    """Returns why this machine cannot have one, or None."""
    if os.geteuid() != 0:
        return "root is needed for namespaces"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"{', '.join(missing)}: not installed (tools/packages.txt)" if missing else None


def must(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def enter_namespaces() -> None:
    """Gives this thread and the processes that it starts mounts, a name and a network of their own: an empty /run, and Slurm's ports."""
    must(LIBC.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET), "unshare")
    must(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount /")
    must(LIBC.mount(b"run", b"/run", b"tmpfs", 0, b"mode=755"), "mount /run")
    socket.sethostname(NODE)
    # Slurm's resolver wants an address besides loopback.
    for words in ("link set lo up", f"address add {ADDRESS}/32 dev lo", f"address add {SECOND_ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *words.split()], check=True)


class Place:
    """Where the processes of the second node run: a name and a /run of its own. Its munged is the first node's."""

    NAMESPACES = (("mnt", CLONE_NEWNS), ("uts", CLONE_NEWUTS))

    def __init__(self):
        with self._returning():
            must(LIBC.unshare(CLONE_NEWNS | CLONE_NEWUTS), "unshare")
            must(LIBC.mount(b"run", b"/mnt", b"tmpfs", 0, b"mode=755"), "mount /mnt")
            for folder in ("munge", "xpud", "xpud-agent"):
                pathlib.Path("/mnt", folder).mkdir()
            must(LIBC.mount(b"/run/munge", b"/mnt/munge", None, MS_BIND, None), "mount munge")
            must(LIBC.mount(b"/mnt", b"/run", None, MS_BIND | MS_REC, None), "mount /run")
            socket.sethostname(SECOND)
            self._files = self._open()

    @classmethod
    def _open(cls) -> list:
        return [open(f"/proc/thread-self/ns/{name}", "rb") for name, _ in cls.NAMESPACES]

    @classmethod
    def _enter(cls, files: list) -> None:
        for file, (name, kind) in zip(files, cls.NAMESPACES, strict=True):
            must(LIBC.setns(file.fileno(), kind), f"setns {name}")

    @classmethod
    @contextlib.contextmanager
    def _returning(cls):
        with contextlib.ExitStack() as stack:
            before = [stack.enter_context(file) for file in cls._open()]
            try:
                yield
            finally:
                cls._enter(before)

    @contextlib.contextmanager
    def entered(self):
        """This thread, and the processes that it starts, are there meanwhile."""
        with self._returning():
            self._enter(self._files)
            yield

    def close(self) -> None:
        for file in self._files:
            file.close()


class Slurm:
    """munged, slurmctld and slurmd, of nodes with gres/xpud."""

    def __init__(self, folder: pathlib.Path, plugin_arguments: str = "", second: bool = False):
        self.folder = folder
        self.processes: dict[str, subprocess.Popen] = {}
        nodes = {NODE: (ADDRESS, 6818)} | ({SECOND: (SECOND_ADDRESS, SECOND_PORT)} if second else {})
        for name in ("state", "out"):
            (folder / name).mkdir()
        (folder / "out").chmod(0o777)
        self._write("slurm.conf", f"""
ClusterName=test
SlurmctldHost={NODE}({ADDRESS})
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MinJobAge=300
KillWait=2
InactiveLimit=0
SlurmctldDebug=info
SlurmdDebug=info
SlurmdParameters=config_overrides
GresTypes=xpud
PrologFlags=Alloc
Prolog={self._script("prolog")}
Epilog={self._script("epilog")}
PlugStackConfig={folder}/plugstack.conf
{"".join(f"NodeName={name} NodeAddr={address} Port={port} CPUs=16 RealMemory=1000 Gres=xpud:100 State=UNKNOWN{chr(10)}"
                  for name, (address, port) in nodes.items())}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
""")
        self._write("gres.conf", "".join(f"NodeName={name} Name=xpud Count=100\n" for name in nodes))
        self._write("cgroup.conf", "CgroupAutomount=no\n")
        self._write("plugstack.conf", f"required {PLUGIN} {plugin_arguments}\n")
        self.environment = {"PATH": os.environ["PATH"], "SLURM_CONF": str(folder / "slurm.conf"), "HOME": "/"}

    def _write(self, name: str, text: str, mode: int = 0o644) -> pathlib.Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def _script(self, action: str) -> pathlib.Path:
        return self._write(action, f"#!/bin/sh\nexec {BINARIES}/xpud-slurm {action}\n", 0o755)

    def wrapped(self, name: str) -> pathlib.Path:
        """A program that is a command of this cluster."""
        return self._write(name, f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {shutil.which(name)} "$@"\n', 0o755)

    # ---- its daemons

    def start(self) -> None:
        self._write("munge.key", os.urandom(64).hex(), 0o400)
        self._start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key", f"--log-file={self.folder}/munged.log",
                    f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munged.seed")
        wait_until(lambda: pathlib.Path("/run/munge/munge.socket.2").exists(), 10, lambda: self.log("munged"))
        self.start_controller()
        self.start_slurmd()

    def start_controller(self) -> None:
        self._start("slurmctld", "-D")
        wait_until(lambda: self.try_ask("scontrol", "ping").stdout.count(" UP") > 0, 30, lambda: self.log("slurmctld"))

    def start_slurmd(self, node: str = NODE) -> None:
        name = "slurmd" if node == NODE else f"slurmd-{node}"
        self._start("slurmd", "-D", "-N", node, name=name)
        wait_until(lambda: self.node_state(node) in ("IDLE", "MIXED", "ALLOCATED"), 30, lambda: f"{self.node_state(node)}\n{self.log(name)}")

    def _start(self, program: str, *arguments: str, name: str | None = None) -> None:
        with (self.folder / f"{name or program}.out").open("ab") as out:
            self.processes[name or program] = subprocess.Popen([shutil.which(program), *arguments], env=self.environment, cwd="/", stdin=subprocess.DEVNULL,
                                                    stdout=out, stderr=out)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def end_steps(self, job: int) -> None:
        """Kills the processes of a job and what watches them, as if the machine had lost them."""
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                step = f"slurmstepd: [{job}." in (path / "cmdline").read_text(errors="replace")
                if (step or f"SLURM_JOB_ID={job}\0" in (path / "environ").read_text(errors="replace")) and self._is_ours(path):
                    os.kill(int(path.name), signal.SIGKILL)
            except OSError:
                continue  # it has ended

    @staticmethod
    def _is_ours(process: pathlib.Path) -> bool:
        return os.readlink(process / "ns/net") == os.readlink("/proc/thread-self/ns/net")

    def log(self, name: str) -> str:
        return "".join(path.read_text(errors="replace")[-3000:] for path in sorted(self.folder.glob(f"{name}.*")) if path.suffix in (".out", ".log"))

    def close(self) -> None:
        """Ends its daemons, and all that they have started: what is in this network, but for this process and the daemon and agent of the tests."""
        for name in reversed(list(self.processes)):
            self.kill(name)
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if self._is_ours(path) and "SLURM_CONF=" in (path / "environ").read_text(errors="replace"):
                    os.kill(int(path.name), signal.SIGKILL)
            except OSError:
                continue  # it has ended

    # ---- its commands

    def try_ask(self, *command, user: bool = False, env: dict[str, str] | None = None, seconds: float = 40) -> subprocess.CompletedProcess:
        who = {"user": USER.pw_uid, "group": USER.pw_gid, "extra_groups": []} if user else {}
        return subprocess.run([*map(str, command)], env=self.environment | (env or {}), cwd="/", capture_output=True, text=True, timeout=seconds, **who)

    def ask(self, *command, **options) -> str:
        done = self.try_ask(*command, **options)
        if done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def node_state(self, node: str = NODE) -> str:
        words = self.try_ask("sinfo", "--noheader", "-N", "-n", node, "-o", "%T").stdout.split()
        return words[0].upper().rstrip("*") if words else ""

    def submit(self, script: str, *options: str, env: dict[str, str] | None = None) -> int:
        """Returns the job's number. The script runs as nobody; its output is output(job)."""
        path = self._write(f"script-{time.monotonic_ns()}", "#!/bin/bash\n" + script, 0o755)
        return int(self.ask("sbatch", "--parsable", f"--output={self.folder}/out/%A_%a.txt", *options, path, user=True, env=env).split(";")[0])

    def output(self, job: int, task: int = 4294967294) -> str:
        path = self.folder / f"out/{job}_{task}.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def state(self, job: int | str) -> str:
        words = self.try_ask("squeue", "--noheader", "--states=all", "-j", job, "-o", "%T").stdout.split()
        return words[0] if words else "GONE"

    def wait_for(self, job: int | str, *states: str, seconds: float = 40) -> None:
        wait_until(lambda: self.state(job) in states, seconds, lambda: f"{states}, not {self.state(job)}\n{self.log('slurmd')}\n{self.log('slurmctld')}")


class SlurmTest(unittest.TestCase):
    """A cluster for each class, of two nodes if HAS_SECOND. Its daemons have one CPU device, and a socket that users cannot open."""

    PLUGIN_ARGUMENTS = ""
    LIMITS: dict[str, str] = {}
    HAS_SECOND = False

    @classmethod
    def _start_node(cls, name: str, address: str) -> tuple[Daemon, Agent]:
        folder = cls.folder / name
        for part in ("state", "agent"):
            (folder / part).mkdir(mode=0o755, parents=True)
        daemon = Daemon(BINARIES, folder / "daemon.log", "--device", "cpu", "--state-dir", str(folder / "state"), "--socket-mode", "0600",
                        address=pathlib.Path("/run/xpud/xpud.sock"))
        cls.addClassCleanup(daemon.close)
        agent = Agent(folder / "agent", json.dumps({
            "socket": "/run/xpud/xpud.sock", "state": str(folder / "agent"), "node": name, "metrics-listen": f"{address}:0",
            "grants": {"socket": "/run/xpud-agent/agent.sock"},
            "slurm": {"enabled": True, "scontrol": str(cls.slurm.wrapped("scontrol")), "squeue": str(cls.slurm.wrapped("squeue"))} | cls.LIMITS}))
        cls.addClassCleanup(agent.stop, signal.SIGKILL)
        agent.start()
        return daemon, agent

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="xpud-slurm-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.folder.chmod(0o755)
        (cls.folder / "slurm").mkdir(mode=0o755)
        for folder in ("xpud", "xpud-agent", "munge"):
            pathlib.Path("/run", folder).mkdir(exist_ok=True)
        cls.slurm = Slurm(cls.folder / "slurm", cls.PLUGIN_ARGUMENTS, cls.HAS_SECOND)
        cls.daemon, cls.agent = cls._start_node(NODE, ADDRESS)
        cls.addClassCleanup(cls.slurm.close)
        cls.slurm.start()
        if cls.HAS_SECOND:
            cls.second = Place()
            cls.addClassCleanup(cls.second.close)
            with cls.second.entered():
                cls.second_daemon, cls.second_agent = cls._start_node(SECOND, SECOND_ADDRESS)
                cls.slurm.start_slurmd(SECOND)

    def tearDown(self):
        self.slurm.try_ask("scancel", "--full", "--user=nobody")
        self.slurm.try_ask("scancel", "--signal=KILL", "--user=nobody")
        wait_until(lambda: not self.slurm.try_ask("squeue", "--noheader").stdout, 30, lambda: self.slurm.try_ask("squeue").stdout)
        for claims in (self.claims, *((self.second_claims,) if self.HAS_SECOND else ())):
            wait_until(lambda claims=claims: not claims(), 10, lambda claims=claims: str(claims()))
        for node in (NODE, *((SECOND,) if self.HAS_SECOND else ())):
            self.assertNotIn("DRAIN", self.slurm.node_state(node))

    def claims(self) -> dict[str, dict]:
        """The daemon's claims, by key."""
        return self._claims_of(self.daemon)

    def second_claims(self) -> dict[str, dict]:
        with self.second.entered():
            return self._claims_of(self.second_daemon)

    @staticmethod
    def _claims_of(daemon: Daemon) -> dict[str, dict]:
        return {claim["key"]: claim for claim in json.loads(daemon.ask("claim", "list", "-o", "json"))["claims"]}

    def claim_of(self, job: int, seconds: float = 10) -> dict:
        wait_until(lambda: f"slurm-{job}" in self.claims(), seconds, lambda: f"{self.claims()}\n{self.slurm.log('slurmd')}")
        return self.claims()[f"slurm-{job}"]
