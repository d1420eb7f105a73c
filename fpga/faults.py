#!/usr/bin/env python3
"""Plants faults into the RTL and the model, one at a time, and shows which check finds each.

A fault is a text of a file and what replaces it. One in the RTL goes into a copy of the RTL, one in the model into the file
itself for as long as its check runs, because cargo builds the crate only where it lies. A fault is found if `fpga/check` fails
with it (tiles of 4 x 4 and rows of 32, on Icarus), or the model's own tests do. A fault whose text does not occur exactly once
is an error: the list has to follow the code.

    fpga/faults.py                         every fault, and the unchanged files first
    fpga/faults.py --only carry,late       those whose names contain one of these words
    fpga/faults.py --json data/ecp5/tiles/faults.json

exit code: 0 if every fault is found and the unchanged files pass, 1 if not, 2 if the list does not fit the files
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# Name, file, the text, what replaces it, and the steps that run.
FAULTS = (
    ("first term is added to the sum of the tile before", "rtl/mac_array.sv",
     "(begins[1] ? {ACC_W{1'b0}} : total)", "total", "icarus"),
    ("products are unsigned", "rtl/mac_array.sv",
     "logic signed [B_W-1:0] right;", "logic [B_W-1:0] right;", "icarus"),
    ("accumulators of the attention tile are a bit too narrow for -128 x -128", "rtl/attention_tile.sv",
     "localparam int S_W = 16 + LOG_D;", "localparam int S_W = 14 + LOG_D;", "icarus"),
    ("queue takes a word when it is full", "rtl/stream_fifo.sv",
     "assign in_ready = !count[LOG_DEPTH];", "assign in_ready = 1'b1;", "formal"),
    ("keys are accepted before the scores have been read", "rtl/attention_tile.sv",
     "(part == KEYS && !scores_unread)", "(part == KEYS)", "icarus"),
    ("causal mask hides the key of the row's own position", "rtl/attention_tile.sv",
     "$signed({2'b00, key}) > (P_W+1)'(first_position)", "$signed({2'b00, key}) >= (P_W+1)'(first_position)", "icarus"),
    ("maximum is the floor of the largest logarithm, not the ceiling", "rtl/softmax_lane.sv",
     "+ $signed({{(M_W-1){1'b0}}, |largest[9:0]});", ";", "icarus"),
    ("late maxima: sums are not shifted by the high bits", "rtl/attention_tile.sv",
     ">>> {shift[5:3], 3'b000};", ">>> 0;", "icarus"),
    ("masked keys take part in the maximum", "rtl/softmax_lane.sv",
     "if (is_max[6] && !is_masked[6] && (max_at[6] == 0 || !any || t_6 > largest)) largest <= t_6;",
     "if (is_max[6] && (max_at[6] == 0 || !any || t_6 > largest)) largest <= t_6;", "icarus"),
    ("weights are not rounded", "rtl/softmax_lane.sv",
     "doubled_5[16:1] + 16'(doubled_5[0])", "doubled_5[16:1]", "icarus"),
    ("results are read before the last sums are written", "rtl/attention_tile.sv",
     "part == RESULTS && are_divided && is_value == 0", "part == RESULTS && are_divided", "icarus"),
    ("result queue is filled without regard to its room", "rtl/attention_tile.sv",
     "assign reads_result = results_run && room != 0;", "assign reads_result = results_run;", "icarus"),
    ("a reset leaves the order of beats where it was", "rtl/attention_tile.sv",
     "        if (rst) begin\n            part <= QUERIES;\n            element <= 0;\n        end else begin",
     "        if (rst) begin\n            part <= QUERIES;\n        end else begin", "icarus"),
    ("a row of the matrix tile leaves although nobody takes it", "rtl/matmul_tile.sv",
     "else if (out_valid && out_ready) leaving <= leaving >> (N*32);", "else if (out_valid) leaving <= leaving >> (N*32);",
     "icarus"),
    ("model: the shift of a rescaling has no limit of 63, but one of 7", "model/src/attention.rs",
     "const MOST_SHIFT: i32 = 63;", "const MOST_SHIFT: i32 = 7;", "icarus"),
    ("model: logarithms are not rounded", "model/src/attention.rs",
     "i64::from(self.mult) + half) >> self.right", "i64::from(self.mult)) >> self.right", "icarus"),
    ("model: an entry of the table is one too large", "model/src/exp2.rs",
     ".round() as u16\n}", ".round() as u16 + u16::from(fraction == 512)\n}", "tests of the model"),
    ("model: the formula of cycles forgets the last block's powers", "model/src/cycles.rs",
     "let passes = 2 * tile.size + PASSES", "let passes = tile.size + PASSES", "icarus"),
)


def changed(source, text, replacement, name):
    before = source.read_text()
    if before.count(text) != 1:
        print(f"{name}: {source} has the text {before.count(text)} times", file=sys.stderr)
        sys.exit(2)
    source.write_text(before.replace(text, replacement))


def find(fault, scratch, model):
    """Which check finds the fault, and what it says; None if none does."""
    name, file, text, replacement, step = fault
    copy = scratch / "fpga"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(HERE, copy)
    changed(copy / file, text, replacement, name)
    if file.startswith("model/"):
        return find_in_model(copy, step, scratch)
    return check(step, "--rtl", copy / "rtl", "--model", model, "--work", scratch / "work")


def check(step, *arguments):
    """What the first failing step says; None if none fails."""
    command = [HERE / "check", "--json", "--size", "4", "--dimension", "32", "--random", "2", "--only", step, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"fpga/check could not run: {done.stderr[-800:]}")
    steps = json.loads(done.stdout)["steps"]
    failed = [f"{name}: {step['why'].splitlines()[0].replace(f'{ROOT}/', '')[:160]}" for name, step in steps.items() if step["verdict"] == "FAIL"]
    return failed[0] if failed else None


def find_in_model(copy, step, scratch):
    """Whatever happens, the model's files are as before afterwards."""
    kept = {path: path.read_text() for path in (HERE / "model/src").glob("*.rs")}
    cargo = lambda *words: subprocess.run(["cargo", *words, "--locked", "--quiet", "-p", "fpga-model"], cwd=ROOT,
                                          capture_output=True, text=True)
    try:
        for path in kept:
            path.write_text((copy / "model/src" / path.name).read_text())
        if step == "tests of the model":
            done = cargo("test", "--lib")
            failed = [line.strip() for line in done.stdout.splitlines() if "panicked at" in line]
            return f"{step}: {failed[0]}" if failed else None
        done = cargo("build")
        if done.returncode != 0:
            sys.exit(f"the changed model does not build: {done.stderr[-800:]}")
        return check(step, "--model", program(), "--work", scratch / "work")
    finally:
        for path, text in kept.items():
            path.write_text(text)


def program():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/fpga-model"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORDS", help="words, separated by commas")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    chosen = parser.parse_args()
    words = [word for word in chosen.only.split(",") if word]
    faults = [fault for fault in FAULTS if not words or any(word in fault[0] for word in words)]
    subprocess.run(["cargo", "build", "--locked", "--quiet", "-p", "fpga-model"], cwd=ROOT, check=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        model = shutil.copy(program(), scratch / "fpga-model")
        wrong = check("icarus,formal", "--model", model, "--work", scratch / "work")
        if wrong:
            print(f"the unchanged files do not pass: {wrong}", file=sys.stderr)
            return 1
        for fault in faults:
            began = time.monotonic()
            found = find(fault, scratch, model)
            rows.append({"fault": fault[0], "file": fault[1], "text": fault[2], "replacement": fault[3], "found": found})
            print(f"{'found' if found else 'NOT FOUND':9} {fault[0]} ({time.monotonic() - began:.0f} s)\n          {found}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps({"command": "fpga/faults.py", "rows": rows}, indent=1) + "\n")
    missed = sum(row["found"] is None for row in rows)
    print(f"{len(rows) - missed} of {len(rows)} faults found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
