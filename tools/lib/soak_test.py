"""Which trends tools/soak accepts as level."""

import collections
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks"))

import soak  # noqa: E402

MIB = 1 << 20
WELL = collections.Counter(left=10, killed=5)


def rests(**grows: float) -> list[tuple[float, dict[str, float]]]:
    """Samples of an hour at rest, in which values grow by so much per minute."""
    level = {"rss_bytes": 200 * MIB, "heap_bytes": 100 * MIB, "fds": 20, "threads": 12, "pool_bytes": 64 * MIB, "used_bytes": 0, "sessions": 0}
    return [(60.0 * minute, {name: value + minute * grows.get(name, 0) for name, value in level.items()}) for minute in range(60)]


class Judge(unittest.TestCase):
    def test_a_level_hour_is_well(self):
        self.assertEqual(soak.judge(rests(), WELL)[1], [])

    def test_what_grows_in_the_warm_up_alone_is_level(self):
        grown = rests()
        for minute in range(10):
            grown[minute][1]["heap_bytes"] -= (10 - minute) * 9 * MIB
        self.assertEqual(soak.judge(grown, WELL)[1], [])

    def test_each_leak_is_found(self):
        for name, a_minute in {"heap_bytes": 0.5 * MIB, "fds": 0.1, "threads": 0.1, "pool_bytes": 4 * MIB}.items():
            wrong = soak.judge(rests(**{name: a_minute}), WELL)[1]
            self.assertEqual(len(wrong), 1, wrong)
            self.assertIn(name, wrong[0])

    def test_what_clients_leave_behind_and_what_goes_wrong_with_them_is_found(self):
        self.assertIn("not released", soak.judge(rests(used_bytes=1), WELL)[1][0])
        self.assertIn("sessions outlived", soak.judge(rests(sessions=1), WELL)[1][0])
        for how in ("wrong", "failed", "stuck"):
            self.assertIn(how, soak.judge(rests(), WELL | collections.Counter({how: 1}))[1][0])

    def test_a_soak_without_deaths_or_too_short_is_none(self):
        self.assertIn("too short", soak.judge(rests(), collections.Counter(left=10))[1][0])
        self.assertIn("too short", soak.judge(rests()[:2], WELL)[1][0])


if __name__ == "__main__":
    unittest.main()
