"""What `apex_cuda.patch` decides by: the committed measurements, and where they speak for whom."""

import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from apex_cuda import _choice, _measured  # noqa: E402


class Measured(unittest.TestCase):
    def test_it_is_what_was_measured(self):
        made = subprocess.run(
            [sys.executable, str(ROOT / "scripts/gpu/patch_table.py")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        kept = (ROOT / "python/apex_cuda/_measured.py").read_text(encoding="utf-8")
        self.assertEqual(made.stdout, kept, "patch_table.py > python/apex_cuda/_measured.py")


class Choice(unittest.TestCase):
    def attention(self, dim, causal, length, elements=None, gradients=False):
        elements = elements or _measured.ATTENTION_ELEMENTS
        return _choice.of_attention(dim, causal, length, elements, gradients) or "ours"

    def test_attention(self):
        self.assertEqual(self.attention(128, True, 2048), "ours")
        self.assertEqual(self.attention(128, True, 3000), "ours")
        self.assertEqual(self.attention(128, True, 100_000), "ours")
        self.assertIn("slower near length 512", self.attention(64, True, 512))
        # Between a slower row and a faster one.
        self.assertIn("slower near length 700", self.attention(64, True, 700))
        self.assertIn("no measurement of length 511", self.attention(128, True, 511))
        self.assertIn("any length", self.attention(96, True, 2048))
        # Forward it is slower, and both passes together are faster.
        self.assertIn("slower", self.attention(128, True, 512))
        self.assertEqual(self.attention(128, True, 512, gradients=True), "ours")

    def test_calls_that_the_host_takes_longer_for(self):
        few = _measured.ATTENTION_ELEMENTS // 16
        self.assertIn("too small", self.attention(128, True, 2048, few))
        self.assertEqual(self.attention(128, True, 8192, few), "ours")

    def test_what_is_too_small_in_any_shape(self):
        for kind, lengths in [("rms_norm", (256, 65536)), ("softmax", (256, 65536))]:
            few = _choice.least_elements(kind) - 1
            for length in lengths:
                self.assertIn("too small", _choice.of_rows(kind, length, few, False))
        few = _choice.least_elements("attention") - 1
        for dim, causal in _measured.ATTENTION:
            self.assertNotEqual(self.attention(dim, causal, 16384, few), "ours")

    def test_rows(self):
        elements = _measured.ROW_ELEMENTS
        self.assertIsNone(_choice.of_rows("rms_norm", 4096, elements, True))
        self.assertIsNone(_choice.of_rows("softmax", 5000, elements, False))
        said = _choice.of_rows("softmax", 2048, elements, True)
        self.assertEqual(said, "its gradients were not measured at length 2048")
        self.assertIn("too small", _choice.of_rows("rms_norm", 4096, elements // 8, False))
        self.assertIn("no measurement", _choice.of_rows("rms_norm", 128, elements, False))


if __name__ == "__main__":
    unittest.main()
