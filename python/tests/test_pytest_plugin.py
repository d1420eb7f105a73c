"""Tests of the plugin of pytest, with pytest itself and on the CPU device.

Run as `test_apex_cuda.py`. Without pytest they are skipped.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from apex_cuda._limits import Limit, Marked, judge, read  # noqa: E402 (found by the line above)

TESTS = """
import program
import pytest

SHARED = b'''
.version 7.0
.target sm_52
.address_size 64
.visible .entry nothing()
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .shared .align 4 .b32 word;
    ld.shared.u32 %r1, [word];
    setp.ne.u32 %p1, %r1, 0;
    @%p1 st.shared.u32 [word], 1;
    ret;
}
'''

@pytest.fixture
def device():
    device = program.Device()
    device.launch()
    return device

@pytest.mark.apex(launches=2, defects=0, kernels={"noth*": {"launches": "==2"}})
def test_keeps(device):
    device.launch()
    device.launch()

@pytest.mark.apex(launches="<2")
@pytest.mark.parametrize("count", [2])
def test_launches(device, count):
    for _ in range(count):
        device.launch()

@pytest.mark.apex(defects=0)
def test_reads_what_nobody_wrote(monkeypatch):
    monkeypatch.setattr(program, "PTX", SHARED)
    program.Device().launch()

@pytest.mark.apex(launches=1)
def test_fails_by_itself(device):
    print("shown with it")
    assert 1 == 2

@pytest.mark.apex(copies=0)
def test_makes_no_call():
    pass

@pytest.mark.apex(launches=0, copied_bytes=0, defects=0)
def test_should_make_no_call():
    pass

@pytest.mark.apex(launch=3)
def test_misspelt():
    pass

@pytest.mark.apex(idle="<20%")
def test_needs_a_gpu():
    pass

def test_without_marker():
    pass
"""


@unittest.skipUnless(importlib.util.find_spec("pytest"), "no pytest")
class Plugin(unittest.TestCase):
    """What pytest says of tests with limits."""

    def test_limits_are_held_and_failures_name_the_kernel(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        Path(folder, "test_limits.py").write_text(TESTS, encoding="utf-8")
        paths = os.pathsep.join([str(FOLDER.parent), str(FOLDER)])
        options = ["-p", "apex_cuda.pytest_plugin", "--apex-device=cpu", "-rA", "--strict-markers"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
        said = done.stdout
        self.assertEqual(done.returncode, 1, said + done.stderr)
        for part in [
            "launches is 2, but must be below 2\n  nothing: 2 from program.py:",
            "defects is 1, but must be at most 0\n  uninitialized",
            "shown with it",
            "the test made no CUDA call",
            "there is no figure 'launch'. There are: launches, copies",
            "PASSED test_limits.py::test_keeps",
            "PASSED test_limits.py::test_should_make_no_call",
            "PASSED test_limits.py::test_without_marker",
        ]:
            self.assertIn(part, said)
        gpu = any(Path("/dev").glob("nvidia[0-9]*"))
        self.assertIn("5 failed, " if not gpu else "failed, ", said)


class OnAGpu(unittest.TestCase):
    """What is said of a session that was recorded on an H200."""

    def test_failures_name_the_cause_or_the_kernel_and_who_launches_it(self):
        corpus = FOLDER.parent.parent / "data/h200/corpus/torch-micro_batches.tar.xz"
        kernels = {"layer_norm*": {"kernel_us": 1}, "*": {"occupancy_percent": 99}}
        marked = read((), {"idle": "<5%", "copies": 10**9, "kernels": kernels})
        idle, duration, occupancy = judge(marked.limits, str(corpus), "gpu")
        self.assertRegex(idle, r"^idle is 8[0-9.]+%, but must be below 5%\n  The GPU is idle")
        self.assertRegex(duration, r"\n  layer_norm<float>: 1[0-9.]+ from micro_batches.py:22 ")
        self.assertRegex(occupancy, r"^occupancy_percent of \* is 18.75%.*\n  .*: 18.75 from ")


class Limits(unittest.TestCase):
    """What a marker may say."""

    def test_a_limit_is_a_number_or_a_comparison(self):
        cases = [
            ({"launches": 3}, None, Limit("launches", "<=", 3)),
            ({"gpu_busy_percent": 80}, "gpu", Limit("gpu_busy_percent", ">=", 80)),
            ({"idle": "<20%"}, "gpu", Limit("idle", "<", 20)),
            ({"copied_bytes": "<= 4_096"}, None, Limit("copied_bytes", "<=", 4096)),
            ({"kernels": {"a*": {"sectors": "==8"}}}, "cpu", Limit("sectors", "==", 8, "a*")),
        ]
        for given, device, limit in cases:
            self.assertEqual(read((), given), Marked(device, [limit]), given)
        self.assertTrue(Limit("launches", "==", 3).keeps(3))
        self.assertFalse(Limit("launches", "<", 3).keeps(3))

    def test_what_is_no_limit_is_named(self):
        for given, said in [
            ({}, "name at least one limit"),
            ({"launch": 3}, "no figure 'launch'"),
            ({"launches": "few"}, "not 'few'"),
            ({"launches": True}, "not True"),
            ({"launches": -1}, "at least 0"),
            ({"launches": "<20%"}, "no share"),
            ({"device": "tpu", "launches": 1}, "not 'tpu'"),
            ({"idle": 20, "sectors": 0}, "no device has both idle and sectors"),
            ({"device": "cpu", "idle": 20}, "idle is not known with device='cpu'"),
            ({"kernels": ["saxpy"]}, "kernels is a dictionary"),
            ({"kernels": {"saxpy": {"copies": 1}}}, "no figure of a kernel 'copies'"),
            ({"occupancy_percent": 50}, "no figure 'occupancy_percent'"),
        ]:
            found = read((), given)
            self.assertIsInstance(found, str, given)
            self.assertIn(said, found)
        self.assertIn("have names", read((3,), {}))


if __name__ == "__main__":
    unittest.main()
