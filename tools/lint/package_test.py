"""Finds omissions and contradictions in packages and image without building them. `tools/test package` builds them."""

import json
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "deploy/debian"


class Packages(unittest.TestCase):
    def test_each_unit_is_in_one_package(self):
        lines = [line.split()[0] for path in DEBIAN.glob("*.install") for line in path.read_text().splitlines()]
        for unit in [*ROOT.glob("deploy/systemd/*.service"), *ROOT.glob("deploy/systemd/*.socket")]:
            owners = [line for line in lines if pathlib.PurePath(f"lib/systemd/system/{unit.name}").match(line)]
            self.assertEqual(len(owners), 1, unit.name)

    def test_the_readme_lists_the_packages_that_there_are(self):
        packages = re.findall(r"^Package: (\S+)$", (DEBIAN / "control").read_text(), re.M)
        section = re.search(r"^## Debian packages$.*?^## ", (ROOT / "deploy/README.md").read_text(), re.M | re.S)[0]
        self.assertEqual(sorted(re.findall(r"^\| `([\w-]+)` \|", section, re.M)), sorted(packages))

    def test_all_packages_have_the_licence(self):
        self.assertIn("Apache License\n                           Version 2.0", (ROOT / "LICENSE").read_text())
        self.assertRegex((DEBIAN / "copyright").read_text(), r"Files: \*\nCopyright: .*The xpud authors\nLicense: Apache-2.0\n")
        for project in ("sdk/python", "sdk/torch/python"):
            self.assertIn('\nlicense = "Apache-2.0"\n', (ROOT / project / "pyproject.toml").read_text())
        self.assertTrue((ROOT / "sdk/python/LICENSE").samefile(ROOT / "LICENSE"))  # pip takes no file from outside the project

    def test_a_container_starts_the_daemon_with_the_words_that_the_unit_has(self):
        entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", (ROOT / "deploy/Containerfile").read_text(), re.M)[1])
        unit = re.search(r"^ExecStart=\S+/xpud (.*)$", (ROOT / "deploy/systemd/xpud.service").read_text(), re.M)[1]
        self.assertIn(" ".join(entry[1:]), unit)

    def test_sockets_have_the_names_and_places_that_the_daemon_takes(self):
        source = (ROOT / "daemon/service/handed_sockets.cc").read_text()
        for unit, name, listens in (("xpud.socket", "clients", "ListenSequentialPacket=/run/xpud/xpud.sock"),
                                    ("xpud-control.socket", "control", "ListenStream=/run/xpud/control.sock")):
            text = (ROOT / "deploy/systemd" / unit).read_text()
            self.assertIn(f'"{name}"', source)
            self.assertIn(f"FileDescriptorName={name}\n", text)
            self.assertIn(listens + "\n", text)


if __name__ == "__main__":
    unittest.main()
