"""Notebooks, callbacks of trainers, and experiment trackers: each with its real package, where that
is installed.

    PATH=target/debug:$PATH python -m unittest discover -s python/tests

`apex` is found in PATH, `apex_cuda` beside this folder.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

import apex_cuda  # noqa: E402 (found by the line above)
from apex_cuda import log  # noqa: E402

RECORD = [
    "apex",
    "run",
    "--quiet",
    "--paused",
    "--device",
    "cpu",
    "--timing",
    "all",
    "-o",
    "s",
    "--",
]


def has(package):
    """Whether a package is installed."""
    return importlib.util.find_spec(package) is not None


BACKEND = next((found for found in ("jax", "torch", "tensorflow") if has(found)), None)
"""What Keras computes with."""


def run(script, folder, command=()):
    """Runs a script in a folder, and expects that it succeeds: what it printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), str(FOLDER)]),
        "KERAS_BACKEND": BACKEND or "",
        "IPYTHONDIR": folder,
    }
    words = [*command, sys.executable, "-c", script]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Folder(unittest.TestCase):
    """Tests in a folder of their own."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def session(self):
        """The session that a test has recorded."""
        return apex_cuda.Session(os.path.join(self.folder, "s"))


TRAINING = """
import apex_cuda, program
device = program.Device()
{adapter}
for step in range(10):
    begin(step)
    device.launch()
    end(step)
close()
"""

ADAPTERS = {
    "apex_cuda": """
steps = apex_cuda.Steps(2, 5)
begin, end, close = (lambda step: steps.begin()), (lambda step: steps.end()), steps.close
""",
    "keras": """
import keras
from apex_cuda.callbacks.keras import StepRecorder
callbacks = keras.callbacks.CallbackList([StepRecorder(2, 5)])
callbacks.on_train_begin()
begin, end = callbacks.on_train_batch_begin, callbacks.on_train_batch_end
close = callbacks.on_train_end
""",
    "transformers": """
from transformers import TrainerControl, TrainerState
from transformers.trainer_callback import CallbackHandler
from apex_cuda.callbacks.transformers import StepRecorder
handler = CallbackHandler([StepRecorder(2, 5)], None, None, None, None)
state, control = TrainerState(), TrainerControl()
begin = lambda step: handler.on_step_begin(None, state, control)
end = lambda step: handler.on_step_end(None, state, control)
close = lambda: handler.on_train_end(None, state, control)
""",
    "lightning": """
from apex_cuda.callbacks.lightning import StepRecorder
callback = StepRecorder(2, 5)
begin = lambda step: callback.on_train_batch_start(None, None, None, step)
end = lambda step: callback.on_train_batch_end(None, None, None, None, step)
close = lambda: callback.on_train_end(None, None)
""",
}


class Callbacks(Folder):
    """Ten steps with a launch each, of which the third to the fifth are recorded."""

    def check(self, adapter):
        run(TRAINING.format(adapter=ADAPTERS[adapter]), self.folder, RECORD)
        self.assertEqual(len(self.session().rows("launches")), 3)
        ranges = {found["name"]: found["count"] for found in self.session().ranges()}
        self.assertEqual(ranges, {"step": 3})

    def test_steps_are_named_and_recorded(self):
        self.check("apex_cuda")

    @unittest.skipUnless(has("keras") and BACKEND, "no Keras")
    def test_keras(self):
        self.check("keras")

    @unittest.skipUnless(has("transformers"), "no transformers")
    def test_transformers(self):
        self.check("transformers")

    @unittest.skipUnless(has("lightning") or has("pytorch_lightning"), "no Lightning")
    def test_lightning(self):
        self.check("lightning")

    def test_a_training_without_apex_goes_on(self):
        steps = apex_cuda.Steps(0, 1)
        with steps.step():
            self.assertIsNone(steps.session)
        with self.assertRaises(ZeroDivisionError), steps.step():
            raise ZeroDivisionError
        steps.close()
        steps.close()
        with self.assertRaisesRegex(ValueError, "has to come after start, which is 3"):
            apex_cuda.Steps(3, 3)
        for arguments, error, said in [
            ((-1,), ValueError, "start is -1: it is at least 0"),
            ((None, 0), ValueError, "stop is 0: it is at least 1"),
            (("2",), TypeError, "start is the number of a step, or None, and not '2'"),
            ((True,), TypeError, "not True"),
            ((2.0, 5), TypeError, "not 2.0"),
        ]:
            with self.assertRaisesRegex(error, said):
                apex_cuda.Steps(*arguments)
        with self.assertRaisesRegex(TypeError, "name is the steps' range"):
            apex_cuda.Steps(2, name=5)

    def test_lightnings_callback_has_its_hooks(self):
        hooks = types.ModuleType("lightning.pytorch.callbacks")
        hooks.Callback = object
        names = {"lightning": None, "lightning.pytorch": None, "lightning.pytorch.callbacks": hooks}
        with unittest.mock.patch.dict(sys.modules, names):
            from apex_cuda.callbacks.lightning import StepRecorder
        callback = StepRecorder()
        callback.on_train_batch_start(None, None, None, 0)
        callback.on_exception(None, None, ValueError())


CELLS = """
import io, contextlib
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext apex_cuda")
shell.run_cell("import program; device = program.Device(); device.launch()")
shell.run_cell("%%apex session\\nfor i in range(4): device.launch()")
found = shell.user_ns["_"]
print(len(found.verdict), "<table>" in found._repr_html_() or "No findings" in found._repr_html_())
print(len(shell.user_ns["session"].rows("launches")))
failed = shell.run_cell("%%apex\\n1 / 0")
print(failed.result)
assert not shell.run_cell("%%apex no name\\n1").success
"""


@unittest.skipUnless(has("IPython"), "no IPython")
class Notebooks(Folder):
    """`%%apex` in IPython's shell."""

    def test_a_cell_is_recorded_and_its_findings_are_shown(self):
        lines = run(CELLS, self.folder, RECORD).splitlines()
        self.assertIn("4", lines, lines)
        self.assertTrue(any(line.endswith(" True") for line in lines), lines)

    def test_without_apex_the_cell_runs_and_the_command_is_shown(self):
        script = (
            "from IPython.core.interactiveshell import InteractiveShell\n"
            "shell = InteractiveShell.instance()\n"
            "shell.run_cell('%load_ext apex_cuda')\n"
            "shell.run_cell('%%apex\\nprint(6 * 7)')\n"
            "shell.run_cell('%%apex\\n1 / 0')\n"
        )
        said = run(script, self.folder)
        self.assertIn("apex run --paused -o notebook -- jupyter lab", said)
        self.assertIn("42", said)
        # The error of a cell is shown alone.
        self.assertIn("ZeroDivisionError", said)
        self.assertNotIn("NotRecorded", said)


