#!/usr/bin/env python3
"""Compares what `apex run` records of the machine with nvidia-smi, and measures what it costs: Markdown into OUT/machine.md.

* Readings: for each record of the machine, the nvidia-smi line nearest to its end; medians of both
  and the median of their differences. Exit status 1 where a median differs by more than its tolerance.
* Cost: CPU time of the sampler for each sample (recorded with it), and steps a second of a loop of
  small kernels, which the host limits, with and without the sampler, in turns.
* Untouched: limits, locked clocks and modes, as nvidia-smi has them before and after.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

# Reading, nvidia-smi's query, by what that is multiplied, tolerance: a part of the value, and at
# least so much.
COMPARED = [
    ("power_w", "power.draw", 1, 0.05, 10),
    ("power_limit_w", "enforced.power.limit", 1, 0, 0.5),
    ("sm_clock_mhz", "clocks.sm", 1, 0.03, 30),
    ("memory_clock_mhz", "clocks.mem", 1, 0.01, 1),
    ("temperature_c", "temperature.gpu", 1, 0, 2),
    ("memory_used_bytes", "memory.used", 1 << 20, 0.02, 64 << 20),
    ("gpu_utilization", "utilization.gpu", 0.01, 0, 0.1),
    ("memory_utilization", "utilization.memory", 0.01, 0, 0.1),
]
UNTOUCHED = "power.limit,enforced.power.limit,clocks.applications.graphics,clocks.max.sm,persistence_mode,compute_mode,mig.mode.current"
GPM = ["sm_utilization", "sm_occupancy", "tensor_activity", "dram_bandwidth", "pcie_received_bytes_per_s", "pcie_sent_bytes_per_s"]
GPM += ["nvlink_received_bytes_per_s", "nvlink_sent_bytes_per_s"]

# Half of the time large products, which heat; half of the time small ones, which wait.
LOOP = """
import sys, time, torch
a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
c = torch.randn(256, 256, device="cuda")
end, steps = time.time() + float(sys.argv[1]), 0
while time.time() < end:
    if int(time.time()) // 10 % 2:
        for _ in range(4): a @ b
    else:
        for _ in range(20): c = (c @ c).tanh()
    torch.cuda.synchronize()
    steps += 1
print(steps)
"""


# Small kernels alone: every microsecond of the host counts.
SMALL = """
import sys, time, torch
c = torch.randn(256, 256, device="cuda")
def step():
    global c
    for _ in range(20): c = (c @ c).tanh()
    torch.cuda.synchronize()
begun, steps = time.time(), 0
while time.time() < begun + 2: step()
end = time.time() + float(sys.argv[1])
while time.time() < end:
    step()
    steps += 1
print(steps)
"""


def records_of(session):
    """The records of a session's first device, ends in seconds since 1970 where `clock` joins both clocks."""
    lines = [json.loads(line) for line in (session / "machine.jsonl").read_text().splitlines()]
    return [line["record"] for line in lines if "record" in line]


def middle(reading):
    """The mean of a reading, which is a number or least, mean and most."""
    return reading[1] if isinstance(reading, list) else reading


def smi_of(text):
    """nvidia-smi's lines: seconds since 1970, and a number or None for each query."""
    rows = []
    for line in text.splitlines():
        stamp, *cells = [cell.strip() for cell in line.split(",")]
        try:
            at = datetime.strptime(stamp, "%Y/%m/%d %H:%M:%S.%f").timestamp()
        except ValueError:
            continue
        rows.append((at, [float(cell) if cell.replace(".", "", 1).isdigit() else None for cell in cells]))
    return rows


