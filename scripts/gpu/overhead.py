"""What recording costs: a launch, a training loop of small kernels, the start of a program.

    overhead.py launch|loop|switched|startup --build DIR --cupti LIB --apex BIN --libcuda LIB --work DIR --out DIR [--before BIN]
    overhead.py tables launch|loop|switched|startup FILE

Every comparison is between runs that were interleaved in random order. Raw figures go to OUT/overhead-<part>.json, the
tables to OUT/overhead-<part>.md. Each round is written when it ends: a run that is cut short leaves what it has. `tables`
prints the tables of a file of raw figures: the pages show them, and a test compares (xtask/tests/figures.rs). `--before`
is another build of APEX, which is a mode of its own.
"""

import argparse
import csv
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

import observers
from figures import estimate, read_results, shown, table

PROGRAMS = Path(__file__).parent / "programs"
QUANTILES = ("p50_ns", "p90_ns", "p99_ns", "mean_ns")
MODES = ("bare", "apex, timing off", "apex", "CUPTI", "apex, before")
WARM_UP_ROUNDS = 2


class Bench:
    def __init__(self, arguments):
        self.a = arguments
        apex = lambda *options: observers.Apex(arguments.apex, "--quiet", *options)
        observed = (observers.Nothing(), apex("--timing", "off"), apex(), observers.Cupti(arguments.cupti))
        self.modes = dict(zip(MODES[:4], observed, strict=True))
        if arguments.before:
            self.modes[MODES[4]] = observers.Apex(arguments.before, "--quiet")

    def run(self, command, mode):
        """Runs a command in a mode, in a folder of its own that is removed afterwards; returns its output and seconds."""
        folder = Path(tempfile.mkdtemp(dir=self.a.work))
        observer = self.modes[mode]
        environment = os.environ | {"PYTHONHASHSEED": "0"} | observer.environment(folder)
        began = time.perf_counter()
        done = subprocess.run(
            observer.wrap([str(c) for c in command], folder), env=environment, capture_output=True, timeout=120, check=False
        )
        seconds = time.perf_counter() - began
        shutil.rmtree(folder)
        if done.returncode:
            raise RuntimeError(f"{mode}: {command[0]}: exit status {done.returncode}: {done.stderr.decode()[-800:]}")
        return done.stdout.decode(), seconds

    def shuffled(self, modes=None):
        order = list(modes or self.modes)
        random.shuffle(order)
        return order

    def shuffled_some(self, round_):
        """All modes in every third round, else those that are compared first of all."""
        return self.shuffled(None if round_ % 3 == 0 else [m for m in self.modes if m in ("bare", "apex", "apex, before")])

    def save(self, part, raw):
        (self.a.out / f"overhead-{part}.json").write_text(json.dumps(raw))


def launch(bench):
    """cuLaunchKernel through the linked symbol against the driver's own address, in one process; and <<<>>>."""
    a = bench.a
    cubin = a.build / "kernels.cubin"
    programs = {
        "cuLaunchKernel, no arguments": [a.build / "launch_cost", cubin, a.libcuda, 0, 100_000],
        "cuLaunchKernel, 8 arguments": [a.build / "launch_cost", cubin, a.libcuda, 8, 100_000],
        "<<<>>>": [a.build / "launch_cost_runtime", 100_000],
    }
    raw = []
    for round_ in range(a.rounds):
        for program, command in programs.items():
            for mode in bench.shuffled_some(round_):
                output, _ = bench.run(command, mode)
                rows = csv.DictReader(io.StringIO(output))
                raw += [row | {"program": program, "mode": mode, "round": round_} for row in rows]
        bench.save("launch", raw)


