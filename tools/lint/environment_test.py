"""docs/environment.md lists the environment variables that the sources read."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/checks"))

import environment  # noqa: E402


class Table(unittest.TestCase):
    def test_the_table_has_exactly_the_variables_that_are_read(self):
        self.assertEqual(environment.complaints(), [])

    def test_the_page_is_made_from_the_table(self):
        self.assertEqual(environment.PAGE.read_text(), environment.page(), "run python3 tools/checks/environment.py")


class Sources(unittest.TestCase):
    def expect(self, path: str, text: str, read: set[str], needed: set[str]):
        self.assertEqual(environment.names_in(path, text), (read, needed), text)

    def test_a_variable_that_is_read_is_needed(self):
        for path, text in (("sdk/x.cc", 'std::getenv("XPUD_NEW")'), ("sdk/x.cc", 'constexpr char kVariable[] = "XPUD_NEW";'),
                           ("x.py", 'os.environ["XPUD_NEW"]'), ("x.py", "'XPUD_NEW' in os.environ"), ("tools/new", "echo ${XPUD_NEW:-1}"),
                           ("tools/new", "XPUD_NEW=${XPUD_NEW:-1}"), ("CMakeLists.txt", "$ENV{XPUD_NEW}")):
            self.expect(path, text, {"XPUD_NEW"}, {"XPUD_NEW"})
        self.expect("sdk/x.cc", 'std::getenv("TERM")', {"TERM"}, {"TERM"})

    def test_a_variable_that_is_only_set_is_needed_and_not_read(self):
        for path, text in (("x.cc", 'setenv("XPUD_NEW", "1", 1); unsetenv("XPUD_NEW");'), ("x.py", 'os.environ["XPUD_NEW"] = "1"'), ("x.py", 'env = {"XPUD_NEW": "1"}')):
            self.expect(path, text, set(), {"XPUD_NEW"})

    def test_macros_and_variables_of_scripts_are_none(self):
        for path, text in (("x.cc", "XPUD_CHECK(true); // $XPUD_OLD"), ("tools/new", "XPUD_NEW=1; echo $XPUD_NEW"), ("CMakeLists.txt", "if(XPUD_NEW)"),
                           ("README.md", '"XPUD_NEW"')):
            self.expect(path, text, set(), set())


if __name__ == "__main__":
    unittest.main()
