"""What `apex run --fast` gains: PyTorch programs bare and with the launch queue, interleaved, outputs compared.

    fast.py measure --apex BIN --out DIR [--pairs N] [--seconds S] [--limit S] [PROGRAM]…
    fast.py tables FILE

A program is a process of its own (programs/fast.py), which prints the median of its steps and a hash of what it computed. The
pairs of all programs take turns, in random order. Raw figures go to DIR/fast.json after each run, so a run that is cut short leaves
what it has. `tables` prints the table of a file of raw figures: docs/fast.md shows it, and a test compares (xtask/tests/figures.rs).
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

PROGRAMS = {
    "decode": "transformer decode step, 12 layers",
    "mlp": "MLP training, unfused AdamW",
    "cnn": "small CNN training",
    "gpt2": "GPT-2 training step (Hugging Face)",
    "generate": "GPT-2 generating 64 tokens",
    "resnet50": "ResNet-50 training step (timm), batch 16",
    "matmul": "large matrix products",
    "graphs": "CUDA graph of the decode step",
    "waits": "one launch per synchronisation",
    "compiled": "compiled decode step",
}
PROGRAM = Path(__file__).parent / "programs" / "fast.py"


def run(name, mode, options):
    """Runs a program once; returns the median of its steps in ms, the hash, and what the queue did."""
    folder = Path(tempfile.mkdtemp())
    command = [sys.executable, str(PROGRAM), name, str(options.seconds)]
    if mode == "fast":
        command = [options.apex, "run", "--quiet", "--fast", "-o", str(folder / "session"), "--", *command]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    row = {"program": name, "mode": mode, "status": done.returncode}
    if done.returncode == 0:
        step, digest = done.stdout.split()
        row |= {"step_ms": float(step), "hash": digest}
    else:
        row["error"] = done.stderr[-600:]
    if mode == "fast" and done.returncode == 0:
        report = subprocess.run(
            [options.apex, "report", "--json", str(folder / "session")], capture_output=True, text=True, check=False
        )
        if report.returncode == 0:
            processes = json.loads(report.stdout)["profile"]["processes"]
            row["queue"] = [process["queue"] for process in processes if process.get("queue")]
    shutil.rmtree(folder, ignore_errors=True)
    return row


def machine():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    import torch

    return {"gpu": gpu, "torch": torch.__version__, "cores": os.cpu_count(), "date": str(datetime.date.today())}


def measure(options):
    names = options.programs or list(PROGRAMS)
    result = {"machine": machine(), "command": " ".join(sys.argv), "runs": []}
    ends = time.monotonic() + options.limit
    for pair in range(options.pairs):
        for name in random.sample(names, len(names)):
            for mode in random.sample(["bare", "fast"], 2):
                if time.monotonic() > ends:
                    return
                row = run(name, mode, options) | {"pair": pair}
                print(json.dumps(row), flush=True)
                result["runs"].append(row)
                (Path(options.out) / "fast.json").write_text(json.dumps(result, indent=1) + "\n")


def interval(ratios):
    """The 95% bootstrap interval of the median."""
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def tables(file):
    data = json.loads(Path(file).read_text())
    rows = []
    for name, title in PROGRAMS.items():
        runs = [row for row in data["runs"] if row["program"] == name and row["status"] == 0]
        step = {mode: {r["pair"]: r["step_ms"] for r in runs if r["mode"] == mode} for mode in ("bare", "fast")}
        ratios = [step["bare"][pair] / step["fast"][pair] for pair in step["bare"] if pair in step["fast"]]
        if not ratios:
            continue
        low, high = interval(ratios)
        median = {mode: statistics.median(step[mode].values()) for mode in step}
        same = "yes" if len({row["hash"] for row in runs}) == 1 else "**no**"
        rows.append(
            [title, f"{median['bare']:.2f}", f"{median['fast']:.2f}", f"{statistics.median(ratios):.2f}",
             f"{low:.2f} to {high:.2f}", str(len(ratios)), same]
        )  # fmt: skip
    head = ["program", "bare, ms", "`--fast`, ms", "times faster (median of pairs)", "95% interval", "pairs", "same bits"]
    print(table(head, rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--apex", required=True)
    measuring.add_argument("--out", required=True)
    measuring.add_argument("--pairs", type=int, default=8)
    measuring.add_argument("--seconds", type=float, default=1.5)
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
