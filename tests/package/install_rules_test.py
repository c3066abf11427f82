"""After tools/setup, `cmake --install build/release` finds every file that it copies from the build folder."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("XPUD_BUILD") or ROOT / "build/release")


def setup_targets() -> list[str]:
    """Returns the targets that tools/setup builds."""
    return re.search(r"targets=\((.*)\)", (ROOT / "tools/setup").read_text()).group(1).split()


def ninja(*arguments: str) -> list[str]:
    return subprocess.run(["ninja", "-C", BUILD, *arguments], check=True, capture_output=True, text=True).stdout.splitlines()


def made_by_ninja() -> set[str]:
    return {line.rsplit(": ", 1)[0] for line in ninja("-t", "targets", "all")}


def installed_files() -> set[str]:
    """Returns the files of the build folder that the install rules copy, relative to it. CMake writes those that it configures itself, and its
    own export files."""
    copied = set()
    for script in BUILD.rglob("cmake_install.cmake"):
        for sources in re.findall(r"file\(INSTALL [^)]*?FILES ([^)]*)\)", script.read_text()):
            copied |= {source for source in re.findall(r'"([^"]+)"', sources)}
    made = made_by_ninja()
    inside = {os.path.relpath(path, BUILD) for path in copied if pathlib.Path(path).is_relative_to(BUILD)}
    return {path for path in inside if path in made}


class InstallRules(unittest.TestCase):
    def test_set_up_builds_all_that_is_installed(self):
        wanted = installed_files()
        self.assertTrue({"bin/xpud", "bin/xpud-connect", "lib/libze_xpud.so"} <= wanted, wanted)
        graph = "\n".join(ninja("-t", "graph", *setup_targets()))
        built = set(re.findall(r'^"0x\w+" \[label="([^"]+)"', graph, re.M))
        self.assertEqual(sorted(wanted - built), [])

    def test_every_tool_that_configures_a_build_sets_up_first(self):
        """Otherwise it fails in a fresh clone, which has no .venv with oneDNN. The stages of tools/test follow the stage setup."""
        listed = subprocess.run(["git", "grep", "-lE", "cmake.*--preset", "--", "tools", "tests"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        tools = {name for name in listed.split() if pathlib.Path(name).suffix in ("", ".py")} - {"tools/setup", "tools/checks/stages.py", "tests/package/install_rules_test.py"}
        self.assertTrue({"tools/bundle", "tools/package", "tools/checks/fuzz.py"} <= tools, tools)
        self.assertEqual([name for name in sorted(tools) if "tools/setup" not in (ROOT / name).read_text().partition("--preset")[0]], [])


if __name__ == "__main__":
    unittest.main()
