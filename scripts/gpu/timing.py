"""How far are APEX's GPU durations from CUPTI's? Per kernel, on programs whose kernels hardly vary.

    timing.py measure --build DIR --cupti LIB --apex BIN --work DIR --out DIR [--before BIN] [--rounds N]
    timing.py tables FILE
    timing.py kernels FILE PROGRAM

Each program runs twice under CUPTI, at first and at last, and between that under APEX with sampled timing and with all
launches timed, each by turns in several rounds: never two observers at once, since each disturbs the other. `--before` adds
another build of APEX with sampled timing. Compared are medians of one kernel in one configuration, of one run with
CUPTI's first: the second says how far CUPTI is from itself. Raw figures go to OUT/timing.json, the tables to OUT/timing.md.
`tables` prints the errors by size of the kernels, `kernels` the kernels of one program.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy

import observers
from figures import read_results, table

PROGRAMS = Path(__file__).parent / "programs"
LEAST_RUNS = 20
SAMPLED, ALL, BEFORE, AGAIN = "sampled", "all", "sampled, before", "CUPTI again"
MODES = (BEFORE, SAMPLED, ALL, AGAIN)
# Bounds of the sizes of kernels, us by CUPTI.
BOUNDS = (0, 2, 5, 20, 100, numpy.inf)


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


def compared(program, command, modes, work, rounds):
    """For each kernel of a program what CUPTI says, and what each mode says in each round."""
    run = lambda mode, n: observed(f"{program}-{mode}-{n}".replace(" ", "-").replace(",", ""), command, modes[mode], work)
    first = run(AGAIN, 0)
    runs = [{mode: run(mode, n) for mode in modes if mode != AGAIN} for n in range(1, rounds + 1)]
    last = run(AGAIN, 1)
    rows = []
    for key, seen in first.items():
        row = {"program": program, "kernel": key, "cupti": {q: float(seen[f"{q}_ns"]) for q in ("median", "p10", "p90")}}
        if key in last:
            row[AGAIN] = [{"median_ns": float(last[key]["median_ns"])}]
        for mode in modes:
            gpus = [r[mode][key]["gpu"] for r in runs if key in r.get(mode, {})]
            if gpus:
                row[mode] = [
                    {
                        "median_ns": g["each"]["median_ns"],
                        "samples": g["each"]["count"],
                        "basis": g["basis"],
                        "correction_ns": g["correction_ns"],
                        "timed": [g.get(f"{sort}_samples", 0) for sort in ("queued", "busy", "idle")],
                    }
                    for g in gpus
                ]
        rows.append(row)
    return rows


def errors(row, mode):
    """Differences to CUPTI in each round, ns."""
    return [run["median_ns"] - row["cupti"]["median"] for run in row.get(mode, ())]


def tables(raw):
    """Errors by size of the kernels, relative to CUPTI's median."""
    rows = []
    modes = [m for m in MODES if any(m in r for r in raw["rows"])]
    for program in dict.fromkeys(r["program"] for r in raw["rows"]):
        for low, high in zip(BOUNDS, BOUNDS[1:]):
            among = [r for r in raw["rows"] if r["program"] == program and low <= r["cupti"]["median"] / 1e3 < high]
            if not among:
                continue
            size = f"{low} to {high}" if high < numpy.inf else f"{low} and more"
            cells = []
            for mode in modes:
                relative = numpy.array([numpy.abs(errors(r, mode)).mean() / r["cupti"]["median"] for r in among if mode in r])
                missing = f" ({len(among) - len(relative)} not timed)" if len(relative) < len(among) else ""
                worst = f"{numpy.median(relative):.1%}, {relative.max():.1%}" if len(relative) else "-"
                cells.append(worst + missing)
            rows.append([program, size, len(among), *cells])
    text = f"{raw['made']}\nErrors of a kernel's median duration, relative to CUPTI's: median and worst of the kernels of a size, of each the mean\n"
    text += "over the rounds. The last column is CUPTI's own: its second run against its first.\n\n"
    return text + table(["program", "kernels of, us", "kernels", *modes], rows)


def kernels(raw, program):
    """Each kernel of a program, the mean over the rounds."""
    modes = [m for m in MODES if any(m in r for r in raw["rows"]) and m != AGAIN]
    rows = []
    for row in sorted((r for r in raw["rows"] if r["program"] == program), key=lambda r: r["cupti"]["median"]):
        name, gx, gy, gz, bx, by, bz, _ = row["kernel"]
        cells = [f"`{name[:48]}` ({gx},{gy},{gz})x({bx},{by},{bz})", f"{row['cupti']['median'] / 1e3:.2f}"]
        cells.append(f"{row['cupti']['p10'] / 1e3:.2f} .. {row['cupti']['p90'] / 1e3:.2f}")
        for mode in modes:
            runs = row.get(mode, ())
            if not runs:
                cells += ["-", 0, "-"]
                continue
            off = numpy.mean(errors(row, mode))
            cells.append(f"{numpy.mean([r['median_ns'] for r in runs]) / 1e3:.2f}")
            cells.append(f"{numpy.mean([r['samples'] for r in runs]):.0f} {'/'.join(sorted({r['basis'] for r in runs}))}")
            cells.append(f"{off / 1e3:+.2f} ({off / row['cupti']['median']:+.1%})")
        rows.append(cells)
    text = f"{program}: medians of one kernel in one configuration, us; samples that count, and how they came about.\n\n"
    return text + table(["kernel", "CUPTI", "p10 .. p90", *(c for mode in modes for c in (mode, "n", "error"))], rows)


def measure(options):
    parser = argparse.ArgumentParser()
    for name in ("build", "cupti", "apex", "work", "out"):
        parser.add_argument(f"--{name}", type=observers.absolute, required=True)
    parser.add_argument("--before", type=observers.absolute)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args(options)
    programs = {"torch loop": [sys.executable, str(PROGRAMS / "torch_loop.py"), "20"]}
    programs |= {f"durations {mode}": [str(a.build / "durations"), mode] for mode in ("queued", "alone", "mixed")}
    modes = {SAMPLED: observers.Apex(a.apex, "--quiet"), ALL: observers.Apex(a.apex, "--quiet", "--timing", "all")}
    if a.before:
        modes = {BEFORE: observers.Apex(a.before, "--quiet")} | modes
    modes |= {AGAIN: observers.Cupti(a.cupti)}
    device = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    made = subprocess.run(device, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    date = subprocess.run(["date", "-u", "+%F"], capture_output=True, text=True, check=True).stdout.strip()
    raw = {"made": f"{made.replace(', ', ', driver ')}, {date}.", "command": "scripts/gpu/timing.sh", "rows": []}
    for program, command in programs.items():
        try:
            raw["rows"] += compared(program, command, modes, a.work, a.rounds)
        except (RuntimeError, subprocess.SubprocessError) as problem:
            print(f"{program}: {problem}", file=sys.stderr)
        (a.out / "timing.json").write_text(json.dumps(raw))
        text = "\n".join([tables(raw), *(kernels(raw, p) for p in programs)])
        (a.out / "timing.md").write_text(text)
    print(text)


def main():
    what, *rest = sys.argv[1:] or [""]
    if what == "measure":
        measure(rest)
    elif what == "tables" and len(rest) == 1:
        print(tables(read_results(rest[0])), end="")
    elif what == "kernels" and len(rest) == 2:
        print(kernels(read_results(rest[0]), rest[1]), end="")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
