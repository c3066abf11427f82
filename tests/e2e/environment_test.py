"""Environment variables of a client: which devices it sees, and how ops without a kernel run."""

import unittest

from harness import Client, DaemonTest

COUNT = "say(torch.xpud.device_count(), torch.xpud.is_available())\n"
USE = """
for use in (lambda: torch.ones(2, device='xpud'), lambda: torch.ones(2).to('xpud:0'), lambda: torch.xpud.synchronize(),
            lambda: torch.xpud.Stream(), lambda: torch.xpud.get_device_name(), lambda: torch.nn.Linear(2, 2).to('xpud')):
    try: say('no error:', use())
    except RuntimeError as error: say(str(error).splitlines()[0])
"""
# An operator without a kernel.
EIGENVALUES = """
try: say(torch.linalg.eigvalsh(torch.tensor([[2., 0.], [0., 1.]], device='xpud')).tolist())
except Exception as error: say(type(error).__name__, error)
"""


class Environment(DaemonTest):
    def hear_all(self, code: str, **env: str) -> tuple[list[str], str]:
        """Returns the lines that a client with these variables prints, and its stderr."""
        status, out, err = Client(code, self.env | env).finish()
        self.assertEqual(status, 0, err)
        return out.splitlines(), err

    def test_unset_or_zero_shows_the_one_device(self):
        work = COUNT + "say((torch.ones(3, device='xpud:0') * 2).sum().item())"
        self.assertEqual(self.hear_all(work)[0], ["1 True", "6.0"])
        self.assertEqual(self.hear_all(work, XPUD_VISIBLE_DEVICES="0")[0], ["1 True", "6.0"])

    def test_an_index_that_is_not_there_hides_itself_and_what_follows(self):
        self.assertEqual(self.hear_all(COUNT, XPUD_VISIBLE_DEVICES="0,7")[0], ["1 True"])
        self.assertEqual(self.hear_all(COUNT, XPUD_VISIBLE_DEVICES="7,0")[0], ["0 False"])
        self.assertEqual(self.hear_all(COUNT, XPUD_VISIBLE_DEVICES="-1")[0], ["0 False"])

    def test_hidden_devices_are_no_devices_and_every_use_says_why(self):
        for value in ("", "7"):
            said, err = self.hear_all(COUNT + USE + COUNT, XPUD_VISIBLE_DEVICES=value)
            self.assertEqual(said[0], "0 False")
            self.assertEqual(len(said), 8)
            for line in said[1:-1]:
                self.assertIn(f'XPUD_VISIBLE_DEVICES is "{value}"', line)
            self.assertEqual(said[-1], "0 False")
            self.assertEqual(err, "")
        self.assertEqual(self.daemon.sessions(), [])

    def test_a_device_beyond_those_shown_is_refused(self):
        said, _ = self.hear_all("try: torch.ones(2, device='xpud:1')\nexcept RuntimeError as error: say(error)", XPUD_VISIBLE_DEVICES="0")
        self.assertIn("invalid device ordinal 1", said[0])

    def test_fallback_error_refuses_and_names_the_op(self):
        said, _ = self.hear_all(EIGENVALUES, XPUD_FALLBACK="error")
        self.assertIn("NotImplementedError xpud has no kernel for aten::_linalg_eigh", said[0])

    def test_fallback_warns_when_unset_empty_or_asked_to(self):
        for env in ({}, {"XPUD_FALLBACK": ""}, {"XPUD_FALLBACK": "warn"}):
            said, err = self.hear_all(EIGENVALUES, **env)
            self.assertEqual(said, ["[1.0, 2.0]"])
            self.assertIn("xpud has no kernel for aten::_linalg_eigh", err)

    def test_another_fallback_is_refused_with_what_is_allowed(self):
        said, _ = self.hear_all(EIGENVALUES, XPUD_FALLBACK="eror")
        self.assertRegex(said[0], '^ValueError XPUD_FALLBACK is "eror"; it may be "warn" .* or "error"')


if __name__ == "__main__":
    unittest.main()
