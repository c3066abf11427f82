import sys
import pathlib
import random
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from trend import trend_of  # noqa: E402


class Trend(unittest.TestCase):
    def test_a_line_has_its_slope(self):
        trend = trend_of([(10, 5.0), (20, 7.0), (30, 9.0)])
        self.assertAlmostEqual(trend.slope, 0.2)
        self.assertAlmostEqual(trend.growth, 4.0)

    def test_noise_around_a_level_is_level(self):
        noise = random.Random(1)
        trend = trend_of([(at, 100 + noise.uniform(-5, 5)) for at in range(200)])
        self.assertLess(abs(trend.growth), 2)

    def test_a_leak_below_the_noise_is_found(self):
        noise = random.Random(2)
        trend = trend_of([(at, 100 + at * 0.05 + noise.uniform(-5, 5)) for at in range(200)])
        self.assertGreater(trend.growth, 8)


if __name__ == "__main__":
    unittest.main()
