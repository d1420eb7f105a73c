"""Limits of figures that a test names, and what a session has of them.

Figures are those of ``apex check`` (docs/check.md), with sums over the whole test; ``idle`` is what
``gpu_busy_percent`` leaves of 100.
"""

import json
import operator
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _command
from ._findings import Document
from ._session import Session

Names = tuple[str, ...]

ON_GPU: Names = (
    "idle",
    "step_ms",
    "kernel_us",
    "gpu_busy_percent",
    "idle_host_code_percent",
    "idle_driver_calls_percent",
)
ON_CPU: Names = (
    "warp_instructions",
    "sectors",
    "excessive_sectors",
    "bank_conflicts",
    "divergent_branches",
    "defects",
)
ON_BOTH: Names = ("launches", "copies", "copied_bytes", "peak_bytes", "occupancy_percent")
OF_KERNELS: Names = ("launches", "kernel_us", "occupancy_percent", *ON_CPU[:-1])
OF_KERNELS_ALONE: Names = ("kernel_us", "occupancy_percent")
AT_LEAST: Names = ("gpu_busy_percent", "occupancy_percent")
PERCENT: Names = ("idle", *(name for name in (*ON_GPU, *ON_BOTH) if name.endswith("_percent")))

_FORMS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_WORDS = {"<=": "at most", ">=": "at least", "==": "exactly", "<": "below", ">": "above"}
_WORST = 3
"""Kernels, places and defects that a failure names."""


@dataclass
class Limit:
    """A limit of a figure: of the whole, or of the kernels that a name with ``*`` matches."""

    figure: str
    form: str
    value: float
    kernel: Optional[str] = None

    def keeps(self, value: float) -> bool:
        """Whether a value keeps it."""
        return _FORMS[self.form](value, self.value)

    def __str__(self) -> str:
        unit = "%" if self.figure in PERCENT else ""
        return f"{_WORDS[self.form]} {_number(self.value)}{unit}"


@dataclass
class Marked:
    """What a marker asks for."""

    device: Optional[str]
    limits: list[Limit]


def read(positional: tuple[Any, ...], named: dict[str, Any]) -> Union[Marked, str]:
    """What a marker asks for, or what is wrong with it."""
    given = dict(named)
    device, kernels = given.pop("device", None), given.pop("kernels", {})
    if positional:
        return f"limits have names, such as launches=3, and not {positional[0]!r} alone"
    if device not in (None, "cpu", "gpu"):
        return f"device is 'cpu' or 'gpu', and not {device!r}"
    if not isinstance(kernels, dict) or not all(isinstance(of, dict) for of in kernels.values()):
        return "kernels is a dictionary such as {'saxpy*': {'excessive_sectors': 0}}"
    limits: list[Limit] = []
    of_kernels = [(kernel, *one) for kernel, of in kernels.items() for one in of.items()]
    for kernel, figure, value in [*((None, *one) for one in given.items()), *of_kernels]:
        limit = _limit(kernel, figure, value)
        if isinstance(limit, str):
            return limit
        limits.append(limit)
    if not limits:
        return "name at least one limit, such as launches=3"
    return _on_one_device(device, limits)


def _on_one_device(device: Optional[str], limits: list[Limit]) -> Union[Marked, str]:
    """The device that has all figures."""
    needed = {"gpu": ON_GPU, "cpu": ON_CPU}
    for one, other in (("gpu", "cpu"), ("cpu", "gpu")):
        figure = next((limit.figure for limit in limits if limit.figure in needed[one]), None)
        if figure is None:
            continue
        wrong = next((limit.figure for limit in limits if limit.figure in needed[other]), None)
        if wrong is not None:
            return f"no device has both {figure} and {wrong}: give each a marker of its own"
        if device == other:
            return f"{figure} is not known with device={other!r}"
        device = one
    return Marked(device, limits)


def _limit(kernel: Optional[str], figure: str, value: Any) -> Union[Limit, str]:
    of_all = tuple(name for name in (*ON_BOTH, *ON_GPU, *ON_CPU) if name not in OF_KERNELS_ALONE)
    known = of_all if kernel is None else OF_KERNELS
    if figure not in known:
        what = "figure of a kernel" if kernel is not None else "figure"
        return f"there is no {what} {figure!r}. There are: {', '.join(known)}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        form, number = (">=" if figure in AT_LEAST else "<="), float(value)
    else:
        found = re.fullmatch(
            r"\s*(<=|>=|==|<|>)\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*(%?)\s*", str(value)
        )
        if found is None:
            return f"the limit of {figure} is a number or a text such as '<=3', and not {value!r}"
        form, number = found[1], float(found[2].replace("_", ""))
        if found[3] and figure not in PERCENT:
            return f"{figure} is no share: its limit has no %"
    if not number >= 0 or number == float("inf"):
        return f"the limit of {figure} must be a number of at least 0, and not {value!r}"
    return Limit(figure, form, number, kernel)


_NOTHING: Document = {
    "profile": {"defects": [], "copies": [], "kernels": []},
    "places": [],
    "verdict": [],
}
"""The report of a test that made no CUDA call."""


def judge(limits: list[Limit], session: str, device: str) -> list[str]:
    """A paragraph for each limit that a session does not keep.

    Raises:
        Error: the session cannot be judged; the text says why.
    """
    run = _run_of(limits, session, device)
    if run["device"] != device:
        raise _command.Error(f"the test ran on a {run['device']} device, and not on a {device}")
    report: Optional[Document] = None
    failures = []
    for limit in limits:
        value = _value(limit, run)
        if value is not None and limit.keeps(value):
            continue
        if report is None:
            report = Session(session).report() if os.path.exists(session) else _NOTHING
        failures.append("\n".join([_sentence(limit, value, device), *_where(limit, run, report)]))
    return failures


