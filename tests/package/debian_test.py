"""The Debian packages, in a bare Debian with systemd: `tools/package` built them."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from bare_debian import ROOT, BareDebian

PACKAGES = ROOT / "build/package"
NEXT = "+next"  # suffix of the version to upgrade to


def built(name: str) -> pathlib.Path:
    found = [path for path in PACKAGES.glob(f"{name}_*.deb")]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} packages {name} in {PACKAGES}: run tools/package")
    return found[0]


def make_next(package: pathlib.Path, folder: pathlib.Path) -> None:
    """Returns the same package with the next version."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN/control"
    version = re.search(r"^Version: (.*)$", control.read_text(), re.M)[1]
    control.write_text(control.read_text().replace(f"Version: {version}", f"Version: {version}{NEXT}").replace(f"(= {version})", f"(= {version}{NEXT})"))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, folder], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)


def setUpModule():
    """Prepares /packages: the packages, newer ones in /packages/next, and a program that was built with libxpud-dev."""
    global shared
    if os.geteuid() != 0:
        raise unittest.SkipTest("a machine of its own takes root")
    shared = pathlib.Path(tempfile.mkdtemp(prefix="xpud-package-"))
    shared.chmod(0o755)
    unittest.addModuleCleanup(shutil.rmtree, shared)
    (shared / "next").mkdir()
    for name in ("xpud", "xpud-ctl", "xpud-gateway", "xpud-node-agent", "libxpud0"):
        shutil.copy(built(name), shared)
        make_next(built(name), shared / "next")
    prefix = shared / "developer"
    for name in ("libxpud0", "libxpud-dev"):
        subprocess.run(["dpkg-deb", "-x", built(name), prefix], check=True)
    build = shared / "build"
    for command in (["-G", "Ninja", "-S", ROOT / "tests/package", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}/usr", "-DCMAKE_CXX_COMPILER=clang++-22"],
                    ["--build", build]):
        subprocess.run(["cmake", *command], check=True, stdout=subprocess.DEVNULL)
    shutil.copy(build / "package_user", shared)


