"""A bare Debian 12 to install packages in: a root made with debootstrap, namespaces, and systemd as its first process. Needs root.

The root is created once, in build/bare-debian, from the mirror of this machine's apt. Each machine is a layer over it, in memory.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = ROOT / "build/bare-debian"

# $1: the root, which is discarded with the last process. Creates the folders that an init process expects, and starts it.
BOOT = r"""
set -e
mount --make-rprivate /
mount -t tmpfs layer "$2"
mkdir "$2"/upper "$2"/work "$2"/root
mount -t overlay root -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 dev dev
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/pts dev/shm packages
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 pts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
mount --bind "$3" packages
mkdir outside
pivot_root . outside
umount -l /outside
rmdir /outside
exec env -i container=xpud PATH=/usr/sbin:/usr/bin:/sbin:/bin /sbin/init --unit=multi-user.target --log-target=journal
"""


def sources() -> list[str]:
    """Returns the lines of Debian's mirror."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "deb $(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"], check=True,
                            capture_output=True, text=True).stdout.splitlines()
    return sorted({line for line in listed if line.split()[2].startswith("bookworm")})


def make_base() -> None:
    if (BASE / "etc/xpud-base").exists():
        return
    shutil.rmtree(BASE, ignore_errors=True)
    lines = sources()
    mirror = next(line.split()[1] for line in lines if line.split()[2] == "bookworm")
    partial = BASE.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    subprocess.run(["debootstrap", "--variant=minbase", "--include=systemd-sysv,python3", "bookworm", partial, mirror], check=True, stdout=subprocess.DEVNULL)
    (partial / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")
    settings = subprocess.run(["apt-config", "dump", "Acquire"], check=True, capture_output=True, text=True).stdout
    (partial / "etc/apt/apt.conf.d/90acquire").write_text(settings)
    shutil.copy("/etc/resolv.conf", partial / "etc/resolv.conf")
    subprocess.run(["chroot", partial, "apt-get", "-q", "update"], check=True, stdout=subprocess.DEVNULL)
    (partial / "etc/xpud-base").touch()
    partial.rename(BASE)


class BareDebian:
    def __init__(self, packages: pathlib.Path):
        """`packages` appears in /packages."""
        make_base()
        self._folder = tempfile.mkdtemp(prefix="xpud-bare-")
        self._outer = subprocess.Popen(["unshare", "--mount", "--pid", "--cgroup", "--ipc", "--uts", "--fork", "--kill-child", "bash", "-c", BOOT, "boot", BASE,
                                        self._folder, packages], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._first = self._child()
        self._await_start()

    def _child(self) -> int:
        children = pathlib.Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        limit = time.monotonic() + 10
        while time.monotonic() < limit:
            if found := children.read_text().split():
                return int(found[0])
            time.sleep(0.01)
        raise RuntimeError("no process in the namespaces")

    def _await_start(self) -> None:
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            answer = self.run("systemctl", "is-system-running", check=False).stdout.strip()
            if answer in ("running", "degraded"):
                return
            time.sleep(0.1)
        raise RuntimeError(f"systemd does not start: {answer}")

    def run(self, *command: object, user: str = "root", check: bool = True, timeout: float = 300) -> subprocess.CompletedProcess:
        """Runs a command in the machine, as a user with that user's groups."""
        enter = ["nsenter", "--target", str(self._first), "--mount", "--pid", "--cgroup", "--ipc", "--uts", "--root", "--wd"]
        become = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", f"HOME=/home/{user}"]
        done = subprocess.run([*enter, *become, *environment, *map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done

    def processes(self, user: str) -> dict[str, str]:
        """Programs by pid."""
        listed = self.run("sh", "-c", f"find /proc -maxdepth 1 -name '[0-9]*' -user {user} -exec sh -c 'echo $(basename $1) $(readlink $1/exe)' sh {{}} ';'").stdout
        return dict(line.split(maxsplit=1) for line in listed.splitlines() if " " in line)

    def close(self) -> None:
        os.kill(self._first, signal.SIGKILL)
        self._outer.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
