"""What `apex run --fast` gains: PyTorch programs bare and with the launch queue, interleaved, outputs compared.

    fast.py measure --apex BIN --out DIR [--processes N] [--windows N] [--limit S] [PROGRAM]…
    fast.py tables FILE

A program (programs/fast.py) runs in three processes at once: bare, under `apex run`, and under `apex run --fast`. They take turns:
while one takes a window of steps, the others wait for theirs. All take the same number of steps and hash what they computed. Raw
figures go to DIR/fast.json after each program, so a run that is cut short leaves what it has; another run adds to the file. `tables` prints the table of a file of raw
figures: docs/fast.md shows it, and a test compares (xtask/tests/figures.rs).
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

# What each program is, and how many steps its window has: about a second without the queue.
PROGRAMS = {
    "decode": ("transformer decode step, 12 layers", 300),
    "mlp": ("MLP training, unfused AdamW", 150),
    "cnn": ("small CNN training", 300),
    "gpt2": ("GPT-2 training step (Hugging Face)", 25),
    "generate": ("GPT-2 generating 64 tokens", 2),
    "resnet50": ("ResNet-50 training step (timm), batch 16", 40),
    "matmul": ("large matrix products", 500),
    "graphs": ("CUDA graph of the decode step", 1500),
    "waits": ("one launch per synchronisation", 500),
    "compiled": ("compiled decode step", 800),
}
# What is before a program's command, but for the folder of the session.
MODES = {"bare": None, "recorded": ["run", "--quiet"], "fast": ["run", "--quiet", "--fast"]}
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
            process.window(max(steps // 4, 1))
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


def interval(ratios):
    """The 95% bootstrap interval of the median."""
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def tables(file):
    data = json.loads(Path(file).read_text())
    rows = []
    for name, (title, _) in PROGRAMS.items():
        runs = [row for row in data["runs"] if row["program"] == name and "error" not in row]
        times = {mode: [ms for row in runs for ms in row[mode]["windows_ms"]] for mode in MODES}
        if not times["bare"]:
            continue
        medians = [f"{statistics.median(times[mode]):.2f}" for mode in MODES]
        gains = [faster(times["bare"], times[mode]) for mode in ("fast", "recorded")]
        rows.append([title, *medians, *gains, f"{len(times['bare'])} ({len(runs)})", same_bits(runs)])
    head = ["program", "bare, ms", "recorded, ms", "`--fast`, ms", "`--fast`: times faster", "recorded: times faster", "windows (processes)", "same bits"]
    print(table(head, rows))


def faster(bare, other):
    """The median of the ratios of windows that took turns, and its 95% interval."""
    ratios = [before / after for before, after in zip(bare, other, strict=True)]
    low, high = interval(ratios)
    return f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"


def same_bits(runs):
    if len({row["bare"]["hash"] for row in runs}) > 1:
        return "differ without APEX, too"
    return "yes" if all(row["bare"]["hash"] == row[mode]["hash"] for row in runs for mode in MODES) else "**no**"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--apex", required=True)
    measuring.add_argument("--out", required=True)
    measuring.add_argument("--processes", type=int, default=4)
    measuring.add_argument("--windows", type=int, default=2)
    measuring.add_argument("--limit", type=float, default=500.0)
    measuring.add_argument("programs", nargs="*", metavar="PROGRAM")
    showing = commands.add_parser("tables")
    showing.add_argument("file")
    options = parser.parse_args()
    if options.command == "measure":
        measure(options)
    else:
        tables(options.file)


main()
