"""The habit lint finds what it is for, and only that."""

import unittest

import habit_lint


class HabitLint(unittest.TestCase):
    def test_a_bare_kill_in_a_test(self):
        self.assertEqual(len(habit_lint.complaints("tests/e2e/x_test.cc", "int main() {\n  kill(pid, SIGKILL);\n}\n")), 1)
        self.assertEqual(habit_lint.complaints("tests/e2e/x_test.cc", "  daemon.kill(); Skill(1); // `kill(-1)`\n"), [])
        self.assertEqual(habit_lint.complaints("daemon/x.cc", "  kill(pid, 9);\n"), [])


if __name__ == "__main__":
    unittest.main()