def launch_tables(raw):
    """Both comparisons: two paths in one process, and what the program sees, between processes."""
    for row in raw:
        low, middle, high = (float(row[q]) for q in QUANTILES[:3])
        if not low <= middle <= high:
            raise ValueError(f"a row whose quantiles fall: {row}")
    programs = list(dict.fromkeys(row["program"] for row in raw))
    modes = [mode for mode in MODES if any(row["mode"] == mode for row in raw)]

    def values(program, mode, path, quantile):
        """The mean over the segments of each round's process."""
        found = {}
        for r in raw:
            if (r["program"], r["mode"], r["path"]) == (program, mode, path):
                found.setdefault(r["round"], []).append(float(r[quantile]))
        return {round_: numpy.mean(segments) for round_, segments in found.items()}

    def differences(some, others):
        return [some[round_] - others[round_] for round_ in some]

    rows = []
    for program in programs:
        path = "runtime" if program == "<<<>>>" else "linked"
        for mode in modes:
            cells = [f"{numpy.mean(list(values(program, mode, path, q).values())):.0f}" for q in QUANTILES]
            pairs = differences(*(values(program, m, path, "p50_ns") for m in (mode, "bare")))
            rows.append([program, mode, len(pairs), *cells, "" if mode == "bare" else shown(estimate(pairs), 0)])
    text = "A launch call as the program sees it, ns; and what the mode adds to the median, between the processes of a round\n"
    text += "(mean over interleaved rounds, with its 95% interval).\n\n"
    text += table(["call", "mode", "rounds", "median", "p90", "p99", "mean", "added to the median"], rows)

    rows = []
    for program in programs:
        for mode in modes:
            if mode != "CUPTI" and program != "<<<>>>":
                pairs = [differences(*(values(program, mode, path, q) for path in ("linked", "direct"))) for q in QUANTILES]
                rows.append([program, mode, *(shown(estimate(pair)) for pair in pairs)])
    text += "\nThe same inside one process, ns: the linked symbol less the driver's own address, in turns (mean over processes, with\n"
    text += "its 95% interval). In a bare process both are the same function: its row is the method's own error.\n\n"
    return text + table(["call", "mode", "median", "p90", "p99", "mean"], rows)


def loop(bench):
    """A PyTorch training loop of small kernels, in pairs of processes; and one process that switches recording."""
    a = bench.a
    command = [sys.executable, PROGRAMS / "torch_loop.py", 12]
    fixed = ["setarch", "--addr-no-randomize"] if shutil.which("setarch") else []
    raw = {mode: {} for mode in bench.modes}
    switched = []
    bench.run([*fixed, *command], "bare")  # fills the file cache
    for i in range(a.pairs):
        for mode in bench.shuffled_some(i):
            output, _ = bench.run([*fixed, *command], mode)
            raw[mode][str(i)] = float(numpy.median(json.loads(output)))
        bench.save("loop", {"pairs": raw, "switched": switched})
    for _ in range(3):
        switched += switched_chunks(bench, a.apex)
        bench.save("loop", {"pairs": raw, "switched": switched})


def switched_chunks(bench, binaries):
    """Milliseconds of a step in one process with recording on and off, by turns: pairs of chunks."""
    folder = Path(tempfile.mkdtemp(dir=bench.a.work))
    apex = observers.Apex(binaries, "--quiet")
    control = [f"{binaries}/apex ctl {state} {folder}/session" for state in ("on", "off")]
    command = [sys.executable, str(PROGRAMS / "torch_loop.py"), "60", *control]
    done = subprocess.run(apex.wrap(command, folder), capture_output=True, check=True, timeout=120)
    chunks = json.loads(done.stdout)
    shutil.rmtree(folder)
    return list(zip(chunks[0::2], chunks[1::2]))


def switched(bench):
    """The same loop in processes that switch recording, by turns with another build of APEX."""
    a = bench.a
    builds = {"apex": a.apex} | ({"apex, before": a.before} if a.before else {})
    raw = {build: [] for build in builds}
    for _ in range(a.rounds):
        for build in bench.shuffled(builds):
            raw[build] += switched_chunks(bench, builds[build])
        bench.save("switched", raw)


