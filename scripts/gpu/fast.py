"""What `apex run --fast` gains: PyTorch programs bare and with the launch queue, interleaved, outputs compared. And what recording costs.

    fast.py measure --apex BIN --out DIR [--processes N] [--windows N] [--limit S] [PROGRAM]…
    fast.py recording --apex BIN --out DIR [--windows N] [PROGRAM]…
    fast.py million --apex BIN --out DIR [--rounds N] COMMAND…
    fast.py tables|recording-table|million-table FILE

A program (programs/fast.py) runs in four processes at once: bare, under `apex run`, and under `apex run` with `--fast` and with
`--fast=batch`. They take turns: while one takes a window of steps, the others wait for theirs. All take the same number of steps and hash what they computed. Raw
figures go to DIR/fast.json after each program, so a run that is cut short leaves what it has; another run adds to the file.

`recording` says what recording alone costs a launch in a real program: one process under `apex run`, in which recording is switched off
and on from window to window. `million` times the launches of a program that makes a million of them (programs/million.c).

`tables`, `recording-table` and `million-table` print the table of a file of raw figures: docs/results/fast-h200.md shows them, and a test
compares (xtask/tests/figures.rs).
"""

import argparse
import datetime
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import table

# What each program is, and how many steps its window has: about half a second without the queue.
PROGRAMS = {
    "decode": ("transformer decode step, 12 layers", 150),
    "mlp": ("MLP training, unfused AdamW", 75),
    "cnn": ("small CNN training", 150),
    "gpt2": ("GPT-2 training step (Hugging Face)", 12),
    "generate": ("GPT-2 generating 64 tokens", 1),
    "resnet50": ("ResNet-50 training step (timm), batch 16", 20),
    "matmul": ("large matrix products", 250),
    "graphs": ("CUDA graph of the decode step", 750),
    "waits": ("one launch per synchronisation", 250),
    "compiled": ("compiled decode step", 400),
}
# What is before a program's command, but for the folder of the session.
MODES = {"bare": None, "recorded": ["run", "--quiet"], "fast": ["run", "--quiet", "--fast"], "batch": ["run", "--quiet", "--fast=batch"]}
PROGRAM = Path(__file__).parent / "programs" / "fast.py"


