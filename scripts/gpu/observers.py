"""Ways to run a program under observation, and what each counted.

An observer wraps a command, adds to its environment, and afterwards answers with `counters`: by name, a function from
the run's folder to launches per kernel.
"""

import csv
import json
import subprocess
from collections import Counter
from pathlib import Path


def absolute(path):
    """For arguments: observed programs and their libraries are named by absolute paths."""
    return Path(path).absolute()


class Nothing:
    def wrap(self, command, _folder):
        return command

    def environment(self, _folder):
        return {}

    def counters(self):
        return {}


class Cupti(Nothing):
    """CUPTI's kernel activity, through programs/cupti_count.cpp."""

    def __init__(self, library):
        self.library = library

    def environment(self, folder):
        return {"CUDA_INJECTION64_PATH": str(self.library), "CUPTI_COUNT_DIR": str(folder)}

    def counters(self):
        return {"cupti": lambda folder: launches(self.rows(folder))}

    @staticmethod
    def rows(folder):
        """Kernels that CUPTI saw in all processes of a run: one row for each process, kernel and launch shape."""
        found = []
        for path in sorted(folder.glob("*.csv")):
            lines = path.read_text().splitlines()
            if lines[-1:] != ["# dropped 0"]:
                raise RuntimeError(f"{path.name}: CUPTI lost records: {lines[-1:]}")
            found += csv.DictReader(lines[:-1])
        if not found:
            raise RuntimeError("CUPTI wrote no counts")
        return found


class Apex(Nothing):
    """`apex run`, with further options."""

    def __init__(self, binaries, *options):
        self.apex = str(binaries / "apex")
        self.options = options

    def wrap(self, command, folder):
        return [self.apex, "run", "-o", str(folder / "session"), *self.options, "--", *command]

    def counters(self):
        return {"apex": lambda folder: launches(self.rows(folder))}

    def rows(self, folder):
        """Kernels of the session: one row for each configuration; `count` is its runs, by graph launches too."""
        done = subprocess.run([self.apex, "report", "--json", str(folder / "session")], capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"apex report: {done.stderr.decode(errors='replace').strip()}")
        kernels = json.loads(done.stdout)["profile"]["kernels"]
        return [
            k | {"name": k["symbol"], "count": k["launches"]["calls"] + k["launches"]["by_graphs"]}
            for k in kernels
            if k["launches"]["calls"] + k["launches"]["by_graphs"]
        ]


class Both(Nothing):
    """Two observers at once."""

    def __init__(self, outer, inner):
        self.outer, self.inner = outer, inner

    def wrap(self, command, folder):
        return self.outer.wrap(self.inner.wrap(command, folder), folder)

    def environment(self, folder):
        return self.outer.environment(folder) | self.inner.environment(folder)

    def counters(self):
        return self.outer.counters() | self.inner.counters()


def shape(row):
    """What tells a row's configuration from another's, the same for both observers."""
    if "grid_x" in row:
        return (
            row["name"],
            *(int(row[f"{what}_{axis}"]) for what in ("grid", "block") for axis in "xyz"),
            int(row["dynamic_shared"]),
        )
    return (row["name"], *row["grid"], *row["block"], row["dynamic_shared"])


# Kernels that APEX launches itself: an empty one, on a stream of its own, to learn what an event pair costs, and one that
# delays a stream before a launch is timed. They are not the program's, so APEX does not count them; CUPTI does.
OURS = {"apex_empty", "apex_delay"}


def launches(rows):
    """Launches of each of the program's kernels, by its name."""
    total = Counter()
    for row in rows:
        if row["name"] not in OURS:
            total[row["name"]] += int(row["count"])
    return total
