"""Tunes declared parameters: ``apex tune --ask`` chooses, a Python function measures."""

import itertools
import json
import math
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional, Union

from . import _command

Value = Union[int, float, bool, str]
Configuration = dict[str, Value]
Restriction = Union[str, Callable[[Configuration], bool]]
Measure = Callable[[Configuration], Union[float, Sequence[float]]]

MOST_LISTED = 1_000_000
"""Combinations of values of which a restriction that is a function is asked."""


class Invalid(Exception):
    """The configuration has no time; ``reason`` is a word of T4.

    Args:
        reason: ``"compile"``, ``"runtime"``, ``"correctness"``, ``"constraints"`` or ``"timeout"``.
        message: What happened, for the file of results.
    """

    def __init__(self, reason: str, message: str = "") -> None:
        if reason not in ("compile", "runtime", "correctness", "constraints", "timeout"):
            raise ValueError(f"{reason!r} is no reason of T4")
        super().__init__(f"{reason}: {message}" if message else reason)
        self.reason, self.message = reason, message


@dataclass
class Tuned:
    """What a search found; ``print`` shows a sentence.

    Attributes:
        best: the configuration of choice, ``None`` if nothing succeeded.
        time_ms: its time (measured, median), in milliseconds.
        original: the configuration without tuning, if one was given and succeeds.
        original_ms: its time (measured, median).
        ratio: the best's time divided by the original's: ``median``, ``low``, ``high`` (95%
            interval) and ``pairs``; ``None`` without pairs.
        kept: why the original is the best: ``"none_better"``, ``"tie"`` or ``"few_pairs"``.
        document: everything (``apex.searched/1``).
    """

    best: Optional[Configuration]
    time_ms: Optional[float]
    original: Optional[Configuration]
    original_ms: Optional[float]
    ratio: Optional[dict[str, float]]
    kept: Optional[str]
    document: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        if self.best is None:
            return "no configuration succeeded"
        said = f"{_described(self.best)} takes {self.time_ms:.4g} ms (measured)"
        if self.kept is not None:
            return f"the original stays ({self.kept}): {said}"
        if self.ratio is not None:
            low, median, high = (self.ratio[name] for name in ("low", "median", "high"))
            return f"{said}, {median:.3f} ({low:.3f} to {high:.3f}) of the original's time"
        return said


def tune(
    space: Mapping[str, Iterable[Value]],
    measure: Measure,
    *,
    restriction: Union[Restriction, Sequence[Restriction], None] = None,
    original: Optional[Mapping[str, Value]] = None,
    budget: Union[int, float, None] = None,
    time_limit: Optional[float] = None,
    strategy: Optional[str] = None,
    pairs: int = 20,
    seed: int = 0,
    results: Union[str, "os.PathLike[str]", None] = None,
    key: Optional[Mapping[str, object]] = None,
) -> Tuned:
    """Searches the configuration for which ``measure`` takes least.

    >>> apex_cuda.tune({"block": [64, 128, 256], "tile": range(1, 9)}, time_of_kernel,
    ...                restriction="block * tile <= 1024", original={"block": 128, "tile": 1})

    ``measure`` gets a configuration and returns its time in milliseconds, or the times of several
    runs. If it raises, the configuration has failed and is skipped; ``Invalid`` names the reason.
    ``KeyboardInterrupt`` ends the search; with ``results``, the next call goes on from there.

    Args:
        space: the values of each parameter.
        restriction: an expression in the part of Python that docs/tune.md describes, a function of
            a configuration, or several.
        original: the configuration without tuning; it stays unless pairs of runs show that another
            one is faster.
        budget: configurations to try: a number, or a share of the space as 0.05. The default is 5%,
            at least 100 and at most 1,000.
        time_limit: seconds for the search; then the best is confirmed.
        strategy: ``"model"``, ``"descend"``, ``"random"`` or ``"exhaustive"``.
        pairs: pairs of runs that confirm the best, at least 10; 0 for none.
        seed: what draws depend on.
        results: a T4 file that keeps what was measured between calls.
        key: what the results depend on beside the device, such as the kernel's source and the size;
            those of another key are refused.

    Raises:
        Error: ``apex`` refuses the space or the file of results, with its reason.
    """
    document = _space(space, restriction, original)
    with tempfile.TemporaryDirectory(prefix="apex-tune-") as folder:
        file = Path(folder, "space.json")
        file.write_text(json.dumps(document))
        arguments = [
            "tune",
            "--space",
            str(file),
            "--ask",
            "--seed",
            str(seed),
            "--pairs",
            str(pairs),
        ]
        if budget is not None:
            arguments += [
                "--trials",
                str(budget) if isinstance(budget, int) else f"{budget * 100:.10g}%",
            ]
        if time_limit is not None:
            arguments += ["--time-limit", f"{time_limit:.10g}s"]
        if strategy is not None:
            arguments += ["--strategy", strategy]
        if results is not None:
            arguments += ["--output", os.fspath(results)]
        for name, value in (key or {}).items():
            arguments += ["--key", f"{name}={value}"]
        return _converse(arguments, measure)


