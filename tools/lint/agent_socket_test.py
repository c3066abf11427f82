"""Checks that texts and programs in other languages name the agent's socket as deploy/agent/grants/local_socket.h does, which C++ includes."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = ROOT / "deploy/agent/grants/local_socket.h"
# What a user reads as the default, or a program without C++ begins with.
COPIES = ("deploy/agent/agent.yaml", "deploy/agent/grants/grants.proto", "deploy/ray/xpud_ray/_agent.py", "docs/environment.md", "tools/checks/environment.py",
          "tools/xpuctl/command_table.cc")
SOCKET = re.compile(r"/run/xpud-agent/[\w.-]*\w|/run/[\w./-]*agent\.sock")


def default() -> str:
    (path,) = re.findall(r'kLocalSocket\[\] = "(.*)";', HEADER.read_text())
    return path


class AgentSocket(unittest.TestCase):
    def test_copies_of_the_default_are_the_default(self):
        for path in COPIES:
            with self.subTest(path):
                self.assertEqual(set(SOCKET.findall((ROOT / path).read_text())), {default()})

    def test_its_folder_is_what_the_service_makes(self):
        unit = (ROOT / "deploy/systemd/xpud-node-agent.service").read_text()
        self.assertEqual("/run/" + re.search(r"^RuntimeDirectory=(\S+)$", unit, re.M)[1], str(pathlib.Path(default()).parent))

    def test_no_other_source_has_a_copy(self):
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "deploy", "proto", "sdk", "tools"], cwd=ROOT, check=True, capture_output=True, text=True)
        sources = [path for path in listed.stdout.split() if path.endswith((".cc", ".h", ".c", ".py")) and not path.endswith(("_test.cc", "_test.py"))]
        found = {path for path in sources if (ROOT / path).exists() and default() in (ROOT / path).read_text()}
        self.assertEqual(found - {str(HEADER.relative_to(ROOT)), *COPIES}, set())


if __name__ == "__main__":
    unittest.main()
