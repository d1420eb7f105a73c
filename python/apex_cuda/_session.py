"""A recorded session, as tables and documents.

Tables come as Parquet from ``apex export`` and are read by pyarrow; documents come as JSON. What
each column and member means is in ``docs/json.md``, and in the tables' metadata.
"""

import json
import os
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Optional, Union

from . import _command
from ._findings import Comparison, Document, Findings, headline

if TYPE_CHECKING:
    import pyarrow

Columns = Optional[Sequence[str]]
Path = Union[str, "os.PathLike[str]"]


class Session:
    """A session that ``apex run`` has made, or is writing: a folder, one that ``apex pack`` packed,
    or a trace of another profiler that ``apex report`` reads.

    Nothing is read before a method is called, and each call reads the session as it is then. All
    methods raise `Error` with what ``apex`` said if it cannot be read.

    Args:
        path: the folder or file.
    """

    def __init__(self, path: Path) -> None:
        self.path: str = os.path.abspath(os.fspath(path))

    def __repr__(self) -> str:
        return f"apex_cuda.Session({self.path!r})"

    def launches(self, *, window: Optional[str] = None, columns: Columns = None) -> "pyarrow.Table":
        """Launch calls, a row each, as an Arrow table. ``gpu_ns`` is measured, and null where it
        was not.

        Args:
            window: only calls that began between these times since the session's start, such as
                ``"1.5s..2s"``.
            columns: only these columns.
        """
        return self._table("launches", window, columns)

    def kernels(self, *, columns: Columns = None) -> "pyarrow.Table":
        """Kernels by launch configuration, the costliest first, as an Arrow table."""
        return self._table("kernels", None, columns)

    def calls(self, *, window: Optional[str] = None, columns: Columns = None) -> "pyarrow.Table":
        """Driver calls other than launches, a row each, as an Arrow table. Arguments as for
        `launches`."""
        return self._table("calls", window, columns)

    def memory(self, *, window: Optional[str] = None) -> "pyarrow.Table":
        """The calls that allocate and free memory, with ``address`` and ``bytes``, as an Arrow
        table. Its sums stand in ``report()["profile"]["memory"]``."""
        calls = self.calls(window=window)
        import pyarrow
        import pyarrow.compute

        return calls.filter(
            pyarrow.compute.is_in(calls["class"], pyarrow.array(["allocate", "free"]))
        )

    def parquet(self, rows: str, *, window: Optional[str] = None) -> bytes:
        """A table as a Parquet file, for what reads Parquet without pyarrow (polars, DuckDB).

        Args:
            rows: ``"launches"``, ``"kernels"`` or ``"calls"``.
            window: as for `launches`.
        """
        return self._export("parquet", rows, window)

    def rows(self, rows: str, *, window: Optional[str] = None) -> list[Document]:
        """A table as dictionaries, which need no other package. Arguments as for `parquet`."""
        found: list[Document] = json.loads(self._export("json", rows, window))[rows]
        return found

    def report(self, *, window: Optional[str] = None) -> Document:
        """What ``apex report --json`` prints: the document ``apex.report`` of ``docs/json.md``.

        Args:
            window: as for `launches`.
        """
        return self._document("report", window)

    def advice(self, *, window: Optional[str] = None) -> Document:
        """What ``apex advise --json`` prints: the document ``apex.advise`` of ``docs/json.md``.

        Args:
            window: as for `launches`.
        """
        return self._document("advise", window)

    def findings(self, *, window: Optional[str] = None) -> Findings:
        """The findings, the most valuable first; a notebook shows them as a table.

        Args:
            window: as for `launches`.
        """
        report = self.report(window=window)
        return Findings(report["advice"]["findings"], report["verdict"])

    def verdict(self, *, window: Optional[str] = None) -> list[str]:
        """The first sentences of the report: where the time went, how long it took, what to change.

        Args:
            window: as for `launches`.
        """
        return list(self.report(window=window)["verdict"])

    def markdown(self) -> str:
        """What ``apex report --format markdown`` prints."""
        return _command.output(["report", "--format", "markdown", "--", self.path]).decode()

    def diff(self, other: Union["Session", Path]) -> Comparison:
        """Compares this session, as what was before, with another one: the document ``apex.diff``
        of ``docs/json.md``.

        Args:
            other: the session after a change.
        """
        after = other.path if isinstance(other, Session) else os.path.abspath(os.fspath(other))
        return Comparison(json.loads(_command.output(["diff", "--json", "--", self.path, after])))

    def ranges(self) -> list[Document]:
        """The NVTX ranges that the program named: members of ``profile.ranges``."""
        return list(self.report()["profile"]["ranges"])

    def places(self) -> list[Document]:
        """The places in the program that launch kernels, the costliest first: members of
        ``places``."""
        return list(self.report()["places"])

    def steps(self) -> list[Document]:
        """The steps that were found on each device: ``process``, ``device``, and the members of
        ``iterations``; empty where launches do not repeat."""
        found = self.report()["profile"]["activities"]
        return [
            {"process": one["process"], "device": one["device"], **one["iterations"]}
            for one in found
            if one.get("iterations")
        ]

    def metrics(self) -> dict[str, float]:
        """Numbers to log beside a training: ``step_ms``, ``launches``, ``saving_share``, and each
        account of the devices' time as a share (``kernels``, ``copies``, ``idle_host_code``, …): of
        the steps where the program has some, else of the whole time."""
        from ._metrics import metrics

        return metrics(self.report())

    def _repr_html_(self) -> str:
        report = self.report()
        command = " ".join((report.get("run") or {}).get("command", []))
        about = f"<p>{escape(self.path)}: <code>{escape(command)}</code></p>"
        return headline(report["verdict"]) + about

    def _document(self, command: str, window: Optional[str]) -> Document:
        within = [] if window is None else [f"--window={window}"]
        said = _command.output([command, "--json", *within, "--", self.path])
        found: Document = json.loads(said)
        return found

    def _export(self, form: str, rows: str, window: Optional[str]) -> bytes:
        within = [] if window is None else [f"--window={window}"]
        return _command.output(
            ["export", "--format", form, f"--what={rows}", *within, "--", self.path]
        )

    def _table(self, rows: str, window: Optional[str], columns: Columns) -> "pyarrow.Table":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise ImportError(
                f"Session.{rows}() makes an Arrow table and needs pyarrow: `pip install pyarrow`. "
                f'Without it, Session.rows("{rows}") has the same as dictionaries'
            ) from error
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(self.parquet(rows, window=window)))
        names = None if columns is None else list(columns)
        for name in names or []:
            if name not in file.schema_arrow.names:
                known = ", ".join(file.schema_arrow.names)
                raise KeyError(f"the table of {rows} has no column {name}; it has {known}")
        return file.read(columns=names)
