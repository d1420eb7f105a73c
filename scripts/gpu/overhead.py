"""What recording costs: a launch, a training loop of small kernels, the start of a program.

    overhead.py launch|loop|startup --build DIR --cupti LIB --apex BIN --libcuda LIB --work DIR --out DIR

Every comparison is between runs that were interleaved in random order. Raw figures go to OUT/overhead-<part>.json, the
tables to OUT/overhead-<part>.md. Each round is written when it ends: a run that is cut short leaves what it has.
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
from figures import estimate, shown, table

PROGRAMS = Path(__file__).parent / "programs"
QUANTILES = ("p50_ns", "p90_ns", "p99_ns", "mean_ns")


class Bench:
    def __init__(self, arguments):
        self.a = arguments
        apex = lambda *options: observers.Apex(arguments.apex, "--quiet", *options)
        self.modes = {
            "bare": observers.Nothing(),
            "apex, timing off": apex("--timing", "off"),
            "apex": apex(),
            "CUPTI": observers.Cupti(arguments.cupti),
        }

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

    def save(self, part, raw, text=None):
        (self.a.out / f"overhead-{part}.json").write_text(json.dumps(raw))
        if text:
            (self.a.out / f"overhead-{part}.md").write_text(text)
            print(text)


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
            for mode in bench.shuffled():
                output, _ = bench.run(command, mode)
                raw += [row | {"program": program, "mode": mode, "round": round_} for row in csv.DictReader(io.StringIO(output))]
        bench.save("launch", raw)

    def values(program, mode, path, quantile):
        return numpy.array([float(r[quantile]) for r in raw if (r["program"], r["mode"], r["path"]) == (program, mode, path)])

    text, rows = "", []
    for program in list(programs)[:2]:
        for mode in bench.modes:
            if mode != "CUPTI":
                added = [
                    shown(estimate(values(program, mode, "linked", q) - values(program, mode, "direct", q))) for q in QUANTILES
                ]
                rows.append([program, mode, *added])
    text += "Added to a launch, ns: linked symbol less the driver's own address, in turns in one process; 95% interval over\n"
    text += f"segments of 10,000 calls ({a.rounds * 100_000:,} calls of each). In a bare process both are the same function.\n\n"
    text += table(["call", "mode", "median", "p90", "p99", "mean"], rows)
    rows = []
    for program in programs:
        path = "runtime" if program == "<<<>>>" else "linked"
        for mode in bench.modes:
            cells = [f"{values(program, mode, path, q).mean():.0f}" for q in QUANTILES]
            medians = [values(program, m, path, "p50_ns").reshape(a.rounds, -1).mean(axis=1) for m in (mode, "bare")]
            added = "" if mode == "bare" else shown(estimate(medians[0] - medians[1]), 0)
            rows.append([program, mode, *cells, added])
    text += "\nThe calls as the program sees them, ns, and the median's difference to bare between processes (95% interval over\n"
    text += f"{a.rounds} rounds).\n\n"
    text += table(["call", "mode", "median", "p90", "p99", "mean", "added to the median"], rows)
    bench.save("launch", raw, text)


def loop(bench):
    """A PyTorch training loop of small kernels, in pairs of processes; and one process that switches recording."""
    a = bench.a
    command = [sys.executable, PROGRAMS / "torch_loop.py", 12]
    fixed = ["setarch", "--addr-no-randomize"] if shutil.which("setarch") else []
    raw = {mode: {} for mode in bench.modes}
    switched = []
    bench.run([*fixed, *command], "bare")  # fills the file cache

    def result():
        bare = raw["bare"]
        rows = [["bare", len(bare), f"{numpy.median(list(bare.values())):.3f}", ""]]
        for mode in list(bench.modes)[1:]:
            pairs = sorted(raw[mode].keys() & bare.keys())
            if len(pairs) > 1:
                change = estimate([raw[mode][i] / bare[i] - 1 for i in pairs])
                rows.append([mode, len(pairs), f"{numpy.median([raw[mode][i] for i in pairs]):.3f}", shown(change, 2, "%", 100)])
        text = (
            "12 x (Linear 256, LayerNorm, GELU), batch 64, AdamW unfused: median ms of a step over a process's 12 chunks of 20\n"
        )
        text += "steps, and the mean of the paired relative differences to bare (95% interval over pairs).\n\n"
        text += table(["mode", "pairs", "ms per step", "slower than bare by"], rows)
        if switched:
            change = estimate([on / off - 1 for on, off in switched])
            text += "\nIn one process, recording switched on and off by `apex ctl` before every chunk, sampled timing: slower when on by\n"
            text += f"{shown(change, 2, '%', 100)} ({len(switched)} pairs of chunks).\n"
        return text

    for i in range(a.pairs):
        # The others ride along with every third pair.
        for mode in bench.shuffled(None if i % 3 == 0 else ("bare", "apex")):
            output, _ = bench.run([*fixed, *command], mode)
            raw[mode][i] = float(numpy.median(json.loads(output)))
        bench.save("loop", {"pairs": raw})
    for _ in range(3):
        folder = Path(tempfile.mkdtemp(dir=a.work))
        apex = observers.Apex(a.apex, "--quiet")
        control = [f"{a.apex}/apex ctl {state} {folder}/session" for state in ("on", "off")]
        done = subprocess.run(
            apex.wrap([*map(str, command[:2]), "60", *control], folder), capture_output=True, check=True, timeout=120
        )
        chunks = json.loads(done.stdout)
        switched += list(zip(chunks[0::2], chunks[1::2]))
        shutil.rmtree(folder)
        bench.save("loop", {"pairs": raw, "switched": switched})
    bench.save("loop", {"pairs": raw, "switched": switched}, result())


def startup(bench):
    """Wall time of a whole program: one kernel, and no CUDA at all."""
    raw = []
    programs = {"one kernel": [bench.a.build / "one_kernel"], "no CUDA (true)": ["true"]}
    for round_ in range(bench.a.rounds + 2):
        for program, command in programs.items():
            for mode in bench.shuffled():
                if program == "one kernel" or mode != "CUPTI":
                    _, seconds = bench.run(command, mode)
                    raw.append({"program": program, "mode": mode, "round": round_, "ms": seconds * 1e3})
    rows = []
    for program in programs:
        times = {m: [r["ms"] for r in raw if (r["program"], r["mode"]) == (program, m) and r["round"] >= 2] for m in bench.modes}
        for mode in filter(times.get, bench.modes):
            added = "" if mode == "bare" else shown(estimate(numpy.subtract(times[mode], times["bare"]), numpy.median))
            rows.append([program, mode, f"{numpy.median(times[mode]):.1f}", added])
    text = (
        "Wall time of a whole program, ms: median, and the median of what is added to bare in the same round (95% interval).\n\n"
    )
    bench.save("startup", raw, text + table(["program", "mode", "ms", "added"], rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["launch", "loop", "startup"])
    for name in ("build", "cupti", "apex", "libcuda", "work", "out"):
        parser.add_argument(f"--{name}", type=observers.absolute, required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=21)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    {"launch": launch, "loop": loop, "startup": startup}[arguments.part](Bench(arguments))


if __name__ == "__main__":
    main()
