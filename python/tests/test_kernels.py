"""`apex_cuda.kernels` where there is neither PyTorch nor a GPU: what is imported, and what is
refused before a device is needed. `crates/cli/tests/clients/python/kernels_client.py` has the
kernels compute."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from apex_cuda import kernels  # noqa: E402 (found by the line above)
from apex_cuda.kernels import _interface, _problem, _tensors  # noqa: E402


class Exporter:
    """What says that it is a tensor of a device."""

    def __init__(self, device):
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_options):
        return object()


class Kernels(unittest.TestCase):
    def test_importing_it_imports_no_package_and_opens_no_library(self):
        program = (
            "import sys, apex_cuda.kernels as kernels\n"
            "assert not {'torch', 'cupy', 'numpy'} & set(sys.modules)\n"
            "assert 'attention' in kernels.__all__\n"
            "assert not any(line.split()[-1].endswith('.so') and 'libcuda' in line"
            " for line in open('/proc/self/maps') if '/' in line)\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
        subprocess.run([sys.executable, "-B", "-c", program], env=environment, check=True)

    def test_a_missing_library_is_an_error_that_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as empty:
            with mock.patch.dict(os.environ, {"APEX_LIB_DIR": empty}):
                with mock.patch.object(_interface, "_opened", None):
                    with self.assertRaises(kernels.Error) as raised:
                        kernels.attention_workspace((1, 1, 1, 64), (1, 1, 1, 64))
        message = str(raised.exception)
        self.assertIn(f"looked in: {empty}", message)
        self.assertIn("pip install apex-cuda", message)

    def test_what_is_no_tensor_of_a_cuda_device_is_refused(self):
        for message, tensor in [
            ("x is a list, which does not export DLPack", [1.0]),
            ("its DLPack device type is 1", Exporter((1, 0))),
            ("did not return a DLPack capsule", Exporter((2, 0))),
        ]:
            with self.assertRaises(TypeError) as raised:
                kernels.softmax_into(tensor, tensor)
            self.assertIn(message, str(raised.exception))

    def test_strides_of_dimensions_of_one_element_say_nothing(self):
        _tensors._check_contiguous("x", (2, 1, 3), (3, 77, 1))
        _tensors._check_contiguous("x", (2, 0, 3), (5, 5, 5))
        for strides in [(3, 3, 2), (4, 4, 1), (1, 2, 2)]:
            with self.assertRaises(ValueError):
                _tensors._check_contiguous("x", (2, 1, 3), strides)

    def test_sequences_begin_where_those_before_end(self):
        self.assertEqual(_problem.starts_of((2, 0, 3), (4, 1, 3)), [(0, 0), (2, 4), (2, 5), (5, 8)])
        self.assertEqual(_problem.starts_of((), ()), [(0, 0)])
        for message, lengths in [
            ("there are 1 lengths", ((1,), (1, 2))),
            ("negative", ((1,), (-1,))),
        ]:
            with self.assertRaisesRegex(ValueError, message):
                _problem.starts_of(*lengths)
        self.assertEqual(
            _problem.packed_sizes((9, 4, 64), (5, 2, 64), (5, 2, 64)), (4, 2, 9, 5, 64)
        )
        with self.assertRaisesRegex(ValueError, "needs \\[rows, heads, dim\\]"):
            _problem.packed_sizes((1, 9, 4, 64), (5, 2, 64), (5, 2, 64))

    def test_shapes_of_experts_must_fit(self):
        fitting = {"tokens": (9, 16), "logits": (9, 4), "up": (4, 2, 8, 16), "down": (4, 16, 8)}
        self.assertEqual(_problem.expert_sizes(**fitting, top_k=2), (9, 4, 2, 16, 8))
        for message, change in [
            ("logits has shape", {"logits": (8, 4)}),
            ("up has shape", {"up": (4, 8, 2, 16)}),
            ("must be \\[tokens, dim\\]", {"tokens": (9, 1, 16)}),
            ("top_k is 5", {"top_k": 5}),
        ]:
            with self.assertRaisesRegex(ValueError, message):
                _problem.expert_sizes(**{**fitting, "top_k": 2, **change})
        self.assertEqual(_problem.expert_options("sigmoid", False, 7, "hopper"), (1, 0, 7, 2))
        for message, chosen in [
            ("gate is", ("relu", True, None, None)),
            ("capacity is 0", ("softmax", True, 0, None)),
            ("form is", ("softmax", True, None, "flash")),
        ]:
            with self.assertRaisesRegex(ValueError, message):
                _problem.expert_options(*chosen)

    def test_windows_and_masks_are_told_apart(self):
        def mask(causal, window):
            return _problem.options(64, causal, window, None, "bhsd", None)[1:4]

        self.assertEqual(mask(False, None), (0, -1, -1))
        self.assertEqual(mask(True, None), (1, -1, -1))
        self.assertEqual(mask(False, (0, None)), (2, 0, -1))
        self.assertEqual(mask(False, (None, 5)), (2, -1, 5))


if __name__ == "__main__":
    unittest.main()
