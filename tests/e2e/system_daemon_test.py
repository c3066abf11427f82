"""Clients of a machine with a system's daemon. Each case runs in a mount namespace with a /run and /tmp of its own."""

import os
import pathlib
import subprocess
import sys
import unittest

from harness import BINARIES

TO_NAMESPACE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
MOUNTED = 'mount -t tmpfs none /run && mount -t tmpfs none /tmp && mkdir /run/xpud && exec "$@"'
COMPUTE = "import numpy, xpud; print(xpud.asarray(numpy.ones(3)).numpy().sum())"
USE = [sys.executable, "-c", COMPUTE]


def run(*command: str | pathlib.Path, **env: str) -> subprocess.CompletedProcess:
    environment = {key: value for key, value in os.environ.items() if key not in ("XPUD_ADDRESS", "XDG_RUNTIME_DIR", "TMPDIR")}
    environment |= {"PYTHONPATH": str(BINARIES.parent / "lib"), "XPUD_DAEMON": str(BINARIES / "xpud"), "HOME": "/tmp/home"} | env
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def serve() -> subprocess.Popen:
    """Starts the system's daemon of this namespace."""
    ready, ready_child = os.pipe()
    daemon = subprocess.Popen([BINARIES / "xpud", "--socket", "/run/xpud/xpud.sock", "--device", "cpu", "--ready-fd", str(ready_child)], pass_fds=[ready_child])
    os.close(ready_child)
    with os.fdopen(ready, "rb") as pipe:
        assert pipe.read(1), "the daemon did not start"
    return daemon


def expect_served(**env: str) -> None:
    for command in (USE, [BINARIES / "xpuctl", "status"], [BINARIES / "xpuctl", "doctor"]):
        done = run(*command, **env)
        assert done.returncode == 0, (command, done)
    assert "answers at /run/xpud/xpud.sock" in run(BINARIES / "xpuctl", "doctor", **env).stdout


class Within:
    """What runs in the namespace, by the name of the test."""

    def test_another_users_folder_locks_nobody_out(self) -> None:
        private = pathlib.Path(f"/tmp/xpud-{os.geteuid()}")
        private.mkdir(mode=0o777)
        private.chmod(0o777)  # as if somebody else had made it
        expect_served()

    def test_a_temporary_folder_that_cannot_be_written_locks_nobody_out(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", "/tmp"], check=True)
        expect_served(HOME="/nonexistent")
        expect_served(HOME="/nonexistent", TMPDIR="/nonexistent")

    def test_without_it_clients_say_so_and_start_none(self) -> None:
        for command in (USE, [BINARIES / "xpuctl", "status"]):
            done = run(*command)
            assert done.returncode != 0, done
            assert "no xpud daemon answers at /run/xpud/xpud.sock" in done.stderr and "systemctl status xpud" in done.stderr, done
        assert list(pathlib.Path("/tmp").iterdir()) == [], "nothing is made for a daemon that is not started"

    def test_it_is_used_again_once_it_answers(self) -> None:
        assert run(*USE).returncode != 0
        daemon = serve()
        expect_served()
        daemon.terminate()
        daemon.wait()
        assert run(*USE).returncode != 0


WITHOUT = ("test_without_it_clients_say_so_and_start_none", "test_it_is_used_again_once_it_answers")


@unittest.skipUnless(subprocess.run([*TO_NAMESPACE, "true"], capture_output=True).returncode == 0, "no mount namespaces here")
class SystemDaemon(unittest.TestCase):
    def within(self) -> None:
        done = subprocess.run([*TO_NAMESPACE, "sh", "-c", MOUNTED, "sh", sys.executable, __file__, "--within", self._testMethodName], capture_output=True,
                              text=True, timeout=300, cwd=pathlib.Path(__file__).parent)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])


for name in (name for name in vars(Within) if name.startswith("test_")):
    setattr(SystemDaemon, name, SystemDaemon.within)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--within"]:
        case = sys.argv[2]
        own = None if case in WITHOUT else serve()
        try:
            getattr(Within(), case)()
        finally:
            if own is not None:
                own.kill()
    else:
        unittest.main()