def _run_of(limits: list[Limit], session: str, device: str) -> Document:
    """The figures of a session. A test that makes no CUDA call has none: its counts are 0 if it says
    that nothing is launched.

    Raises:
        Error: there is no session, or it cannot be judged.
    """
    if os.path.exists(session):
        said = _command.output(["check", "--figures", "--per", "run", "--", session])
        run: Document = json.loads(said)["runs"][0]
        return run
    if not any(_is_no_launch(limit) for limit in limits):
        raise _command.Error(
            "the test made no CUDA call, so there is nothing to hold to a limit; launches=0 says that "
            "it should make none"
        )
    shares = (*ON_GPU, "occupancy_percent")
    counts = {name: 0.0 for name in (*ON_BOTH, *(ON_CPU if device == "cpu" else ()))}
    figures = {name: value for name, value in counts.items() if name not in shares}
    return {"device": device, "figures": figures, "kernels": []}


def _is_no_launch(limit: Limit) -> bool:
    """Whether a limit says that the test launches nothing."""
    is_none = (limit.form, limit.value) in (("<=", 0), ("==", 0), ("<", 1))
    return limit.figure == "launches" and limit.kernel is None and is_none


def _value(limit: Limit, run: Document) -> Optional[float]:
    """The figure of a run; of several kernels the sum, of means and shares the worst one."""
    if limit.kernel is None:
        busy = run["figures"].get("gpu_busy_percent")
        value = run["figures"].get(limit.figure)
        return (100 - busy if busy is not None else None) if limit.figure == "idle" else value
    values = [value for _, value in _of_kernels(limit, run)]
    if not values:
        return None
    worst = {"kernel_us": max, "occupancy_percent": min}.get(limit.figure, sum)
    return float(worst(values))


def _of_kernels(limit: Limit, run: Document) -> list[tuple[str, float]]:
    """The kernels that a limit is of, with their values, the worst first."""
    form = ".*".join(re.escape(part) for part in (limit.kernel or "*").split("*"))
    found = [
        (kernel["kernel"], kernel["figures"][limit.figure])
        for kernel in run["kernels"]
        if re.fullmatch(form, kernel["kernel"]) and limit.figure in kernel["figures"]
    ]
    return sorted(found, key=lambda one: one[1], reverse=limit.figure not in AT_LEAST)


def _sentence(limit: Limit, value: Optional[float], device: str) -> str:
    of = f" of {limit.kernel}" if limit.kernel else ""
    if value is None and limit.kernel:
        return f"no kernel {limit.kernel} ran, whose {limit.figure} must be {limit}"
    if value is None:
        return f"{limit.figure}{of} is not known of this run on the {device} device"
    unit = "%" if limit.figure in PERCENT else ""
    return f"{limit.figure}{of} is {_number(value)}{unit}, but must be {limit}"


def _where(limit: Limit, run: Document, report: Document) -> list[str]:
    """The kernels and lines that a figure comes from."""
    if limit.figure == "defects":
        return [f"  {_defect(defect)}" for defect in report["profile"]["defects"][:_WORST]]
    if limit.figure in ("copies", "copied_bytes"):
        return [f"  {_copies(copies)}" for copies in report["profile"]["copies"][:_WORST]]
    if limit.kernel is None and limit.figure in ON_GPU:
        return [f"  {sentence}" for sentence in report["verdict"][:1]]
    lines = []
    for kernel, value in _of_kernels(limit, run)[:_WORST]:
        if value or limit.figure == "occupancy_percent":
            place = _line(kernel, limit.figure, report) or _launched(kernel, report)
            lines.append(f"  {kernel}: {_number(value)}{place}")
    return lines


def _defect(defect: Document) -> str:
    return f"{defect['kind']} in {defect['kernel']}{_at(defect['place'])}: {defect['text']}"


def _copies(copies: Document) -> str:
    direction = str(copies["direction"]).replace("_", " ")
    count = _counted(copies["count"], "copy", "copies")
    return f"{direction}: {count}, {_counted(copies['bytes'], 'byte', 'bytes')}"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


_EVENTS = {
    "sectors": "global_sectors",
    "excessive_sectors": "global_excess",
    "bank_conflicts": "shared_excess",
    "divergent_branches": "divergent_branches",
    "warp_instructions": "warp_instructions",
}
"""Members of a counted line by figure."""


def _line(kernel: str, figure: str, report: Document) -> str:
    """Where in its source the kernel has most of a figure: `` at saxpy.cu:7``."""
    member = _EVENTS.get(figure)
    named = [one for one in report["profile"]["kernels"] if one["short_name"] == kernel]
    lines = [line for one in named if one["counts"] for line in one["counts"]["lines"]]
    most = max(lines, key=lambda line: line.get(member, 0), default=None)
    return "" if member is None or most is None or not most.get(member) else _at(most)


def _launched(kernel: str, report: Document) -> str:
    """Where the program launches the kernel: `` from train.py:48``."""
    kernels = report["profile"]["kernels"]
    for place in report["places"]:
        if any(kernels[index]["short_name"] == kernel for index in place["kernels"]):
            return f" from {place['place']}"
    return ""


def _at(place: Optional[Document]) -> str:
    """`` at FILE:LINE``, or the line of the PTX where it has no other."""
    if place is None:
        return ""
    if place.get("file"):
        return f" at {place['file'].rsplit('/', 1)[-1]}:{place['line']}"
    line = place.get("ptx_line") or place.get("line")
    return f" at line {line} of its PTX" if line else ""


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.4g}"
