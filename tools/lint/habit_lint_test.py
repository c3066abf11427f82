"""The habit lint reports its habits, and only those."""

import pathlib
import re
import tempfile
import unittest
from unittest import mock

import habit_lint


class HabitLint(unittest.TestCase):
    def test_a_bare_kill_in_a_test(self):
        self.assertEqual(len(habit_lint.complaints("tests/e2e/x_test.cc", "int main() {\n  kill(pid, SIGKILL);\n}\n")), 1)
        self.assertEqual(habit_lint.complaints("tests/e2e/x_test.cc", "  daemon.kill(); Skill(1); // `kill(-1)`\n"), [])
        self.assertEqual(habit_lint.complaints("daemon/x.cc", "  kill(pid, 9);\n"), [])

    def assert_found(self, path: str, *lines: str):
        for line in lines:
            self.assertEqual(len(habit_lint.complaints(path, line + "\n")), 1, line)

    def assert_clean(self, path: str, *lines: str):
        self.assertEqual(habit_lint.complaints(path, "\n".join(lines) + "\n"), [])

    def test_constants_that_are_limits(self):
        self.assert_found("daemon/x.h", "constexpr int kMostClients = 3;", "kLeastBytes", "kLongestWait")
        self.assert_clean("daemon/x.h", "kMaxClients", "kMostly", "int most = 0;")

    def test_coined_names(self):
        self.assert_found("daemon/x.cc", "void SeeOff();", "queue.TakeQuestion();", "CondemnAll(sessions);")
        self.assert_clean("daemon/x.cc", "SeeOther();", "// see off-by-one")

    def test_riddles(self):
        self.assert_found("sdk/x.py", "# Sees to so many bytes.", "# it is none that was used", "# so much credit", "# bytes that nobody vouches for")
        self.assert_found("README.md", "Who asks for it gets it.", "and who sleeps is woken")
        self.assert_clean("daemon/x.cc", "// Ensures `bytes` of credit.", "// The client that waits for it.", "seen_to = 3;")

    def test_long_lines_of_a_readme(self):
        self.assert_found("daemon/x/README.md", "x" * 161)
        self.assert_clean("daemon/x/README.md", "x" * 160, "| " + "x" * 200 + " |", "    " + "x" * 200)
        self.assert_found("docs/x.md", "x" * 161)
        self.assert_clean("daemon/x/x.py", "x" * 161)

    def test_every_exemption_is_needed(self):
        self.assertEqual(habit_lint.idle_exemptions(pathlib.Path(__file__).resolve().parents[2]), [])
        gone = habit_lint.Habit(re.compile("x"), re.compile("x"), "y", ("README.md", "gone.h"))
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(habit_lint, "HABITS", (gone,)):
            root = pathlib.Path(folder)
            (root / "README.md").write_text("no such habit\n")
            self.assertEqual(len(habit_lint.idle_exemptions(root)), 2)
            (root / "README.md").write_text("an x\n")
            self.assertEqual(len(habit_lint.idle_exemptions(root)), 1)


if __name__ == "__main__":
    unittest.main()
