"""The wheel of torch_xpud, in a bare Debian with Python and torch but nothing else that xpud is built from. `tools/package --wheel` builds it."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import tempfile
import unittest

from bare_debian import ROOT, BareDebian

ONE_LINER = "import torch; print((torch.ones(3, device='xpud') * 2).sum())"
PYTHON = "/home/alice/venv/bin/python"
FOLDER = "/home/alice/venv/lib/python3.11/site-packages/torch_xpud"


def built() -> pathlib.Path:
    found = list((ROOT / "build/package").glob("torch_xpud-*.whl"))
    if len(found) != 1:
        raise AssertionError(f"{len(found)} wheels: run tools/package --wheel")
    return found[0]


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def copy_distribution(name: str, folder: pathlib.Path, done: set[str]) -> None:
    """Copies an installed distribution and its requirements, as pip would install them."""
    if name in done:
        return
    done.add(name)
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return  # for another platform or Python
    for top in {path.parts[0] for path in distribution.files if path.parts[0] not in ("..", "__pycache__")}:
        source = pathlib.Path(distribution.locate_file(top))
        if source.is_dir():
            shutil.copytree(source, folder / top, copy_function=link_or_copy, dirs_exist_ok=True)
        else:
            link_or_copy(source, folder / top)
    for requirement in distribution.requires or []:
        if "extra ==" not in requirement:
            copy_distribution(re.match(r"[\w.-]+", requirement)[0], folder, done)


def setUpModule():
    """Prepares /packages: the wheel, and in /packages/site torch with its requirements."""
    global shared
    if os.geteuid() != 0:
        raise unittest.SkipTest("a machine of its own takes root")
    shared = pathlib.Path(tempfile.mkdtemp(prefix="wheel-test-", dir=ROOT / "build"))
    shared.chmod(0o755)
    unittest.addModuleCleanup(shutil.rmtree, shared)
    shutil.copy(built(), shared)
    (shared / "site").mkdir()
    copy_distribution("torch", shared / "site", set())


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = BareDebian(shared)
        cls.addClassCleanup(cls.machine.close)
        cls.machine.run("sh", "-c", "apt-get -q install -y --no-install-recommends python3-venv && useradd --create-home alice")
        # torch requires a newer setuptools than the environment's.
        cls.machine.run("sh", "-c", "cd /home/alice && python3 -m venv fresh && fresh/bin/python -m pip -q uninstall -y setuptools && "
                                    "echo /packages/site > fresh/lib/python3.11/site-packages/torch.pth", user="alice")

    def setUp(self):
        """An environment without installed packages and without a daemon."""
        if left := self.machine.processes("alice"):
            self.machine.run("sh", "-c", f"kill -9 {' '.join(left)}")
        self.alice("sh", "-c", "rm -rf /home/alice/venv /tmp/xpud-*; cp -a /home/alice/fresh /home/alice/venv")

    def alice(self, *command: object, **options):
        return self.machine.run(*command, user="alice", **options)

    def install(self, *options: str, **how):
        return self.alice("sh", "-c", f"{PYTHON} -m pip install --no-index {' '.join(options)} /packages/torch_xpud-*.whl", **how)

    def test_the_one_liner_works_with_a_daemon_from_the_wheel(self):
        self.install()
        done = self.alice(PYTHON, "-c", ONE_LINER)
        self.assertEqual(done.stdout, "tensor(6., device='xpud:0')\n")
        self.assertIn("started a private daemon", done.stderr)
        self.assertRegex(self.alice("/home/alice/venv/bin/xpuctl", "status").stdout, r"private")
        self.assertEqual(set(self.machine.processes("alice").values()), {f"{FOLDER}/bin/xpud"})

    def test_matrices_and_attention_reach_the_libraries_inside(self):
        self.install()
        check = """
import torch
a, b = torch.randn(64, 128), torch.randn(128, 32)
assert torch.allclose((a.to("xpud") @ b.to("xpud")).cpu(), a @ b, atol=1e-4)
q = torch.randn(2, 4, 16, 32)
f = torch.nn.functional.scaled_dot_product_attention
assert torch.allclose(f(*[q.to("xpud")] * 3).cpu(), f(q, q, q), atol=1e-4)
"""
        self.alice(PYTHON, "-c", check)

    def test_every_library_is_inside_or_the_systems(self):
        self.install()
        found = self.alice("sh", "-c", f"ldd {FOLDER}/bin/* {FOLDER}/*.so").stdout
        outside = {name for name, path in re.findall(r"(\S+) => (\S+)", found) if not path.startswith(FOLDER) and path != "not"}
        self.assertLessEqual({name.split(".so")[0] for name in outside}, {"libc", "libm", "libdl", "librt", "libpthread", "libstdc++", "libgcc_s"})
        missing = {name.split(".so")[0] for name in re.findall(r"(\S+) => not found", found)}
        self.assertLessEqual(missing, {"libtorch_python", "libtorch_cpu", "libc10", "libtorch"})  # loaded already when the library is loaded

    def test_the_network_client_is_inside(self):
        self.install()
        done = self.alice("env", "XPUD_ADDRESS=127.0.0.1:9", PYTHON, "-c", ONE_LINER, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("127.0.0.1:9: Failed to connect to remote host: Connection refused", done.stderr)

    def test_another_torch_is_refused(self):
        self.alice("sh", "-c", "cp -r /packages/site/torch-*.dist-info /home/alice/venv/lib/python3.11/site-packages && cd /home/alice/venv/lib/python3.11/site-packages && "
                               "mv torch-*.dist-info torch-2.12.0.dist-info && sed -i 's/^Version: .*/Version: 2.12.0/' torch-2.12.0.dist-info/METADATA")
        refused = self.install(check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("torch==2.13.*", refused.stderr)

    def test_it_goes_as_it_came(self):
        before = self.alice("find", "/home/alice/venv").stdout
        self.install("--no-compile")
        self.assertNotEqual(self.alice("find", "/home/alice/venv").stdout, before)
        self.alice(PYTHON, "-m", "pip", "uninstall", "-y", "torch_xpud")
        self.assertEqual(sorted(self.alice("find", "/home/alice/venv").stdout.splitlines()), sorted(before.splitlines()))


if __name__ == "__main__":
    unittest.main()