class Trackers(Folder):
    """What was found, in TensorBoard, MLflow and Weights & Biases."""

    def setUp(self):
        super().setUp()
        run(TRAINING.format(adapter=ADAPTERS["apex_cuda"]), self.folder, RECORD)

    def test_numbers_and_views(self):
        session = self.session()
        self.assertEqual(session.metrics()["launches"], 3)
        findings = session.findings()
        self.assertEqual(findings.verdict, session.verdict())
        for html in (findings._repr_html_(), session._repr_html_()):
            self.assertTrue(html.startswith("<p><b>"), html)
        compared = session.diff(self.session())
        self.assertEqual(compared["schema"].split("/")[0], "apex.diff")
        self.assertIn("<table>", compared._repr_html_())
        self.assertEqual(session.steps(), [])
        self.assertTrue(session.places()[0]["place"])
        self.assertTrue(session.markdown().startswith("**"))

    @unittest.skipUnless(has("tensorboardX"), "no tensorboardX")
    def test_tensorboard(self):
        from tensorboardX import SummaryWriter
        from tensorboardX.proto.event_pb2 import Event

        with SummaryWriter(os.path.join(self.folder, "tb")) as writer:
            log.to_tensorboard(self.session(), writer, step=7)
        (file,) = (Path(self.folder) / "tb").iterdir()
        data, tags = file.read_bytes(), {}
        while data:
            # A record: its length, a checksum of that, the event, its checksum.
            length = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + length])
            tags.update({value.tag: (event.step, value) for value in event.summary.value})
            data = data[16 + length :]
        step, launches = tags["apex/launches"]
        self.assertEqual((step, launches.simple_value), (7, 3.0))
        self.assertTrue(any(tag.startswith("apex/report") for tag in tags), tags)

    @unittest.skipUnless(has("mlflow"), "no MLflow")
    def test_mlflow(self):
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        import mlflow

        mlflow.set_tracking_uri(f"file://{self.folder}/runs")
        with mlflow.start_run() as active:
            log.to_mlflow(self.session(), step=7)
        done = mlflow.MlflowClient().get_run(active.info.run_id)
        self.assertEqual(done.data.metrics["apex/launches"], 3)
        self.assertTrue(done.data.tags["apex.verdict"])
        text = mlflow.artifacts.load_text(f"{done.info.artifact_uri}/apex/report.md")
        self.assertTrue(text.startswith("**"), text)

    @unittest.skipUnless(has("wandb"), "no Weights & Biases")
    def test_wandb(self):
        import wandb

        with wandb.init(mode="offline", dir=self.folder, project="apex") as active:
            log.to_wandb(self.session())
            summary = json.loads(json.dumps(dict(active.summary), default=str))
        self.assertEqual(summary["apex/launches"], 3)
        self.assertTrue(summary["apex/verdict"])


if __name__ == "__main__":
    unittest.main()
