"""The warning before downloads of CUDA packages, on plans like pip's report and on plans that pip makes for local wheels."""

import importlib.metadata
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import unittest
import zipfile

import torch_download

CUDA_NEEDS = ["nvidia-cublas", "nvidia-cudnn-cu13", "triton", "filelock"]
SCRIPT = pathlib.Path(torch_download.__file__)


def pip_can_report() -> bool:
    try:
        return tuple(int(part) for part in importlib.metadata.version("pip").split(".")[:2]) >= (22, 2)
    except importlib.metadata.PackageNotFoundError:
        return False


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xpud-wheels-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Warning(Folder):
    def package(self, name: str, size: int | None) -> dict:
        """An entry of pip's report. The wheel has `size` bytes; None: the server does not answer."""
        file = self.folder / f"{name}-1.0-py3-none-any.whl"
        if size is not None:
            with file.open("wb") as out:
                out.truncate(size)
        return {"download_info": {"url": file.as_uri(), "archive_info": {"hashes": {"sha256": "0" * 64}}}, "is_direct": False,
                "requested": name == "torch", "metadata": {"metadata_version": "2.1", "name": name, "version": "1.0"}}

    def test_a_cuda_plan_says_the_total_first(self):
        plan = [self.package("torch", 800_000_000), self.package("nvidia-cublas-cu12", 1_600_000_000),
                self.package("triton", 200_000_000), self.package("sympy", 900_000_000)]
        self.assertEqual(torch_download.warning(plan), "2.6 GB to download: pip's torch is the CUDA build, 3 packages, and xpud uses none "
                                                       "of the CUDA part.")

    def test_what_has_no_known_size_is_counted(self):
        plan = [self.package("torch", 500_000_000), self.package("nvidia-nccl-cu13", None), self.package("cuda-bindings", None)]
        self.assertTrue(torch_download.warning(plan).startswith("0.5 GB and 2 of unknown size to download: "))
        self.assertTrue(torch_download.warning(plan[1:]).startswith("an unknown size to download: "))

    def test_a_cpu_plan_says_nothing(self):
        self.assertIsNone(torch_download.warning([self.package("torch", 200_000_000), self.package("sympy", 6_000_000)]))


@unittest.skipUnless(pip_can_report(), "this Python's pip has no --report; tools/setup brings one")
class Asking(Folder):
    """The program, with pip planning from a folder of wheels that contain only metadata."""

    def setUp(self):
        super().setUp()
        self.requirements = self.folder / "requirements.txt"
        self.requirements.write_text("# pinned\ntorch==99.1.0\nnumpy==1\n")
        for name in CUDA_NEEDS:
            self.wheel(name, "1.0")

    def wheel(self, name: str, version: str, needs: list[str] = ()) -> None:
        stem = f"{name.replace('-', '_')}-{version}"
        files = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(f"Requires-Dist: {n}\n" for n in needs),
                 "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "RECORD": ""}
        with zipfile.ZipFile(self.folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            for file, text in files.items():
                wheel.writestr(f"{stem}.dist-info/{file}", text)

    def command(self, *options: str) -> dict:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        return {"args": [sys.executable, SCRIPT, *options, self.requirements], "text": True, "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "env": env | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder), "PIP_CONFIG_FILE": os.devnull}}

    def run_without_terminal(self, *options: str) -> subprocess.CompletedProcess:
        return subprocess.run(**self.command(*options), stdin=subprocess.DEVNULL, timeout=120)

    def answer(self, line: str) -> tuple[int, str]:
        """Returns exit status and output when a person types `line`."""
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "wb", buffering=0) as keyboard, subprocess.Popen(**self.command(), stdin=theirs) as process:
            os.close(theirs)
            keyboard.write(line.encode() + b"\n")
            out = process.communicate(timeout=120)[0]
        return process.returncode, out

    def test_without_a_terminal_it_stops_and_says_how_to_go_on(self):
        self.wheel("torch", "99.1.0", CUDA_NEEDS)
        done = self.run_without_terminal()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"^\d+\.\d MB to download: pip's torch is the CUDA build, 4 packages")
        self.assertIn("--yes", done.stdout)
        self.assertIn("--python PATH", done.stdout)

    def test_yes_goes_on_and_still_says_the_size(self):
        self.wheel("torch", "99.1.0", CUDA_NEEDS)
        done = self.run_without_terminal("--yes")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("MB to download", done.stdout)

    def test_a_person_is_asked(self):
        self.wheel("torch", "99.1.0", CUDA_NEEDS)
        for line, status in (("y", 0), ("yes", 0), ("n", 1), ("", 1)):
            returned, out = self.answer(line)
            self.assertEqual(returned, status, line)
            self.assertLess(out.index("to download"), out.index("Go on?"))

    def test_a_cpu_build_is_no_question(self):
        self.wheel("torch", "99.1.0", ["filelock"])
        done = self.run_without_terminal()
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_a_torch_that_is_not_there_stops_it_even_with_yes(self):
        done = self.run_without_terminal("--yes")
        self.assertEqual(done.returncode, 1)
        self.assertIn("torch==99.1.0", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
