#!/usr/bin/env python3
"""What the sampling of host stacks costs programs on a GPU whose speed the host decides.

    host_stacks_cost.py --apex BIN --out OUT [--seconds 40] [--hz 100]

Each program runs once under `apex run`. Sampling is on in every other window of 500 ms of the monotonic clock
(APEX_HOST_STACKS_WINDOWS_MS), and the program counts its steps by window: a window with sampling is compared with the two
beside it. OUT/host-stacks-cost.json holds the steps of each window, the sampler's counters, hardware, driver, date and
command; the interval is of the median ratio, by 2,000 resamples (seed 1).
"""

import argparse
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WINDOW_NS = 500_000_000


def decode(torch):
    """A step of decoding, batch 1: 24 layers of a transformer with a cache of 512 positions."""
    width, heads, layers = 1024, 16, 24
    matrices = [torch.randn(width, columns, device="cuda", dtype=torch.float16) * 0.02 for columns in (3 * width, width, 4 * width)]
    out = torch.randn(4 * width, width, device="cuda", dtype=torch.float16) * 0.02
    norm = torch.nn.LayerNorm(width, device="cuda", dtype=torch.float16)
    cache = torch.randn(2, layers, 1, heads, 512, width // heads, device="cuda", dtype=torch.float16)
    first = torch.randn(1, 1, width, device="cuda", dtype=torch.float16)

    def step():
        x = first
        for layer in range(layers):
            q, k, v = (norm(x) @ matrices[0]).view(1, 1, 3, heads, -1).permute(2, 0, 3, 1, 4)
            cache[0, layer, :, :, -1:], cache[1, layer, :, :, -1:] = k, v
            seen = torch.nn.functional.scaled_dot_product_attention(q, cache[0, layer], cache[1, layer])
            x = x + seen.transpose(1, 2).reshape(1, 1, width) @ matrices[1]
            x = x + torch.nn.functional.gelu(norm(x) @ matrices[2]) @ out
        x.float().sum().item()

    return step


def small_operations(torch):
    """Sixty-four operations on vectors of 1,024 elements, and a wait."""
    x = torch.randn(1024, device="cuda")

    def step():
        y = x
        for _ in range(32):
            y = y * 1.0001 + 0.5
        y.sum().item()

    return step


def data_frames(torch):
    """Plain Python between launches: words are counted in a dictionary, and the counts are copied."""
    words = [str(n * 7919 % 997) for n in range(4000)]

    def step():
        counts = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        torch.tensor(list(counts.values())).cuda().sum().item()

    return step


PROGRAMS = {"decode": decode, "small_operations": small_operations, "data_frames": data_frames, "eight_threads": small_operations}


def program(name, seconds):
    import torch

    step = PROGRAMS[name](torch)
    if name == "eight_threads":
        for _ in range(7):
            threading.Thread(target=lambda: [time.sleep(0.02) for _ in iter(int, 1)], daemon=True).start()
    for _ in range(50):
        step()
    counts, end_ns = {}, time.monotonic_ns() + int(seconds * 1e9)
    while (now := time.monotonic_ns()) < end_ns:
        step()
        counts[now // WINDOW_NS] = counts.get(now // WINDOW_NS, 0) + 1
    print(json.dumps(counts), flush=True)
    os._exit(0)


def record(options, name):
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder) / "session"
        command = [options.apex / "apex", "run", "--quiet", "--host-stacks", str(options.hz), "-o", session, "--"]
        command += [sys.executable, __file__, "--program", name, "--seconds", str(options.seconds)]
        variables = os.environ | {"APEX_HOST_STACKS_WINDOWS_MS": str(WINDOW_NS // 1_000_000)}
        result = subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True)
        lines = [json.loads(line) for line in (session / "host-stacks.jsonl").read_text().splitlines()]
    counters = [line["counters"] for line in lines if "counters" in line][-1]
    return {"steps": json.loads(result.stdout.splitlines()[-1]), "counters": counters}


def ratios(steps):
    """Steps in each window with sampling over the mean of those in the windows beside it, without the windows at the ends."""
    steps = {int(window): count for window, count in steps.items()}
    windows = sorted(steps)[1:-1]
    return [2 * steps[w] / (steps[w - 1] + steps[w + 1]) for w in windows[1:-1] if w % 2 == 0]


def interval(values):
    """The median, and the bounds between which 95% of the medians of resamples lie."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return statistics.median(values), medians[50], medians[1949]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--apex", type=lambda p: Path(p).absolute())
    parser.add_argument("--out", type=Path)
    parser.add_argument("--hz", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the results of FILE as Markdown")
    options = parser.parse_args()
    if options.program:
        return program(options.program, options.seconds)
    if options.table:
        return table(json.loads(options.table.read_text()))
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    hardware = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    results = {"command": " ".join(sys.argv), "date": datetime.date.today().isoformat(), "hardware": hardware, "hz": options.hz}
    results["programs"] = {name: record(options, name) for name in PROGRAMS}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "host-stacks-cost.json").write_text(json.dumps(results) + "\n")
    table(results)


def table(results):
    print("| program | steps in a second | windows compared | speed with sampling / without | CPU of the sampler |")
    print("| --- | --- | --- | --- | --- |")
    for name, entry in results["programs"].items():
        values = ratios(entry["steps"])
        middle, low, high = interval(values)
        rate = statistics.median(entry["steps"].values()) * 1e9 / WINDOW_NS
        counters = entry["counters"]
        share = 100 * counters["cpu_ns"] / (counters["wall_ns"] / 2)
        print(f"| `{name}` | {rate:,.0f} | {len(values)} | {middle:.4f} ({low:.4f} to {high:.4f}) | {share:.2f}% of a core |")


if __name__ == "__main__":
    main()
