"""The name of a client in xpuctl, however it was started and whatever name it gives."""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

from harness import DaemonTest

WORK = "import sys, torch\nx = torch.ones(2, device='xpud')\nx.cpu()\nprint('ready', flush=True)\nsys.stdin.readline()\n"
# The process that multiprocessing starts uses the device; its parent does not.
WORKER = "import time, torch\ndef work():\n    torch.ones(2, device='xpud').cpu()\n    print('ready', flush=True)\n    time.sleep(60)\n"
PARENT = ("import multiprocessing, sys\nfrom multiprocessing.connection import wait\nfrom pooled.worker import work\n"
          "if __name__ == '__main__':\n    child = multiprocessing.get_context('spawn').Process(target=work, daemon=True)\n"
          "    child.start()\n    wait([child.sentinel, sys.stdin])\n")


class ClientNames(DaemonTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="xpud-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, path: str, text: str) -> pathlib.Path:
        file = self.folder / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    def name_of(self, *arguments, **env: str) -> str:
        """Returns the name that xpuctl ps shows for the client `python ARGUMENTS` while it lives."""
        with subprocess.Popen([sys.executable, *arguments], cwd=self.folder, env=os.environ | self.env | env, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            names = [session["client_name"] for session in self.daemon.sessions()]
            process.stdin.write("\n")
        self.assertEqual(len(names), 1)
        return names[0]

    def test_a_script_is_called_by_its_file(self):
        self.assertEqual(self.name_of(self.write("train.py", WORK)), "train.py")

    def test_a_module_is_called_by_its_name(self):
        self.write("pkg/__init__.py", "import torch\n")
        self.write("pkg/__main__.py", WORK)
        self.write("pkg/evaluate.py", WORK)
        self.assertEqual(self.name_of("-m", "pkg"), "pkg")
        self.assertEqual(self.name_of("-m", "pkg.evaluate"), "pkg.evaluate")
        self.assertEqual(self.name_of("pkg"), "pkg")

    def test_workers_are_called_as_their_parent(self):
        self.write("pooled/worker.py", WORKER)
        self.write("pooled/__main__.py", PARENT)
        self.write("pool.py", PARENT)
        self.assertEqual(self.name_of("pool.py"), "pool.py")
        self.assertEqual(self.name_of("-m", "pooled"), "pooled")

    def test_code_and_notebooks_are_called_python(self):
        self.assertEqual(self.name_of("-c", WORK), "python")
        self.assertEqual(self.name_of(self.write("ipykernel_launcher.py", WORK)), "python")

    def test_names_that_are_no_text_are_shown_as_far_as_they_are(self):
        script = os.fsencode(self.folder) + b"/tr\xffin\x1b[31m.py"
        with open(script, "w") as file:
            file.write(WORK)
        self.assertEqual(self.name_of(script), "tr?in?[31m.py")
        self.assertEqual(self.name_of(self.write("y" * 80 + ".py", WORK)), "y" * 63)

    def test_the_environment_overrides(self):
        self.assertEqual(self.name_of(self.write("train.py", WORK), XPUD_CLIENT_NAME="run 7"), "run 7")

    def test_a_client_that_sends_any_bytes_harms_nobodys_listing(self):
        version = json.loads(self.daemon.ask("version", "-o", "json"))["daemon"]["protocol_max"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hostile:
            hostile.connect(str(self.daemon.address))
            hostile.send(struct.pack("<IHH64s", 0x64757078, version, version, b"\xff\xc2\x9b2J\x1b[31m\xe2\x80\xae\" up=1\n" + b"x" * 64))
            hostile.recv(1 << 16)
            name = "??2J?[31m?\" up=1?"
            self.assertEqual([s["client_name"][:len(name)] for s in self.daemon.sessions()], [name])
            for command in ("ps", "top --once --interval 0.1"):
                text = self.daemon.ask(*command.split())
                self.assertIn(name, text)
                self.assertTrue(all(c.isprintable() or c == "\n" for c in text), repr(text))
            logged = next(line for line in self.daemon.log.read_text().splitlines() if "session_opened" in line)
            self.assertIn('[31m?\\" up=1?', logged)


if __name__ == "__main__":
    unittest.main()
