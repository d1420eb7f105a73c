"""Estimates with their uncertainty, by bootstrap: resampled 4,000 times, seeded."""

import numpy

RESAMPLES = 4000


def estimate(values, statistic=numpy.mean):
    """The statistic of `values` and its 95% confidence interval. Values are whole runs or segments, never single calls."""
    values = numpy.asarray(values, dtype=float)
    generator = numpy.random.default_rng(1)
    resampled = statistic(values[generator.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)
    low, high = numpy.percentile(resampled, [2.5, 97.5])
    return {"value": float(statistic(values)), "low": float(low), "high": float(high), "samples": len(values)}


def shown(e, digits=1, unit="", scale=1):
    return f"{e['value'] * scale:.{digits}f}{unit} [{e['low'] * scale:.{digits}f}, {e['high'] * scale:.{digits}f}]"


def table(header, rows):
    """A Markdown table."""
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in [header, *rows]]
    lines.insert(1, "| " + " | ".join("---" for _ in header) + " |")
    return "\n".join(lines) + "\n"