def compare(records, smi, offset):
    """Rows of the table, and what is beyond its tolerance. `offset` takes the monotonic clock to seconds since 1970."""
    rows, wrong = [], []
    for column, (name, query, factor, part, least) in enumerate(COMPARED):
        pairs = []
        for record in records:
            readings = next((device["readings"] for device in record.get("devices", []) if device["device"] == 0), {})
            near = min(smi, key=lambda row: abs(row[0] - (record["to_ns"] / 1e9 + offset)), default=None)
            if name in readings and near and near[1][column] is not None:
                pairs.append((middle(readings[name]), near[1][column] * factor))
        if not pairs:
            rows.append(f"| `{name}` | `{query}` | 0 | | | |")
            continue
        ours, theirs = (statistics.median(values) for values in zip(*pairs))
        apart = statistics.median(abs(a - b) for a, b in pairs)
        rows.append(f"| `{name}` | `{query}` | {len(pairs)} | {ours:.6g} | {theirs:.6g} | {apart:.4g} |")
        if apart > max(least, part * theirs):
            wrong.append(f"{name}: {apart:.4g} apart, more than {max(least, part * theirs):.4g}")
    return rows, wrong


def run(apex, folder, loop, seconds, options, beside=None):
    """Steps of a loop in a run with these options, and its session."""
    session = Path(folder) / f"s{time.monotonic_ns()}"
    command = [apex, "run", "-q", "-o", session, *options, "--", sys.executable, "-c", loop, str(seconds)]
    other = subprocess.Popen(beside, stdout=subprocess.PIPE, text=True) if beside else None
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    said = ""
    if other:
        other.terminate()
        said = other.communicate()[0]
    return int(done.stdout.split()[-1]), session, said


def query(fields):
    """What nvidia-smi says of the first device."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def main():
    """Measures and writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--apex", required=True)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--each", type=float, default=6, help="seconds of each run with and without the sampler")
    parser.add_argument("--pairs", type=int, default=6)
    words = parser.parse_args()
    before = query(UNTOUCHED)
    fields = ",".join(["timestamp", *(query for _, query, *_ in COMPARED)])
    smi = ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-lms", "250"]
    with tempfile.TemporaryDirectory() as folder:
        _, session, said = run(words.apex, folder, LOOP, words.seconds, [], smi)
        offset = time.time() - time.monotonic()
        records = records_of(session)
        rows, wrong = compare(records, smi_of(said), offset)
        report = subprocess.run([words.apex, "report", "--json", session], stdout=subprocess.PIPE, check=True).stdout
        machine = json.loads(report)["machine"]
        steps = {"with": [], "without": []}
        for _ in range(words.pairs):
            for name, options in (("with", []), ("without", ["--no-machine"])):
                steps[name].append(run(words.apex, folder, SMALL, words.each, options)[0] / words.each)
    after = query(UNTOUCHED)
    if before != after:
        wrong.append(f"the device is not as it was: {before} became {after}")
    if not machine["joined"]:
        wrong.append("the device is not joined with the session's by its UUID")
    costs = [record["cost_ns"] / 1e6 for record in records]
    name = query("name,driver_version")
    text = [f"# Readings of the machine beside nvidia-smi\n\n{name}, {time.strftime('%-d %B %Y')}, `scripts/gpu/machine.sh`, {words.seconds:g} s.\n"]
    text += ["| reading | nvidia-smi | samples | median | its median | median difference |", "| --- | --- | --- | --- | --- | --- |", *rows]
    told = machine["devices"][0]["readings"] if machine["devices"] else {}
    text += ["\n| GPM and links | least | mean | most |", "| --- | --- | --- | --- |"]
    text += [f"| `{name}` | {told[name]['least']:.4g} | {told[name]['mean']:.4g} | {told[name]['most']:.4g} |" for name in GPM if name in told]
    text += [f"\nCPU time of a sample: median {statistics.median(costs):.3f} ms, at most {max(costs):.3f} ms, of {len(costs)}."]
    middles = {name: statistics.median(values) for name, values in steps.items()}
    slower = sorted(1 - one / other for one, other in zip(steps["with"], steps["without"]))
    text += [f"Steps a second of small kernels, medians of {words.pairs}: {middles['with']:.2f} with the sampler, {middles['without']:.2f} without."]
    text += [f"Slower with the sampler, pair by pair: {', '.join(f'{one:+.2%}' for one in slower)}."]
    text += [f"Limits, clocks and modes before and after: {'the same' if before == after else 'DIFFERENT'} ({after})."]
    text += [f"Beyond its tolerance: {one}" for one in wrong]
    out = Path(words.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "machine.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