def _space(
    space: Mapping[str, Iterable[Value]],
    restriction: Union[Restriction, Sequence[Restriction], None],
    original: Optional[Mapping[str, Value]],
) -> dict[str, Any]:
    """The file of the space. Functions are asked of each combination of values."""
    parameters = {name: [_plain(value) for value in values] for name, values in space.items()}
    if restriction is None or isinstance(restriction, str) or callable(restriction):
        restriction = [] if restriction is None else [restriction]
    document: dict[str, Any] = {"parameters": parameters}
    document["restrictions"] = texts = [one for one in restriction if isinstance(one, str)]
    functions = [one for one in restriction if not isinstance(one, str)]
    if functions:
        count = math.prod(map(len, parameters.values()))
        if count > MOST_LISTED:
            raise ValueError(
                f"a restriction that is a function is asked of each of the {count:,} combinations of "
                "values, which are too many: write it as a text"
            )
        if texts:
            raise ValueError("restrictions are either all texts or all functions")
        document["configurations"] = _allowed(parameters, functions)
    if original is not None:
        document["original"] = {name: _plain(value) for name, value in original.items()}
    return document


def _allowed(
    parameters: dict[str, list[Value]], functions: list[Callable[[Configuration], bool]]
) -> list[list[int]]:
    """The places of the values of each combination that all functions allow."""
    allowed = []
    for places in itertools.product(*(range(len(values)) for values in parameters.values())):
        values = (all_of[place] for all_of, place in zip(parameters.values(), places))
        configuration = dict(zip(parameters, values))
        if all(function(configuration) for function in functions):
            allowed.append(list(places))
    return allowed


def _plain(value: Any) -> Value:
    """A value as Python's own type, such as of one of NumPy's."""
    item = getattr(value, "item", None)
    return item() if callable(item) else value  # type: ignore[no-any-return]


def _converse(arguments: list[str], measure: Measure) -> Tuned:
    """Answers what ``apex`` asks, until it says what was found."""
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            [_command.find(), *arguments],
            env=_command.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            # Ctrl-C reaches this process, which ends the conversation, so that results are written.
            start_new_session=True,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            for line in process.stdout:
                said = json.loads(line)
                if "ask" not in said:
                    process.stdin.close()
                    process.wait()
                    return _tuned(said)
                print(json.dumps(_answer(said["ask"], measure)), file=process.stdin, flush=True)
        errors.seek(0)
        raise _command.Error(
            _command.said(errors.read()) or f"apex tune ended with {process.returncode}"
        )


def _answer(configuration: Configuration, measure: Measure) -> dict[str, Any]:
    try:
        times = measure(dict(configuration))
    except Invalid as invalid:
        return {"failed": invalid.reason, "message": invalid.message}
    except Exception as error:
        return {"failed": "runtime", "message": f"{type(error).__name__}: {error}"[:500]}
    found = [float(time) for time in (times if isinstance(times, Iterable) else [times])]
    if not found or not all(math.isfinite(time) and time > 0 for time in found):
        raise ValueError(
            f"the measured function returned {times!r} for {_described(configuration)}; it returns positive "
            "milliseconds, and raises where there are none"
        )
    return {"times_ms": found}


def _tuned(document: dict[str, Any]) -> Tuned:
    best, original = document["best"] or {}, document["original"] or {}
    return Tuned(
        best=best.get("configuration"),
        time_ms=best.get("time_ms"),
        original=original.get("configuration"),
        original_ms=original.get("time_ms"),
        ratio=document["ratio"],
        kept=document["kept"],
        document=document,
    )


def _described(configuration: Configuration) -> str:
    return ", ".join(f"{name}={value}" for name, value in configuration.items())


def time_on_gpu(
    launch: Callable[[], object], *, repeats: int = 5, flush: bool = True
) -> list[float]:
    """The times of what ``launch`` enqueues on CuPy's current stream, in milliseconds, by events.

    The first call warms up and is not timed. With ``flush``, a buffer of twice the L2 cache is
    written before each timed call, so that a call does not find in the cache what the one before
    left there.

    Raises:
        Invalid: the launch fails (``"runtime"``), or its source does not compile (``"compile"``).
    """
    import cupy  # type: ignore[import-not-found, unused-ignore]

    try:
        launch()
        cupy.cuda.get_current_stream().synchronize()
    except cupy.cuda.compiler.CompileException as error:
        raise Invalid("compile", str(error)[-500:]) from error
    except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise Invalid("runtime", str(error)) from error
    size = 2 * cupy.cuda.Device().attributes["L2CacheSize"] if flush else 0
    scratch = cupy.empty(max(size, 1), dtype=cupy.uint8)
    times = []
    for _ in range(repeats):
        scratch.fill(0)
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        launch()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end))
    return times
