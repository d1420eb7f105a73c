#!/usr/bin/env python3
"""Prints the tables of docs/results/fpga.md from the committed figures.

    fpga/tables.py shapes        cycles and times of attention beside a CPU core and an H200
    fpga/tables.py products      the same for products of INT8 matrices
    fpga/tables.py cells         resources and clock
    fpga/tables.py error         error against 64-bit floating point
    fpga/tables.py checks        what was checked
    fpga/tables.py faults        planted faults
"""

import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# For a tile that has not been placed.
ASSUMED_MHZ = 100


def load(path):
    return json.loads((ROOT / path).read_text())


def step(size, name):
    return load(f"data/ecp5/tiles/check-{size}.json")["steps"][name]["result"]


def clocks(tile):
    return [run["mhz"] for run in step(8, "fmax")["runs"].get(tile, [])]


def clock(tile):
    """The median clock in MHz, and how a time made with it is to be called."""
    found = clocks(tile)
    return (statistics.median(found), "estimated") if found else (ASSUMED_MHZ, f"at {ASSUMED_MHZ} MHz, assumed")


def stage(tile):
    """How far the runs of place and route came that gave the clock."""
    stages = {run.get("stage", "routed") for run in step(8, "fmax")["runs"].get(tile, [])}
    return " and ".join(sorted(stages)) or "not placed"


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + " ---: |" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def duration(us):
    """Microseconds for people: three digits."""
    unit, value = ("s", us / 1e6) if us >= 1e6 else ("ms", us / 1e3) if us >= 1e3 else ("µs", us) if us >= 1 else ("ns", 1e3 * us)
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"


def peers(**what):
    """The rows of a shape on the CPU and on the GPU."""
    same = lambda row: all(row.get(key) == value for key, value in what.items())
    cpu = next(row for row in load("data/ecp5/tiles/cpu.json")["rows"] if same(row))
    gpu = next(row for row in load("data/h200/fpga/gpu.json")["rows"] if same(row))
    return statistics.median(cpu["us"]), gpu


def shapes():
    mhz, called = clock("attention")
    rows = []
    for shape in step(8, "model")["shapes"]:
        length, causal = shape["length"], shape["causal"]
        cpu, gpu = peers(kind="attention", length=length, causal=causal)
        rows.append((f"{length:,}", "causal" if causal else "full", f"{shape['cycles']:,}", f"{100 * shape['utilization']:.1f}%",
                     duration(shape["cycles"] / mhz), duration(cpu), duration(gpu["eager"]["median"]),
                     duration(gpu["graph"]["median"]), duration(gpu["transfer"]["median"]), duration(gpu["saturated"]["us"])))
    table(("length", "mask", "cycles (computed)", "multipliers busy", f"tile ({called})", "CPU core, f32", "H200, one call",
           "H200, graph", "H200, graph and copies", "H200, saturated"), rows)


def products():
    mhz, called = clock("matmul")
    rows = []
    for size in (64, 256, 1024):
        cycles = (size // 8) ** 2 * size + 8 + 4
        cpu, gpu = peers(kind="product", size=size)
        rows.append((f"{size:,}", f"{cycles:,}", f"{100 * (size // 8) ** 2 * size / cycles:.1f}%", duration(cycles / mhz), duration(cpu),
                     duration(gpu["eager"]["median"]), duration(gpu["graph"]["median"]), duration(gpu["saturated"]["us"])))
    table(("size", "cycles (computed)", "multipliers busy", f"tile ({called})", "CPU core, INT8", "H200, one call", "H200, graph",
           "H200, saturated"), rows)


def cells():
    rows = []
    for tile, used in step(8, "fmax")["cells"].items():
        mhz = clocks(tile)
        shown = (f"{statistics.median(mhz):.1f}", f"{min(mhz):.1f} to {max(mhz):.1f}") if mhz else ("", "")
        rows.append((tile, used["MULT18X18D"], used.get("DP16KD", 0), f"{used['LUT4']:,}", f"{used['CCU2C']:,}",
                     f"{used['TRELLIS_FF']:,}", *shown, len(mhz), stage(tile)))
    table(("tile", "multipliers (of 156)", "block memories (of 208)", "LUT4", "carry cells (two LUTs each)", "flip-flops (of 83,640)",
           "Fmax, MHz, median", "range", "seeds", "clock known after"), rows)


def error():
    rows = [(row["head"], f"{row['tile']['relative']:.5f}", f"{row['quantization']['relative']:.5f}", f"{row['ratio']:.3f}",
             f"{row['arithmetic']['relative']:.5f}", f"{row['tile']['largest']:.4f}") for row in step(8, "model")["errors"]]
    table(("head", "tile", "INT8 inputs by themselves", "ratio", "fixed point by itself", "largest, tile"), rows)


def checks():
    rows = []
    for size in (4, 8, 16):
        path = f"data/ecp5/tiles/check-{size}.json"
        steps = load(path)["steps"] if (ROOT / path).exists() else {}
        rows += [(f"{size} x {size}", name, found["verdict"], said(name, found)) for name, found in steps.items()]
    table(("size", "step", "verdict", "what ran"), rows)


def said(name, found):
    """What a step found, in a few words."""
    result = found.get("result")
    if not result:
        return found["why"].splitlines()[0]
    if name == "model":
        return f"{result['jobs']} jobs, {result['tiles']} tiles of products"
    if name == "formal":
        return f"{len(result['proofs'])} proofs"
    if name == "fmax":
        placed = [f"{tile}: {len(runs)} of 5 seeds" for tile, runs in result["runs"].items()]
        return "; ".join(placed + [f"{tile}: {count} multipliers do not fit" for tile, count in result["too_large"].items()])
    return "no warning" if name == "lint" else f"{result['plays']} plays, {result['cycles']:,} cycles"


def faults():
    rows = [(number, row["fault"], f"`{row['file']}`", (row["found"] or "**not found**").split(": cycle")[0].replace("|", "\\|"))
            for number, row in enumerate(load("data/ecp5/tiles/faults.json")["rows"], 1)]
    table(("", "fault", "file", "found by"), rows)


if __name__ == "__main__":
    commands = {function.__name__: function for function in (shapes, products, cells, error, checks, faults)}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]]()
