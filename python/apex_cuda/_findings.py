"""Findings and comparisons that a notebook shows as tables."""

from html import escape
from typing import Any, Optional

Document = dict[str, Any]


class Findings(list[Document]):
    """The findings of a session, the most valuable first: members of ``advice.findings`` in
    ``docs/json.md``. A notebook shows them as a table below the verdict.

    Args:
        found: the findings.
        verdict: the sentences of the report's beginning.
    """

    def __init__(self, found: list[Document], verdict: list[str]) -> None:
        super().__init__(found)
        self.verdict = verdict

    def __repr__(self) -> str:
        lines = [f"{saves(finding)}  {finding['title']}: {finding['remedy']}" for finding in self]
        return "\n".join([*self.verdict, *lines])

    def _repr_html_(self) -> str:
        rows = "".join(_row(finding) for finding in self)
        heads = "<tr><th>saves<th>finding<th>change<th>rule</tr>"
        table = f"<table>{heads}{rows}</table>" if rows else "<p>No findings.</p>"
        return headline(self.verdict) + table


def headline(verdict: list[str]) -> str:
    """The verdict as HTML."""
    first, *others = [escape(sentence) for sentence in verdict] or ["No verdict."]
    return f"<p><b>{first}</b></p>" + "".join(f"<p>{other}</p>" for other in others)


def _row(finding: Document) -> str:
    where = _place(finding)
    what = escape(finding["title"]) + (f"<br><code>{escape(where)}</code>" if where else "")
    cells = [escape(saves(finding)), what, escape(finding["change"]), escape(finding["rule"])]
    left = ' style="text-align:left"'
    return "<tr>" + "".join(f"<td{left}>{cell}</td>" for cell in cells) + "</tr>"


def _place(finding: Document) -> Optional[str]:
    place = finding.get("place")
    return place and f"{place['file'].rsplit('/', 1)[-1]}:{place['line']}  {place['text']}"


def saves(finding: Document) -> str:
    """The share of the job that a change saves; ``?`` where it is not known."""
    share = finding["saving"]["of_job"]
    return "?" if share is None else f"{share['value']:.0%}"


class Comparison(dict[str, Any]):
    """What ``apex diff --json`` prints: the document ``apex.diff`` of ``docs/json.md``. A notebook
    shows how long a step or the kernels took before and after.
    """

    def _repr_html_(self) -> str:
        kernels = self["comparison"]["functions"]
        rows = [("a step", self["comparison"].get("step_ns"))]
        rows += [(kernel["name"], kernel["duration_ns"]) for kernel in kernels[:_SHOWN]]
        cells = "".join(_change(name, change) for name, change in rows if change is not None)
        heads = "<tr><th>mean time<th>before<th>after<th>change</tr>"
        return f"<table>{heads}{cells}</table>"


_SHOWN = 10
"""Kernels of a comparison that a notebook shows."""


def _change(name: str, change: Document) -> str:
    ratio = change.get("ratio")
    cells = [
        escape(name),
        _time(change.get("before")),
        _time(change.get("after")),
        "" if ratio is None else f"{ratio - 1:+.1%}",
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _time(figure: Optional[Document]) -> str:
    if figure is None or figure.get("value") is None:
        return "?"
    time = float(figure["value"])
    for unit, length in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if time >= length:
            return f"{time / length:.3g} {unit}"
    return f"{time:.3g} ns"
