"""Tests of `apex_cuda.tune`, whose measured functions are computed.

PATH=target/debug:$PATH python -m unittest discover -s python/tests
"""

import itertools
import json
import os
import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import apex_cuda

SPACE = {"block": [32 * i for i in range(1, 9)], "tile": range(1, 9), "kind": ["a", "b"]}


def time_of(configuration):
    block, tile = configuration["block"], configuration["tile"]
    if block == 96:
        raise RuntimeError("no registers left")
    if tile == 7:
        raise apex_cuda.Invalid("correctness", "other bits")
    return 1.0 + abs(block - 128) / 64 + abs(tile - 5) / 10


def expression(draw, depth=0):
    """A random expression of Python about x, y and z, which are integers."""
    one = lambda: expression(draw, depth + 1)
    if depth > 3 or draw.random() < 0.2:
        return draw.choice(["x", "y", "z", "2", "3", "-1", "0.5", "True"])
    return draw.choice(
        [
            lambda: f"({one()} {draw.choice(['+', '-', '*'])} {one()})",
            lambda: f"({one()} {draw.choice(['//', '%', '/'])} (abs({one()}) + 1))",
            lambda: (
                f"({one()} {draw.choice(['<', '<=', '==', '!=', '>', '>='])} {one()} < {one()})"
            ),
            lambda: f"({one()} {draw.choice(['and', 'or'])} not {one()})",
            lambda: f"({one()} if {one()} else {one()})",
            lambda: f"{draw.choice(['min', 'max'])}({one()}, {one()})",
            lambda: f"({one()} {draw.choice(['in', 'not in'])} [{one()}, {one()}])",
            lambda: f"(int({one()}) {draw.choice(['&', '|', '^', '<<'])} 3)",
            lambda: f"-{one()} ** 2",
        ]
    )()


class Tune(unittest.TestCase):
    def test_restrictions_mean_what_python_says(self):
        draw, values = random.Random(20261130), {"x": range(-3, 5), "y": [1, 2, 8, 31], "z": [0, 7]}
        names, combinations = list(values), list(itertools.product(*values.values()))
        compared = 0
        for _ in range(80):
            text = f"{expression(draw)} > {expression(draw)}"
            expected = sum(bool(eval(text, {}, dict(zip(names, one)))) for one in combinations)
            if expected:
                tuned = apex_cuda.tune(values, lambda _: 1.0, restriction=text, budget=1, pairs=0)
                self.assertEqual(tuned.document["configurations"], expected, text)
                compared += 1
        self.assertGreater(compared, 30)

    def test_the_best_is_found_and_confirmed(self):
        tuned = apex_cuda.tune(SPACE, time_of, original={"block": 32, "tile": 1, "kind": "a"})
        self.assertEqual((tuned.best["block"], tuned.best["tile"], tuned.time_ms), (128, 5, 1.0))
        self.assertEqual((tuned.original_ms, tuned.kept), (2.9, None))
        self.assertLess(tuned.ratio["high"], 0.99)
        self.assertIn("of the original's time", str(tuned))

    def test_restrictions_are_texts_or_functions(self):
        def function(configuration):
            return configuration["block"] * configuration["tile"] <= 256

        for restriction in ("block * tile <= 256", function, [function, lambda c: True]):
            tuned = apex_cuda.tune(SPACE, time_of, restriction=restriction, pairs=0, budget=1.0)
            self.assertEqual((tuned.best["block"], tuned.best["tile"]), (128, 2), restriction)
        with self.assertRaisesRegex(apex_cuda.Error, "calls of `open` are not supported"):
            apex_cuda.tune(SPACE, time_of, restriction="open('x')")

    def test_failures_are_recorded_and_a_search_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            options = {"budget": 40, "strategy": "random", "pairs": 0, "results": path}
            calls = []

            def interrupted(configuration):
                calls.append(configuration)
                if len(calls) == 20:
                    raise KeyboardInterrupt
                return time_of(configuration)

            with self.assertRaises(KeyboardInterrupt):
                apex_cuda.tune(SPACE, interrupted, **options)
            with open(path) as file:
                results = json.load(file)["results"]
            self.assertTrue(15 <= len(results) < 20, len(results))
            tuned = apex_cuda.tune(SPACE, time_of, **options)
            self.assertEqual(tuned.document["known"], len(results))
            self.assertEqual(tuned.document["trials"], 40)
            self.assertTrue(tuned.document["failed"]["runtime"])
            with self.assertRaisesRegex(apex_cuda.Error, "size was nothing and is `7`"):
                apex_cuda.tune(SPACE, time_of, key={"size": 7}, **options)

    def test_a_tie_keeps_the_original(self):
        tuned = apex_cuda.tune({"x": range(20)}, lambda _: 1.0, original={"x": 7})
        self.assertEqual((tuned.best, tuned.kept is None), ({"x": 7}, False))

    def test_what_is_no_time_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "returned -1 for x=0"):
            apex_cuda.tune({"x": [0]}, lambda _: -1)

    def test_a_sequence_of_times_is_several_runs(self):
        tuned = apex_cuda.tune({"x": [1, 2]}, lambda c: [c["x"], c["x"], 100.0], pairs=0)
        self.assertEqual((tuned.best, tuned.time_ms), ({"x": 1}, 1.0))


if __name__ == "__main__":
    unittest.main()
