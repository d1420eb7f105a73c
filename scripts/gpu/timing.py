"""How far are APEX's GPU durations from CUPTI's? Per kernel, on programs whose kernels hardly vary.

    timing.py --build DIR --cupti LIB --apex BIN --work DIR --out DIR

Each program runs once under CUPTI, once under APEX with sampled timing and once with all launches timed: never two at
once, since each disturbs the other. Compared are medians of one kernel in one configuration. Writes OUT/timing.json and
OUT/timing.md.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy

import observers
from figures import table

PROGRAMS = Path(__file__).parent / "programs"
LEAST_RUNS = 20


def observed(name, command, observer, work):
    """Rows of one run, by configuration."""
    folder = work / name
    folder.mkdir(parents=True)
    subprocess.run(
        observer.wrap(command, folder),
        env=os.environ | observer.environment(folder),
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )
    if isinstance(observer, observers.Apex):
        return {observers.shape(r): r for r in observer.rows(folder) if r["gpu"]}
    return {observers.shape(r): r for r in observer.rows(folder) if int(r["count"]) >= LEAST_RUNS}


def main():
    parser = argparse.ArgumentParser()
    for name in ("build", "cupti", "apex", "work", "out"):
        parser.add_argument(f"--{name}", type=observers.absolute, required=True)
    a = parser.parse_args()
    programs = {f"durations {mode}": [str(a.build / "durations"), mode] for mode in ("queued", "alone", "mixed")}
    programs["torch loop"] = [sys.executable, str(PROGRAMS / "torch_loop.py"), "20"]
    modes = {
        "cupti": observers.Cupti(a.cupti),
        "sampled": observers.Apex(a.apex, "--quiet"),
        "all": observers.Apex(a.apex, "--quiet", "--timing", "all"),
    }
    raw, text = [], "Medians of one kernel in one configuration, us. `n`: samples that count.\n"
    for program, command in programs.items():
        runs = {m: observed(f"timing-{program.replace(' ', '-')}-{m}", command, o, a.work) for m, o in modes.items()}
        rows = []
        for key, seen in runs["cupti"].items():
            row = {
                "program": program,
                "kernel": key,
                "cupti_ns": float(seen["median_ns"]),
                "p10": float(seen["p10_ns"]),
                "p90": float(seen["p90_ns"]),
            }
            for mode in ("sampled", "all"):
                gpu = runs[mode].get(key, {}).get("gpu")
                if gpu:
                    row[mode] = gpu
                    row[f"{mode}_ns"] = gpu["each"]["median_ns"]
            rows.append(row)
        raw += rows
        rows.sort(key=lambda r: r["cupti_ns"])
        text += f"\n### {program}\n\n{summary(rows)}\n"
        text += table(
            ["kernel", "CUPTI", "p10 .. p90", "sampled", "n", "error", "all", "n", "error"], [line(r) for r in rows[:40]]
        )
        (a.out / "timing.json").write_text(json.dumps(raw))
        (a.out / "timing.md").write_text(text)
    print(text)


def error(row, mode):
    return row[f"{mode}_ns"] - row["cupti_ns"]


def line(row):
    name, gx, gy, gz, bx, by, bz, _ = row["kernel"]
    cells = [
        f"`{name[:48]}` ({gx},{gy},{gz})x({bx},{by},{bz})",
        f"{row['cupti_ns'] / 1e3:.2f}",
        f"{row['p10'] / 1e3:.2f} .. {row['p90'] / 1e3:.2f}",
    ]
    for mode in ("sampled", "all"):
        if f"{mode}_ns" in row:
            off = error(row, mode)
            cells += [
                f"{row[f'{mode}_ns'] / 1e3:.2f}",
                row[mode]["each"]["count"],
                f"{off / 1e3:+.2f} ({off / row['cupti_ns']:+.1%})",
            ]
        else:
            cells += ["-", 0, "-"]
    return cells


def summary(rows):
    parts = []
    for mode in ("sampled", "all"):
        timed = [r for r in rows if f"{mode}_ns" in r]
        if timed:
            off = numpy.abs([error(r, mode) for r in timed])
            relative = off / [r["cupti_ns"] for r in timed]
            parts.append(
                f"{mode}: {len(timed)} of {len(rows)} kernels timed; absolute error median {numpy.median(off) / 1e3:.2f} us, worst "
                f"{off.max() / 1e3:.2f} us; relative median {numpy.median(relative):.1%}, worst {relative.max():.1%}."
            )
    return " ".join(parts) + "\n"


if __name__ == "__main__":
    main()
