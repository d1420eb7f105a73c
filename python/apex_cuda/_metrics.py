"""Numbers of a report that are worth a curve."""

from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]


def metrics(report: Document) -> dict[str, float]:
    """The numbers of a document ``apex.report``; what is not known is left out."""
    verdict = report["advice"]["verdict"]
    found = {"launches": float(verdict["launches"])}
    saving = verdict.get("saving_of_job")
    if saving is not None:
        found["saving_share"] = float(saving["value"])
    activities = report["profile"]["activities"]
    steps = [one["iterations"]["step_ns"]["value"] for one in activities if one.get("iterations")]
    if steps:
        found["step_ms"] = max(steps) / 1e6
    found.update(_shares([_accounts(one) for one in activities]))
    return found


def _accounts(activity: Document) -> Document:
    """The accounts of the steady state; of all the time where there is none."""
    steady = [phase for phase in activity["phases"] if phase["kind"] == "steady"]
    accounts: Document = (steady or [activity])[0]["accounts"]
    return accounts


def _shares(devices: list[Document]) -> dict[str, float]:
    span = sum(accounts["span_ns"] for accounts in devices)
    sums: dict[str, float] = {}
    for accounts in devices:
        for name, time in _times(accounts):
            sums[name] = sums.get(name, 0.0) + time
    return {name: time / span for name, time in sums.items()} if span > 0 else {}


def _times(accounts: Document) -> Iterator[tuple[str, float]]:
    """Each account with its time, nanoseconds."""
    for name, figure in accounts.items():
        if name == "idle":
            yield "idle", sum(cause["value"] for cause in figure.values())
            yield from ((f"idle_{cause}", each["value"]) for cause, each in figure.items())
        elif name not in ("span_ns", "pauses") and isinstance(figure, dict):
            yield name, figure["value"]
