"""Checks that each test named in SECURITY.md exists."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "tests/conformance/isolation"
TESTS = ("daemon", "deploy", "drivers", "kernels", "proto", "sdk", "tests", "tools")


def named() -> list[str]:
    """Returns the names in backquotes in the second column of the table of promises."""
    table = (ROOT / "SECURITY.md").read_text().split("## Promises")[1].split("\n## ")[0]
    cells = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ")][1:]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def gtests() -> set[str]:
    files = [path for folder in TESTS for path in (ROOT / folder).rglob("*_test.cc")]
    return {f"{suite}.{name}" for file in files for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", file.read_text(), re.M)}


def unittests() -> set[str]:
    found = set()
    for file in (path for folder in TESTS for pattern in ("*_test.py", "test_*.py") for path in (ROOT / folder).rglob(pattern)):
        suite = ""
        for line in file.read_text().splitlines():
            if match := re.match(r"class (\w+)", line):
                suite = match.group(1)
            elif match := re.match(r"    def (test_\w+)", line):
                found.add(f"{suite}.{match.group(1)}")
    return found


def exists(name: str, tests: set[str]) -> bool:
    if match := re.fullmatch(r"isolation (\d\d)", name):
        return any(CATALOGUE.glob(f"{match.group(1)}_*_test.*"))
    if match := re.fullmatch(r"fuzz (\w+)", name):
        return (ROOT / f"tests/fuzz/{match.group(1)}_fuzzer.cc").exists()
    if name.startswith("tools/"):
        return (ROOT / name).exists()
    return name in tests


class Security(unittest.TestCase):
    def test_what_is_named_exists(self):
        names, tests = named(), gtests() | unittests()
        self.assertGreater(len(names), 40)
        self.assertEqual([name for name in names if not name.startswith("isolation") and not exists(name, tests)], [])

    @unittest.skipUnless(CATALOGUE.exists(), "this tree has no isolation catalogue")
    def test_what_is_named_of_the_isolation_catalogue_exists(self):
        names = [name for name in named() if name.startswith("isolation")]
        self.assertGreater(len(names), 15)
        self.assertEqual([name for name in names if not exists(name, set())], [])

    def test_every_promise_names_a_test(self):
        table = (ROOT / "SECURITY.md").read_text().split("## Promises")[1].split("\n## ")[0]
        rows = [row.split("|") for row in table.splitlines() if row.startswith("| ")][1:]
        self.assertEqual([row[1].strip() for row in rows if "`" not in row[2] and not row[1].strip().startswith("**")], [])

    def test_names_of_no_test_are_found_out(self):
        tests = gtests() | unittests()
        for name in ("Faults.NoSuchTest", "Security.test_no_such_test", "isolation 99", "fuzz nothing", "tools/nothing"):
            self.assertFalse(exists(name, tests), name)


if __name__ == "__main__":
    unittest.main()
