"""The Pythons that tools/setup --python accepts, and the .venv that it creates, on interpreters with small packages called torch."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[1]
PINNED = next(line.strip().removeprefix("torch==") for line in (TOOLS / "requirements.txt").read_text().splitlines()
              if line.startswith("torch=="))
MINOR = ".".join(PINNED.split(".")[:2])


class Python(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-python-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "root")
        (self.root / "tools").mkdir(parents=True)
        (self.root / "tools/requirements.txt").symlink_to(TOOLS / "requirements.txt")

    def interpreter(self, torch: str | None, folder: str = "base") -> pathlib.Path:
        """Makes a virtual environment's Python; `torch` is the value of torch.__version__ there."""
        venv = self.root / folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        if torch is not None:
            package = next(venv.glob("lib/python*/site-packages")) / "torch"
            package.mkdir()
            (package / "__init__.py").write_text(f"__version__ = {torch!r}\n")
        return venv / "bin/python"

    def bash(self, *words) -> subprocess.CompletedProcess:
        """Runs a function of python.sh, as if the repository were self.root."""
        script = (f"source {TOOLS}/lib/common.sh; source {TOOLS}/lib/python.sh; cd {self.root}; XPUD_ROOT=$PWD "
                  'XPUD_PYTHON=$PWD/.venv/bin/python; "$@"')
        return subprocess.run(["bash", "-c", script, "setup", *words], capture_output=True, text=True, timeout=120)

    def assert_refused(self, python, why: str):
        done = self.bash("check_base", python)
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, f"^setup: --python: .*{why}")

    def test_the_pinned_torch_is_accepted_in_any_build_and_patch_level(self):
        for version in (PINNED, f"{PINNED}+cu130", f"{MINOR}.99"):
            done = self.bash("check_base", self.interpreter(version, version))
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_others_are_refused_with_the_reason(self):
        self.assert_refused("/nowhere/python", "no program /nowhere/python")
        self.assert_refused(self.interpreter(None, "without"), "has no torch")
        self.assert_refused(self.interpreter("1.0.0+cpu", "old"), rf"has torch 1\.0\.0\+cpu; .* needs torch {MINOR}")
        self.assert_refused(self.interpreter(MINOR + "0.0", "near"), f"needs torch {MINOR}")
        self.assert_refused(self.interpreter(PINNED, ".venv"), "belongs to .venv")

    def test_the_venv_sees_the_torch_of_another_venv_and_keeps_nothing_of_before(self):
        base = self.interpreter(f"{PINNED}+base")
        stale = self.interpreter("0.1", ".venv")
        done = self.bash("make_venv_on", base)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"torch {PINNED}+base from {base.parents[1]}", done.stdout)
        version = subprocess.run([stale, "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True, text=True)
        self.assertEqual(version.stdout, f"{PINNED}+base\n")

    def test_a_program_is_looked_up_from_where_the_caller_is(self):
        for given in ("python3", "./python3", "/usr/bin/env"):
            done = subprocess.run(["bash", "-c", f"source {TOOLS}/lib/common.sh; program {given}"], capture_output=True, text=True,
                                  cwd="/usr/bin", env={"PATH": "/usr/bin:/bin"})
            self.assertEqual((done.returncode, done.stdout), (0, f"/usr/bin/{pathlib.Path(given).name}\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
