"""Tests of the statistics of bench.py, which need no GPU. xtask/tests/gpu_scripts.rs runs them."""

import math
import random
import unittest

import bench
from bench import mean_interval, ratio_interval


def t_tail(quantile, freedom):
    """The probability that Student's t lies above a quantile, by integrating its density."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    density = lambda x: scale * (1 + x * x / freedom) ** (-(freedom + 1) / 2)
    steps = 4000
    width = quantile / steps
    weights = [1, *(4 if step % 2 else 2 for step in range(1, steps)), 1]
    inside = width / 3 * sum(weight * density(step * width) for step, weight in enumerate(weights))
    return 0.5 - inside


class Intervals(unittest.TestCase):
    def test_quantiles_are_those_of_the_distribution(self):
        self.assertEqual(len(bench.T_975), bench.FEWEST_FOR_BOOTSTRAP - 2)
        for freedom, quantile in enumerate(bench.T_975, 1):
            self.assertAlmostEqual(t_tail(quantile, freedom), 0.025, delta=5e-6, msg=f"{freedom} degrees of freedom")

    def test_few_values_have_the_interval_of_a_textbook(self):
        middle, low, high = mean_interval([1, 2, 3, 4])  # deviation sqrt(5/3), t = 3.1824
        self.assertAlmostEqual(middle, 2.5)
        self.assertAlmostEqual(high - middle, 3.1824 * math.sqrt(5 / 3) / 2, places=4)
        self.assertAlmostEqual(middle - low, high - middle)

    def test_intervals_hold_as_often_as_they_say(self):
        """Percentiles of resampled means of 7 values hold in about 88%, and fail here."""
        for count in (2, 3, 7, 29, 40):
            generator, trials = random.Random(count), 1500 if count < bench.FEWEST_FOR_BOOTSTRAP else 40
            held = 0
            for _ in range(trials):
                _, low, high = mean_interval([generator.gauss(5, 3) for _ in range(count)])
                held += low <= 5 <= high
            deviation = math.sqrt(0.95 * 0.05 / trials)
            self.assertGreater(held / trials, 0.95 - 4 * deviation, f"{count} values")
            self.assertLess(held / trials, min(0.95 + 4 * deviation, 1.001), f"{count} values")

    def test_the_interval_moves_and_grows_with_the_values(self):
        generator = random.Random()
        values = [generator.uniform(-1, 1) for _ in range(generator.randrange(2, 60))]
        middle, low, high = mean_interval(values)
        for scaled, expected in zip(mean_interval([3 * value + 10 for value in values]), (middle, low, high)):
            self.assertAlmostEqual(scaled, 3 * expected + 10, places=9)

    def test_one_value_has_no_interval(self):
        self.assertEqual(mean_interval([3]), (3, -math.inf, math.inf))

    def test_a_median_needs_many_values(self):
        with self.assertRaises(ValueError):
            bench.median_interval([1.0] * 29)
        values = [random.gauss(0, 1) for _ in range(99)]
        middle, low, high = bench.median_interval(values)
        self.assertTrue(low <= middle <= high and low < high)

    def test_ratios_are_of_the_same_round(self):
        ours = [random.uniform(1, 100) for _ in range(9)]
        for factor in (0.5, 1.25):
            for value in ratio_interval([factor * us for us in ours], ours):
                self.assertAlmostEqual(value, factor)
        with self.assertRaises(ValueError):
            ratio_interval([1, 2], [1])

    def test_verdicts_need_an_interval_beside_one(self):
        ours = [10, 10.1, 9.9, 10, 10.05]
        self.assertEqual(bench.verdict([2 * us for us in ours], ours), "faster")
        self.assertEqual(bench.verdict([us / 2 for us in ours], ours), "slower")
        self.assertEqual(bench.verdict([10.1, 10, 10, 9.95, 10], ours), "equal")

    def test_the_tally_counts_every_row(self):
        ours = [10, 10.1, 9.9, 10, 10.05]
        text = bench.tally([([2 * us for us in ours], ours), ([us / 4 for us in ours], ours), (ours[::-1], ours)])
        self.assertIn("faster in 1 of 3 rows, slower in 1, and not distinguishable in 1", text)
        self.assertIn("0.25 to 2.00", text)

    def test_the_fastest_peer_is_the_one_of_the_smallest_median(self):
        times = {"a": [3, 3, 3], "b": [1, 9, 9], "c": [2, 2, 50]}
        self.assertEqual(bench.fastest(times, ("a", "b", "c", "missing")), "c")

    def test_rotation_goes_through_all_inputs(self):
        seen = []
        turn = bench.rotating([lambda name=name: seen.append(name) for name in "abc"])
        for _ in range(7):
            turn()
        self.assertEqual("".join(seen), "abcabca")


if __name__ == "__main__":
    unittest.main()