class Packages(unittest.TestCase):
    """alice is in the group xpud, bob is not."""

    def setUp(self):
        self.machine = BareDebian(shared)
        self.addCleanup(self.machine.close)
        self.before = self.what_there_is()
        self.install("xpud", "xpud-ctl", "xpud-gateway", "xpud-node-agent", "libxpud0")
        for user in ("alice", "bob"):
            self.machine.run("useradd", "--create-home", user)
        self.machine.run("adduser", "alice", "xpud")

    def install(self, *names: str, folder: str = "/packages") -> None:
        files = " ".join(f"{folder}/{name}_*.deb" for name in names)
        self.machine.run("sh", "-c", f"apt-get -q install -y --no-install-recommends {files}")

    def compute(self, user: str, *environment: str) -> subprocess.CompletedProcess:
        """Doubles three numbers; exit status 0 if the result is right."""
        return self.machine.run("env", *environment, "/packages/package_user", user=user, check=False)

    def await_there(self, condition: str) -> None:
        self.machine.run("timeout", 20, "sh", "-c", f"until {condition}; do sleep 0.1; done")

    def property(self, unit: str, name: str) -> str:
        return self.machine.run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()

    def what_there_is(self) -> list[str]:
        """Returns every file, user and group, except records of the package system about removed packages."""
        kept = r"/(proc|sys|dev|tmp|packages)(/|$)|/run/(adduser|systemd|log|lock|utmp)|/var/(log|cache/(apt|debconf|ldconfig)|lib/(apt|dpkg|systemd))/|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$|__pycache__"
        found = self.machine.run("find", "/", "/run", "-xdev").stdout.splitlines()
        names = self.machine.run("cut", "-d:", "-f1", "/etc/passwd", "/etc/group").stdout.splitlines()
        return sorted({path for path in found if not re.match(kept, path)}) + sorted(names)

    def sockets(self) -> str:
        """Tests who may use the devices, and which ones there are."""
        return self.machine.run("stat", "-c", "%n %U:%G %a %i", "/run/xpud/xpud.sock", "/run/xpud/control.sock").stdout

    def test_sockets_stay_and_bring_the_daemon_back(self):
        before = self.sockets()
        self.assertRegex(before, r"xpud.sock xpud:xpud 660 .*\n.*control.sock xpud:xpud-operators 660 ")
        self.machine.run("systemctl", "stop", "xpud.service")
        self.assertEqual(self.sockets(), before)
        self.assertIn("PERMISSION_DENIED", self.compute("bob").stderr)
        self.assertEqual(self.property("xpud.service", "ActiveState"), "inactive")
        self.assertEqual(self.compute("alice").returncode, 0)
        self.assertEqual(self.property("xpud.service", "ActiveState"), "active")
        self.machine.run("systemctl", "stop", "xpud.service")
        self.assertIn("cpu", self.machine.run("xpuctl", "devices").stdout)

    def test_the_configuration_is_read_again_and_an_idle_daemon_may_go_and_comes_with_the_next_client(self):
        self.machine.run("sh", "-c", "sed -i 's/^#exit-when-idle: .*/exit-when-idle: 0/' /etc/xpud/xpud.yaml && xpuctl config check && systemctl reload xpud")
        for _ in range(2):
            self.await_there("[ $(systemctl show --value -p ActiveState xpud.service) = inactive ]")
            self.assertEqual(self.compute("alice").returncode, 0)
        self.assertEqual(self.property("xpud.service", "Result"), "success")

    def test_the_example_of_metrics_works_as_it_is(self):
        self.machine.run("sh", "-c", "install -D -m 644 /usr/share/doc/xpud/examples/metrics.conf /etc/systemd/system/xpud.service.d/metrics.conf && "
                                     "systemctl daemon-reload && systemctl restart xpud")
        page = self.machine.run("python3", "-c", "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9464/metrics', timeout=10).read().decode())").stdout
        self.assertIn("xpud_", page)
        self.assertEqual(self.compute("alice").returncode, 0)

    def test_the_daemon_runs_and_is_the_user_xpud(self):
        self.assertEqual(self.property("xpud.service", "ActiveState"), "active")
        self.assertEqual(self.property("xpud.service", "UnitFileState"), "enabled")
        self.assertEqual(self.machine.run("stat", "-c", "%U", f"/proc/{self.property('xpud.service', 'MainPID')}").stdout, "xpud\n")
        self.assertIn("confined landlock=on", self.machine.run("journalctl", "-u", "xpud").stdout)
        self.assertEqual(self.machine.run("journalctl", "-q", "-u", "xpud", "-p", "warning").stdout, "")

    def test_who_is_in_the_group_computes_and_who_is_not_is_told(self):
        self.assertEqual(self.compute("alice").returncode, 0)
        refused = self.compute("bob")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("PERMISSION_DENIED", refused.stderr)
        self.assertEqual(self.machine.processes("bob"), {})

    def test_the_control_socket_is_roots_the_daemons_and_the_operators(self):
        self.assertIn("cpu", self.machine.run("xpuctl", "devices").stdout)
        self.assertEqual(self.machine.run("stat", "-c", "%U:%G %a", "/run/xpud/control.sock").stdout, "xpud:xpud-operators 660\n")
        self.machine.run("xpuctl", "claim", "create", "of-root")
        self.assertNotEqual(self.machine.run("xpuctl", "claim", "create", "of-alice", user="alice", check=False).returncode, 0)

    def test_no_other_program_loads_the_daemons_libraries(self):
        self.assertNotRegex(self.machine.run("ldconfig", "-p").stdout, "libze_xpud|libdnnl")
        wanted = self.machine.run("ldd", "/usr/bin/xpud").stdout
        self.assertIn("/usr/bin/../lib/xpud/libdnnl.so.3", wanted)
        self.assertNotIn("LLVM", wanted)

    def test_an_upgrade_restarts_the_daemon_and_keeps_what_the_administrator_wrote(self):
        earlier = self.property("xpud.service", "MainPID")
        sockets = self.sockets()
        self.machine.run("sh", "-c", "for file in gateway.env xpud.yaml; do echo '# ours' >> /etc/xpud/$file; done")
        self.install("xpud", "xpud-ctl", "xpud-gateway", "xpud-node-agent", "libxpud0", folder="/packages/next")
        self.assertRegex(self.machine.run("dpkg-query", "-W", "-f", "${Version}", "xpud").stdout, re.escape(NEXT) + "$")
        self.assertEqual(self.property("xpud.service", "ActiveState"), "active")
        self.assertNotEqual(self.property("xpud.service", "MainPID"), earlier)
        self.assertEqual(self.sockets(), sockets, "clients wait for the next daemon")
        for file in ("gateway.env", "xpud.yaml"):
            self.assertIn("# ours", self.machine.run("cat", f"/etc/xpud/{file}").stdout)
        self.assertEqual(self.compute("alice").returncode, 0)

    def test_the_agent_is_off_until_it_is_enabled_and_then_is_an_operator(self):
        self.assertEqual(self.property("xpud-node-agent.service", "ActiveState"), "inactive")
        self.assertEqual(self.property("xpud-node-agent.service", "UnitFileState"), "disabled")
        self.machine.run("sh", "-c", "echo 'metrics-listen: 127.0.0.1:9465' >> /etc/xpud/agent.yaml")
        self.machine.run("systemctl", "enable", "--now", "xpud-node-agent")
        page = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9465/readyz', timeout=10).read().decode())"
        self.await_there(f'python3 -c "{page}" | grep -qx ok')
        self.assertEqual(self.machine.run("stat", "-c", "%U", f"/proc/{self.property('xpud-node-agent.service', 'MainPID')}").stdout, "xpud-agent\n")
        self.assertEqual(self.machine.run("stat", "-c", "%U %a", "/run/xpud-agent/agent.sock").stdout, "xpud-agent 666\n")
        self.machine.run("systemctl", "restart", "xpud")
        self.await_there(f'python3 -c "{page}" | grep -qx ok')
        self.assertEqual(self.machine.run("journalctl", "-q", "-u", "xpud-node-agent", "-p", "err").stdout, "")

    def test_the_gateway_is_off_until_it_is_enabled_and_then_serves_whoever_has_the_token(self):
        self.assertEqual(self.property("xpud-gateway.service", "ActiveState"), "inactive")
        self.assertEqual(self.property("xpud-gateway.service", "UnitFileState"), "disabled")
        self.machine.run("sh", "-c", """
            head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n' > /etc/xpud/token && install -m 600 -o bob /etc/xpud/token /home/bob/token
            chown xpud-gateway /etc/xpud/token && chmod 600 /etc/xpud/token
            echo 'GATEWAY_OPTIONS=--token-file /etc/xpud/token --listen 127.0.0.1:27070' > /etc/xpud/gateway.env""")
        self.machine.run("systemctl", "enable", "--now", "xpud-gateway")
        self.await_there("journalctl -u xpud-gateway | grep -q 'serving version'")
        served = self.compute("bob", "XPUD_ADDRESS=127.0.0.1:27070", "XPUD_TOKEN_FILE=/home/bob/token")
        self.assertEqual((served.returncode, served.stderr), (0, ""))
        self.assertNotEqual(self.compute("bob", "XPUD_ADDRESS=127.0.0.1:27070").returncode, 0)

    def test_a_purge_leaves_no_file_of_a_deleted_user(self):
        self.machine.run("sh", "-c", "install -m 600 -o xpud-gateway -g xpud /dev/null /etc/xpud/token && install -d -o xpud -g xpud /var/tmp/flights")
        self.machine.run("apt-get", "-q", "purge", "-y", "xpud*", "libxpud*")
        self.assertEqual(self.machine.run("find", "/", "/run", "-xdev", "(", "-nouser", "-o", "-nogroup", ")").stdout, "")
        self.assertEqual(self.machine.run("stat", "-c", "%U:%G %a", "/etc/xpud/token", "/var/tmp/flights").stdout, "root:root 600\nroot:root 755\n")

    def test_a_purge_leaves_nothing(self):
        self.assertEqual(self.compute("alice").returncode, 0)
        self.assertTrue(set(self.what_there_is()) - set(self.before))
        self.machine.run("apt-get", "-q", "purge", "-y", "xpud*", "libxpud*")
        self.machine.run("apt-get", "-q", "autoremove", "--purge", "-y")
        for user in ("alice", "bob"):
            self.machine.run("userdel", "--remove", user)
        after = self.what_there_is()
        self.assertEqual((sorted(set(after) - set(self.before)), sorted(set(self.before) - set(after))), ([], []))


if __name__ == "__main__":
    unittest.main()
