"""A plugin of pytest: limits of what a test makes the GPU do.

``@pytest.mark.apex(launches="<=3", excessive_sectors=0)`` runs the test in a process of its own
under ``apex run``, which records what is called inside the test and not in its fixtures, and fails
it where a figure of ``apex check`` exceeds its limit. The failure names the kernel and the line.

pytest loads the plugin by itself where the wheel is installed, and elsewhere with ``-p
apex_cuda.pytest_plugin``. It needs nothing of APEX before a marked test runs.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from . import _command
from ._limits import Marked, judge, read
from ._recording import record

_CHILD = "--apex-reports"
"""The option of the process that runs one test, with the file for its reports."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--apex-device``, and the options of an ini file."""
    group = parser.getgroup("apex", "figures of GPU code (apex_cuda)")
    group.addoption(
        "--apex-device",
        choices=["cpu", "gpu"],
        help="device of marked tests that name none [default: a GPU if there is one, else APEX's "
        "CPU device]",
    )
    group.addoption(_CHILD, metavar="FILE", help="for the plugin itself")
    parser.addini(
        "apex_args", "arguments of pytest for the processes of marked tests", "args", default=[]
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker."""
    config.addinivalue_line(
        "markers",
        "apex(device=None, kernels=None, **limits): run the test under `apex run`, and hold its "
        "figures to limits such as launches=3, idle='<20%', excessive_sectors=0 (apex_cuda)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Optional[bool]:
    """Runs a marked test in processes of its own, one for each marker."""
    if item.config.getoption(_CHILD) or item.get_closest_marker("apex") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """In the test's own process: records the test itself."""
    if item.config.getoption(_CHILD) is None:
        yield
        return
    with record():
        yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the test's own process: keeps the reports for the process that shows them."""
    _KEPT.append(report)


_KEPT: list[pytest.TestReport] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In the test's own process: writes the reports."""
    path = session.config.getoption(_CHILD)
    if path is not None:
        to_data = session.config.hook.pytest_report_to_serializable
        data = [to_data(config=session.config, report=report) for report in _KEPT]
        Path(path).write_text(json.dumps(data), encoding="utf-8")
    _KEPT.clear()


def _reports(item: pytest.Item) -> list[pytest.TestReport]:
    """The reports of a marked test: those of its processes, or why it could not be judged."""
    markers = [read(mark.args, mark.kwargs) for mark in item.iter_markers("apex")]
    wrong = next((marked for marked in markers if isinstance(marked, str)), None)
    if wrong is not None:
        return _made(item, "failed", f"@pytest.mark.apex: {wrong}")
    reports: list[pytest.TestReport] = []
    for marked in markers:
        if isinstance(marked, str):
            continue
        device = marked.device or item.config.getoption("--apex-device") or _default()
        if device == "gpu" and not _has_gpu():
            return _made(item, "skipped", "apex: the limits are of a GPU, and there is none here")
        reports = _judged(item, marked, device)
        if any(report.outcome != "passed" for report in reports):
            break
    return reports


def _judged(item: pytest.Item, marked: Marked, device: str) -> list[pytest.TestReport]:
    """The reports of one run of the test, its call failed where a limit is exceeded."""
    with tempfile.TemporaryDirectory(prefix="apex-pytest-") as folder:
        session, kept = os.path.join(folder, "session"), os.path.join(folder, "reports.json")
        try:
            said = _run(item, device, session, kept)
        except _command.Error as error:
            return _made(item, "failed", f"apex: {error}")
        if not os.path.exists(kept):
            return _made(item, "failed", f"the test's process ended early:\n{said}")
        from_data = item.config.hook.pytest_report_from_serializable
        data = json.loads(Path(kept).read_text(encoding="utf-8"))
        reports = [from_data(config=item.config, data=one) for one in data]
        if not reports:
            return _made(item, "failed", f"the test's process did not find the test:\n{said}")
        for report in reports:
            report.nodeid = item.nodeid
        if any(report.outcome != "passed" for report in reports):
            return reports
        call = next(report for report in reports if report.when == "call")
        try:
            failures = judge(marked.limits, session, device)
        except _command.Error as error:
            failures = [str(error)]
        if failures:
            call.outcome = "failed"
            call.longrepr = "\n".join([f"apex: {line}" for line in failures])
        return reports


def _run(item: pytest.Item, device: str, session: str, kept: str) -> str:
    """Runs the test alone under ``apex run``, and returns what was printed."""
    config = item.config
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", f"--rootdir={config.rootpath}"]
    options += ["-c", str(config.inipath)] if config.inipath else []
    if not config.pluginmanager.hasplugin("apex_cuda"):
        options += ["-p", __name__]
    options += [*config.getini("apex_args"), f"{_CHILD}={kept}"]
    check = ["--check"] if device == "cpu" else []
    _, *inside = item.nodeid.split("::", 1)
    apex = [_command.find(), "run", "--paused", "--quiet", *check, "--device", device]
    test = "::".join([str(item.path), *inside])
    done = subprocess.run(
        [*apex, "-o", session, "--", sys.executable, "-m", "pytest", *options, test],
        cwd=config.invocation_params.dir,
        env=_command.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    return done.stdout + done.stderr


def _made(item: pytest.Item, outcome: Any, text: str) -> list[pytest.TestReport]:
    """Reports of a test that did not run."""
    path, line, _ = item.location
    said: Any = (path, line or 0, text) if outcome == "skipped" else text
    whole: Any = {name: 1 for name in item.keywords}
    return [
        pytest.TestReport(item.nodeid, item.location, whole, "passed", None, "setup"),
        pytest.TestReport(item.nodeid, item.location, whole, outcome, said, "call"),
        pytest.TestReport(item.nodeid, item.location, whole, "passed", None, "teardown"),
    ]


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or os.path.exists("/dev/dxg")


def _default() -> str:
    return "gpu" if _has_gpu() else "cpu"