class Process:
    """A program that takes a window of steps when it is asked."""

    def __init__(self, name, mode, apex):
        self.apex, self.folder = apex, Path(tempfile.mkdtemp())
        command = [sys.executable, str(PROGRAM), name]
        if MODES[mode]:
            command = [apex, *MODES[mode], "-o", str(self.folder / "session"), "--", *command]
        self.errors = (self.folder / "errors").open("w+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors, "text": True}
        self.process = subprocess.Popen(command, env=os.environ | {"PYTHONHASHSEED": "0"}, **pipes)

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError(f"ended with {self.process.wait()}: {self.errors.read()[-600:]}")
        return line.strip()

    def window(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return float(self.line())

    def launches_in(self, steps):
        """Kernel launches of a step, from those that a window adds to the session, while recording is on."""
        session = str(self.folder / "session")
        subprocess.run([self.apex, "ctl", "on", session], check=True, capture_output=True)
        before = self.launches()
        self.window(steps)
        return (self.launches() - before) / steps

    def launches(self):
        """Kernel launches in the session so far."""
        report = [self.apex, "report", "--json", str(self.folder / "session")]
        done = subprocess.run(report, capture_output=True, text=True, check=True)
        return sum(process["launches"] for process in json.loads(done.stdout)["profile"]["processes"])

    def finish(self):
        """The hash of what was computed, and what the queue did."""
        self.process.stdin.close()
        digest = self.line()
        status, queue = self.process.wait(), None
        if (self.folder / "session").exists():
            report = [self.apex, "report", "--json", str(self.folder / "session")]
            done = subprocess.run(report, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                processes = json.loads(done.stdout)["profile"]["processes"]
                queue = [process["queue"] for process in processes if process.get("queue")]
        return {"hash": digest, "status": status} | ({"queue": queue} if queue else {})

    def end(self):
        self.process.kill()
        self.process.wait()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def in_turns(name, options):
    """The processes of a program take turns; returns their windows and hashes, or the error of one."""
    steps = PROGRAMS[name][1]
    processes = {mode: Process(name, mode, options.apex) for mode in random.sample(list(MODES), len(MODES))}
    row = {"program": name}
    try:
        for process in processes.values():
            process.line()
        for process in processes.values():
            process.window(max(steps // 2, 1))
        row |= {mode: {"windows_ms": []} for mode in processes}
        for _ in range(options.windows):
            for mode in random.sample(list(MODES), len(MODES)):
                row[mode]["windows_ms"].append(processes[mode].window(steps))
        for mode, process in processes.items():
            row[mode] |= process.finish()
    except (RuntimeError, OSError, ValueError) as error:
        row["error"] = str(error)
    finally:
        for process in processes.values():
            process.end()
    return row


def machine():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    import torch

    return {"gpu": gpu, "torch": torch.__version__, "cores": os.cpu_count(), "date": str(datetime.date.today())}


def measure(options):
    names = options.programs or list(PROGRAMS)
    file = Path(options.out) / "fast.json"
    result = json.loads(file.read_text()) if file.exists() else {"machine": machine(), "commands": [], "runs": []}
    asked = ["--processes", str(options.processes), "--windows", str(options.windows), *options.programs]
    result["commands"].append(" ".join(["fast.py", "measure", *asked]))
    ends = time.monotonic() + options.limit
    for _ in range(options.processes):
        for name in random.sample(names, len(names)):
            if time.monotonic() > ends:
                return
            row = in_turns(name, options)
            print(json.dumps(row), flush=True)
            result["runs"].append(row)
            file.write_text(json.dumps(result, indent=1) + "\n")


def recording(options):
    """Windows of a recorded process, with recording switched off and on in turns."""
    runs = []
    for name in options.programs or ["decode", "mlp", "cnn"]:
        steps = PROGRAMS[name][1]
        process = Process(name, "recorded", options.apex)
        row = {"program": name, "steps": steps, "off_ms": [], "on_ms": []}
        try:
            process.line()
            process.window(steps)
            for _ in range(options.windows):
                for switch in random.sample(["off", "on"], 2):
                    subprocess.run([options.apex, "ctl", switch, str(process.folder / "session")], check=True, capture_output=True)
                    row[f"{switch}_ms"].append(process.window(steps))
            row["launches_per_step"] = process.launches_in(steps)
        except (RuntimeError, OSError, ValueError, subprocess.CalledProcessError) as error:
            row["error"] = str(error)
        finally:
            process.end()
        print(json.dumps(row), flush=True)
        runs.append(row)
        (Path(options.out) / "fast-recording.json").write_text(json.dumps({"machine": machine(), "runs": runs}, indent=1) + "\n")


def million(options):
    """A program of launches in a row: bare, recorded, with the queue and with batches, in turns."""
    rows = []
    for _ in range(options.rounds):
        for mode in random.sample(list(MODES), len(MODES)):
            folder = Path(tempfile.mkdtemp())
            before = [options.apex, *MODES[mode], "-o", str(folder / "session"), "--"] if MODES[mode] else []
            done = subprocess.run([*before, *options.command_line], capture_output=True, text=True, check=True)
            rows.append({"mode": mode} | json.loads(done.stdout))
            shutil.rmtree(folder, ignore_errors=True)
            print(json.dumps(rows[-1]), flush=True)
            (Path(options.out) / "fast-million.json").write_text(json.dumps({"machine": machine(), "runs": rows}, indent=1) + "\n")


def recording_table(file):
    rows = []
    for row in json.loads(Path(file).read_text())["runs"]:
        if "error" in row:
            continue
        off, on, launches = row["off_ms"], row["on_ms"], row["launches_per_step"]
        added = [(with_it - without) * 1e6 / launches for without, with_it in zip(off, on, strict=True)]
        percent = [(with_it / without - 1) * 100 for without, with_it in zip(off, on, strict=True)]
        cells = [f"{statistics.median(off):.3f}", f"{statistics.median(on):.3f}", f"{launches:.0f}"]
        rows.append([PROGRAMS[row["program"]][0], *cells, spread(percent, 1), spread(added, 0), len(off)])
    print(table(["program", "off, ms", "on, ms", "launches a step", "added, %", "added, ns a launch", "windows"], rows))


def million_table(file):
    runs = json.loads(Path(file).read_text())["runs"]
    rows = []
    titles = {"bare": "bare", "recorded": "`apex run`", "fast": "`apex run --fast`", "batch": "`apex run --fast=batch`"}
    for mode, title in titles.items():
        of_mode = [row for row in runs if row["mode"] == mode]
        if not of_mode:
            continue
        fields = ("p50_ns", "p90_ns", "p99_ns", "mean_ns", "total_ns_per_launch")
        rows.append([title, *(f"{statistics.median(row[field] for row in of_mode):.0f}" for field in fields), len(of_mode)])
    print(table(["", "median, ns", "p90", "p99", "mean", "until the last kernel ends, ns a launch", "runs"], rows))


def spread(values, digits):
    """The median and its 95% interval."""
    low, high = interval(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def interval(ratios):
    """The 95% bootstrap interval of the median."""
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def tables(file):
    data = json.loads(Path(file).read_text())
    # (Files of before there were batches have none.)
    modes = [mode for mode in MODES if any(mode in row for row in data["runs"])]
    rows = []
    for name, (title, _) in PROGRAMS.items():
        runs = [row for row in data["runs"] if row["program"] == name and "error" not in row]
        times = {mode: [ms for row in runs for ms in row.get(mode, {}).get("windows_ms", [])] for mode in modes}
        if not times["bare"]:
            continue
        medians = [f"{statistics.median(times[mode]):.2f}" if times[mode] else "-" for mode in modes]
        gains = [faster(times["bare"], times[mode]) if times[mode] else "-" for mode in ("fast", "recorded", "batch") if mode in modes]
        rows.append([title, *medians, *gains, f"{len(times['bare'])} ({len(runs)})", same_bits(runs, modes)])
    of_batches = [["`--fast=batch`, ms"], ["`--fast=batch`: times faster"]] if "batch" in modes else [[], []]
    times = ["bare, ms", "recorded, ms", "`--fast`, ms", *of_batches[0]]
    gains = ["`--fast`: times faster", "recorded: times faster", *of_batches[1]]
    print(table(["program", *times, *gains, "windows (processes)", "same bits"], rows))


def faster(bare, other):
    """The median of the ratios of windows that took turns, and its 95% interval."""
    return spread([before / after for before, after in zip(bare, other, strict=True)], 2)


def same_bits(runs, modes):
    if len({row["bare"]["hash"] for row in runs}) > 1:
        return "differ without APEX, too"
    return "yes" if all(row["bare"]["hash"] == row[mode]["hash"] for row in runs for mode in modes if mode in row) else "**no**"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--processes", type=int, default=1)
    measuring.add_argument("--windows", type=int, default=16)
    measuring.add_argument("--limit", type=float, default=500.0)
    measuring.add_argument("programs", nargs="*", metavar="PROGRAM")
    switching = commands.add_parser("recording")
    switching.add_argument("--windows", type=int, default=24)
    switching.add_argument("programs", nargs="*", metavar="PROGRAM")
    launching = commands.add_parser("million")
    launching.add_argument("--rounds", type=int, default=5)
    launching.add_argument("command_line", nargs="+", metavar="COMMAND")
    for measured in (measuring, switching, launching):
        measured.add_argument("--apex", required=True)
        measured.add_argument("--out", required=True)
    tabled = {"tables": tables, "recording-table": recording_table, "million-table": million_table}
    for name in tabled:
        commands.add_parser(name).add_argument("file")
    options = parser.parse_args()
    if options.command in tabled:
        tabled[options.command](options.file)
    else:
        {"measure": measure, "recording": recording, "million": million}[options.command](options)


main()