def switched_tables(raw):
    rows = []
    for build, pairs in raw.items():
        change = estimate([on / off - 1 for on, off in pairs])
        rows.append([build, len(pairs), f"{numpy.median([off for _, off in pairs]):.3f}", shown(change, 2, "%", 100)])
    text = "The same loop, recording switched on and off by `apex ctl` before every chunk, sampled timing: median ms of a step while\n"
    text += "it is off, and the mean of the paired relative differences (95% interval over pairs of chunks).\n\n"
    return text + table(["mode", "pairs", "ms per step", "slower when on by"], rows)


def loop_tables(raw):
    """Both comparisons: between processes, and inside one process."""
    pairs, bare = raw["pairs"], raw["pairs"]["bare"]
    rows = [["bare", len(bare), f"{numpy.median(list(bare.values())):.3f}", ""]]
    for mode in MODES[1:]:
        both = sorted(pairs.get(mode, {}).keys() & bare.keys(), key=int)
        if len(both) > 1:
            change = shown(estimate([pairs[mode][i] / bare[i] - 1 for i in both]), 2, "%", 100)
            rows.append([mode, len(both), f"{numpy.median([pairs[mode][i] for i in both]):.3f}", change])
    text = "12 x (Linear 256, LayerNorm, GELU), batch 64, AdamW unfused: median ms of a step over a process's 12 chunks of 20\n"
    text += "steps, and the mean of the paired relative differences to bare, between processes (95% interval over pairs).\n\n"
    text += table(["mode", "pairs", "ms per step", "slower than bare by"], rows)
    if raw["switched"]:
        change = estimate([on / off - 1 for on, off in raw["switched"]])
        text += "\nInside one process, recording switched on and off by `apex ctl` before every chunk, sampled timing: slower when\n"
        text += f"on by {shown(change, 2, '%', 100)} ({len(raw['switched'])} pairs of chunks).\n"
    return text


def startup(bench):
    """Wall time of a whole program: one kernel, and no CUDA at all."""
    raw = []
    programs = {"one kernel": [bench.a.build / "one_kernel"], "no CUDA (true)": ["true"]}
    for round_ in range(bench.a.rounds + WARM_UP_ROUNDS):
        for program, command in programs.items():
            for mode in bench.shuffled():
                if program == "one kernel" or mode != "CUPTI":
                    _, seconds = bench.run(command, mode)
                    raw.append({"program": program, "mode": mode, "round": round_, "ms": seconds * 1e3})
    bench.save("startup", raw)


def startup_tables(raw):
    raw = [row for row in raw if row["round"] >= WARM_UP_ROUNDS]
    rows = []
    for program in dict.fromkeys(row["program"] for row in raw):
        times = {m: [r["ms"] for r in raw if (r["program"], r["mode"]) == (program, m)] for m in MODES}
        for mode in filter(times.get, MODES):
            added = "" if mode == "bare" else shown(estimate(numpy.subtract(times[mode], times["bare"])))
            rows.append([program, mode, f"{numpy.median(times[mode]):.1f}", added])
    text = "Wall time of a whole program, ms: median, and the mean of what is added to bare in the same round (95% interval).\n\n"
    return text + table(["program", "mode", "ms", "added"], rows)


MEASURE = {"launch": launch, "loop": loop, "switched": switched, "startup": startup}
TABLES = {"launch": launch_tables, "loop": loop_tables, "switched": switched_tables, "startup": startup_tables}


def measure(part, options):
    parser = argparse.ArgumentParser()
    for name in ("build", "cupti", "apex", "libcuda", "work", "out"):
        parser.add_argument(f"--{name}", type=observers.absolute, required=True)
    parser.add_argument("--before", type=observers.absolute)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=21)
    arguments = parser.parse_args(options)
    arguments.work.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    MEASURE[part](Bench(arguments))
    text = TABLES[part](json.loads((arguments.out / f"overhead-{part}.json").read_text()))
    (arguments.out / f"overhead-{part}.md").write_text(text)
    print(text)


def main():
    what, *rest = sys.argv[1:] or [""]
    if what in MEASURE:
        measure(what, rest)
    elif what == "tables" and len(rest) == 2 and rest[0] in TABLES:
        print(TABLES[rest[0]](read_results(rest[1])), end="")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
