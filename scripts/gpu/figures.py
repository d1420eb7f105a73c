"""Estimates with their uncertainty, and tables."""

import json
import lzma
from pathlib import Path

from bench import mean_interval


def raw(path):
    """The text of a file of raw results, unpacked if its name ends in `.xz`."""
    packed = Path(path).read_bytes()
    return (lzma.decompress(packed) if str(path).endswith(".xz") else packed).decode()


def read_results(path):
    """What a file of raw results in JSON holds."""
    return json.loads(raw(path))


def estimate(values):
    """The mean of `values` and its 95% confidence interval. Values are whole runs or segments, never single calls."""
    value, low, high = mean_interval(values)
    return {"value": value, "low": low, "high": high, "samples": len(values)}


def shown(e, digits=1, unit="", scale=1):
    return f"{e['value'] * scale:.{digits}f}{unit} [{e['low'] * scale:.{digits}f}, {e['high'] * scale:.{digits}f}]"


def table(header, rows):
    """A Markdown table."""
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in [header, *rows]]
    lines.insert(1, "| " + " | ".join("---" for _ in header) + " |")
    return "\n".join(lines) + "\n"
