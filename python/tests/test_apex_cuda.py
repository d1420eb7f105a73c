"""Tests of `apex_cuda` with a session that is recorded on the CPU device.

    PATH=target/debug:$PATH python -m unittest discover -s python/tests

`apex` is found in PATH, `apex_cuda` beside this folder. Without pyarrow the tests of tables are
skipped.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

import apex_cuda  # noqa: E402 (found by the line above)

try:
    import pyarrow
except ImportError:
    pyarrow = None

PROGRAM = str(FOLDER / "program.py")


def run(arguments, folder, code=0):
    """Runs a command in a folder, and expects its exit status: what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(
            f"{arguments}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done


class Recorded(unittest.TestCase):
    """One session, recorded by `python -m apex_cuda`."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        apex = [sys.executable, "-m", "apex_cuda"]
        cls.done = run(
            [*apex, "run", "--paused", "--device", "cpu", "-o", "s", PROGRAM, "word"], cls.folder
        )
        cls.session = apex_cuda.Session(os.path.join(cls.folder, "s"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_what_was_launched_in_the_block_is_recorded(self):
        self.assertEqual(self.done.stdout, "5 word\n", "read while the program still ran")
        rows = self.session.rows("launches")
        self.assertEqual([row["kernel"] for row in rows], ["nothing"] * 5)

    def test_ranges_are_those_of_the_program(self):
        ranges = self.session.report()["profile"]["ranges"]
        self.assertEqual(
            {found["name"]: found["count"] for found in ranges}, {"warm": 1, "step": 3}
        )

    def test_documents_have_their_schemas(self):
        self.assertRegex(self.session.report()["schema"], r"^apex\.report/\d+$")
        self.assertRegex(self.session.advice()["schema"], r"^apex\.advise/\d+$")

    @unittest.skipIf(pyarrow is None, "no pyarrow")
    def test_tables_have_what_rows_have(self):
        tables = {
            "launches": self.session.launches(),
            "kernels": self.session.kernels(),
            "calls": self.session.calls(),
        }
        for name, table in tables.items():
            self.assertGreater(table.num_rows, 0, name)
            self.assertEqual(table.to_pylist(), self.session.rows(name), name)
        self.assertEqual(tables["kernels"]["launches"].to_pylist(), [5])
        self.assertIn(b"apex.gpu_ns", tables["launches"].schema.metadata)

    @unittest.skipIf(pyarrow is None, "no pyarrow")
    def test_memory_has_the_calls_that_allocate_and_free(self):
        memory = self.session.memory()
        self.assertEqual(memory["class"].to_pylist(), ["allocate", "free"] * 5)
        self.assertEqual(
            set(
                memory.filter(pyarrow.compute.equal(memory["class"], "allocate"))[
                    "bytes"
                ].to_pylist()
            ),
            {4096},
        )

    @unittest.skipIf(pyarrow is None, "no pyarrow")
    def test_windows_and_columns_leave_the_rest_out(self):
        self.assertEqual(self.session.launches(window="0s..1ns").num_rows, 0)
        self.assertEqual(
            self.session.launches(columns=["kernel", "cpu_ns"]).column_names, ["kernel", "cpu_ns"]
        )
        with self.assertRaisesRegex(KeyError, "nosuch"):
            self.session.launches(columns=["nosuch"])

    def test_without_pyarrow_the_error_says_what_to_do(self):
        hidden = "import sys, apex_cuda; sys.modules['pyarrow'] = None"
        script = f"{hidden}; apex_cuda.Session('s').launches()"
        done = run([sys.executable, "-c", script], self.folder, 1)
        self.assertIn("pip install pyarrow", done.stderr)
        self.assertIn('rows("launches")', done.stderr)


class Alone(unittest.TestCase):
    """A process that does not run under `apex run`."""

    def test_nothing_can_be_recorded_and_the_error_has_the_command(self):
        with self.assertRaisesRegex(
            apex_cuda.NotRecorded, r"apex run --paused -o 'my session' -- .*python"
        ):
            with apex_cuda.record("my session"):
                pass
        with apex_cuda.record(missing_ok=True) as session:
            self.assertIsNone(session)
        self.assertFalse(apex_cuda.is_loaded())

    def test_ranges_do_nothing(self):
        @apex_cuda.range("doubled")
        def double(number):
            return 2 * number

        with apex_cuda.range("outer"), apex_cuda.range("sübe\0\udcff"):
            self.assertEqual(double(21), 42)
        with self.assertRaises(ZeroDivisionError), apex_cuda.range("fails"):
            raise ZeroDivisionError

    def test_functions_that_run_later_are_refused(self):
        async def coroutine():
            await asyncio.sleep(0)

        def generator():
            yield

        for function in (coroutine, generator):
            with self.assertRaisesRegex(TypeError, f"cannot decorate .*{function.__name__}"):
                apex_cuda.range("later")(function)

    def test_what_apex_says_is_the_error(self):
        with self.assertRaisesRegex(apex_cuda.Error, "nosuch"):
            apex_cuda.Session("nosuch").report()
        with tempfile.TemporaryDirectory() as folder:
            environment = {"PATH": folder, "PYTHONPATH": str(FOLDER.parent)}
            command = [sys.executable, "-m", "apex_cuda", "--version"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("pip install apex-cuda", done.stderr)


class Elsewhere(unittest.TestCase):
    """A process that runs in another session than the one that it asks for."""

    def test_the_session_is_named(self):
        script = "import apex_cuda\nwith apex_cuda.record('other'): pass"
        with tempfile.TemporaryDirectory() as folder:
            apex = ["apex", "run", "--quiet", "--device", "cpu", "-o", "s", "--"]
            done = run([*apex, sys.executable, "-c", script], folder, 1)
        self.assertRegex(
            done.stderr, "NotRecorded: this process is recorded in .*/s, and not in other"
        )


if __name__ == "__main__":
    unittest.main()
