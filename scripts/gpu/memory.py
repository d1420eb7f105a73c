"""What `apex run --fast=memory` gains, what a free waits for, and how much memory it holds.

    memory.py measure --apex BIN --program FILE --out DIR [--rounds N]
    memory.py tables FILE
    memory.py l2-tables FILE

`measure` runs programs/memory.c bare and under `apex run --fast=memory`, in turn, and writes DIR/memory.json; `tables` prints the
tables of such a file, and `l2-tables` those of L2 persistence windows (programs/l2_window.cu and .py): docs/results/memory-h200.md shows them, and a test
compares (xtask/tests/figures.rs).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import estimate, read_results, table

PARTS = ["pairs", "worked", "waits", "loop 1", "loop 4", "random 1", "random 2", "random 3"]
MODES = {"bare": [], "memory": ["--fast=memory"], "both": ["--fast=queue,memory"]}


def run(part, mode, apex, program):
    command = [program, *part.split()]
    with tempfile.TemporaryDirectory() as folder:
        if MODES[mode]:
            command = [apex, "run", "--quiet", *MODES[mode], "-o", f"{folder}/session", "--", *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"{part} ({mode}): exit status {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(arguments):
    raw = {part: {mode: [] for mode in MODES} for part in PARTS}
    for turn in range(arguments.rounds):
        for part in PARTS:
            for mode in MODES:
                # The queue changes nothing where no call is handed over.
                if mode != "both" or part.startswith(("worked", "loop")):
                    raw[part][mode].append(run(part, mode, arguments.apex, arguments.program))
            (arguments.out / "memory.json").write_text(json.dumps(raw, indent=1) + "\n")
            print(turn, part, flush=True)


def size(count):
    for unit in ["B", "KiB", "MiB"]:
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def median(runs, at, field):
    return statistics.median(run[at][field] for run in runs)


def tables(arguments):
    raw = read_results(arguments.file)
    for part, what in [("pairs", "on an idle GPU"), ("worked", "a memset and `cuCtxSynchronize` between")]:
        rows = []
        for at, line in enumerate(raw[part]["bare"][0]):
            bare, pooled = ([median(raw[part][mode], at, field) for field in ("allocate", "free", "both")] for mode in ("bare", "memory"))
            rows.append([size(line["bytes"]), *(f"{ns:,.0f}" for ns in bare + pooled), f"{bare[2] / pooled[2]:,.1f}"])
        header = ["size", "`cuMemAlloc`, ns", "`cuMemFree`, ns", "both, ns", "pool: allocate", "free", "both", "times faster"]
        print(f"Medians of a pair, {what}:\n\n{table(header, rows)}")
    rows = []
    for at, line in enumerate(raw["waits"]["bare"][0]):
        cells = []
        for mode in ("bare", "memory"):
            waited = all(run[at]["waited"] for run in raw["waits"][mode])
            cells.append(f"{median(raw['waits'][mode], at, 'milliseconds'):.2f} ({'yes' if waited else 'no'})")
        rows.append([size(line["bytes"]), *cells])
    print("A free of unused memory while a kernel spins for 20 ms, ms (whether the kernel was done afterwards):\n")
    print(table(["size", "driver", "pool"], rows))
    rows = []
    for part in ("loop 1", "loop 4"):
        cells = [median(raw[part][mode], 0, "step_us") for mode in MODES]
        rows.append([part.split()[1], *(f"{us:,.0f}" for us in cells), f"{cells[0] / cells[1]:.1f}"])
    print("A step that allocates five blocks (4 KiB to 64 MiB), sets them and frees them, µs:\n")
    print(table(["threads", "bare", "`--fast=memory`", "`--fast=queue,memory`", "`--fast=memory`: times faster"], rows))
    rows = []
    for part in PARTS:
        if part.startswith("random"):
            bare, pooled = ([median(raw[part][mode], 0, field) for field in ("in_use", "milliseconds")] for mode in ("bare", "memory"))
            more = f"{(pooled[0] / bare[0] - 1) * 100:+.1f}%"
            rows.append([part.split()[1], size(round(bare[0])), size(round(pooled[0])), more, f"{bare[1]:,.0f}", f"{pooled[1]:,.0f}"])
    print("6,000 random allocations and frees, 256 B to 512 MiB:\n")
    print(table(["seed", "most in use, bare", "pool", "more", "time of the calls, ms: bare", "pool"], rows), end="")


def l2_tables(arguments):
    lines = [json.loads(line) for line in Path(arguments.file).read_text().splitlines() if line.startswith("{")]
    device = next(line for line in lines if "l2_bytes" in line)
    sizes = [line for line in lines if "hot_mib" in line]
    passed = sorted({line["passed_mib"] for line in sizes})
    rows = []
    for hot in sorted({line["hot_mib"] for line in sizes}):
        of_hot = {line["passed_mib"]: line["without_us"] / line["with_us"] for line in sizes if line["hot_mib"] == hot}
        rows.append([f"{hot} MiB", *(f"{of_hot[mib]:.2f}" for mib in passed)])
    l2, persisting = (size(device[key]) for key in ("l2_bytes", "persisting_bytes"))
    print(f"In every step, one kernel reads a buffer, and another one accesses other memory of this size; the table has the speedup of a step with a window over the buffer (L2: {l2}, of which {persisting} may persist):\n")
    print(table(["buffer", *(f"{mib} MiB between" for mib in passed)], rows))
    rows = []
    for line in lines:
        if "program" in line:
            without, *others = line["windows"].items()
            ratios = {title: [a / b for a, b in zip(without[1], ms, strict=True)] for title, ms in others}
            cells = [f"{title}: {estimated(values)}" for title, values in ratios.items()]
            rows.append([line["program"], f"{statistics.median(without[1]):.3f}", "; ".join(cells)])
    print("PyTorch programs with a window over each of their largest memory segments in turn; speedup over no window (95% interval):\n")
    print(table(["program", "without, ms", "window over"], rows), end="")


def estimated(ratios):
    found = estimate(ratios)
    return f"{found['value']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--apex", required=True)
    measuring.add_argument("--program", required=True)
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--rounds", type=int, default=3)
    measuring.set_defaults(do=measure)
    showing = commands.add_parser("tables")
    showing.add_argument("file")
    showing.set_defaults(do=tables)
    showing = commands.add_parser("l2-tables")
    showing.add_argument("file")
    showing.set_defaults(do=l2_tables)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
