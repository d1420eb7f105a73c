#!/usr/bin/env python3
"""What the sampling of host stacks costs programs on a GPU whose speed the host decides.

    host_stacks_cost.py --apex BIN --out OUT [--seconds 24] [--hz 100]

Each program runs once under `apex run`; `decode` twice as long as the others. Sampling is on in every other window of 100 ms of
the monotonic clock (APEX_HOST_STACKS_WINDOWS_MS). The program times its steps, and those that lie within one window count for it:
the time of a step in a window with sampling is compared with that in the two windows beside it. The clocks and neighbours of a
machine change within seconds, so short windows are like each other, and times of steps tell more than their number does.
OUT/host-stacks-cost.json holds for each window its steps and their time, the sampler's counters, hardware, driver, date and
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

WINDOW_NS = 100_000_000


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
    windows, now = {}, time.monotonic_ns()
    end_ns = now + int(seconds * 1e9)
    while now < end_ns:
        began = now
        step()
        now = time.monotonic_ns()
        if began // WINDOW_NS == now // WINDOW_NS:
            steps, took_ns = windows.get(now // WINDOW_NS, (0, 0))
            windows[now // WINDOW_NS] = (steps + 1, took_ns + now - began)
    print(json.dumps(windows), flush=True)
    os._exit(0)


def record(options, name):
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder) / "session"
        command = [options.apex / "apex", "run", "--quiet", "--host-stacks", str(options.hz), "-o", session, "--"]
        seconds = options.seconds * (2 if name == "decode" else 1)
        command += [sys.executable, __file__, "--program", name, "--seconds", str(seconds)]
        variables = os.environ | {"APEX_HOST_STACKS_WINDOWS_MS": str(WINDOW_NS // 1_000_000)}
        result = subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True)
        lines = [json.loads(line) for line in (session / "host-stacks.jsonl").read_text().splitlines()]
    counters = [line["counters"] for line in lines if "counters" in line][-1]
    return {"steps": json.loads(result.stdout.splitlines()[-1]), "counters": counters}


def ratios(windows):
    """Time of a step beside each window with sampling over that in it: the speed with sampling, of that without."""
    each = {int(window): took_ns / steps for window, (steps, took_ns) in windows.items()}
    sampled = [w for w in sorted(each)[2:-2] if w % 2 == 0 and w - 1 in each and w + 1 in each]
    return [(each[w - 1] + each[w + 1]) / 2 / each[w] for w in sampled]


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
    parser.add_argument("--seconds", type=float, default=24)
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
        rate = statistics.median(steps * 1e9 / took_ns for steps, took_ns in entry["steps"].values())
        counters = entry["counters"]
        share = 100 * counters["cpu_ns"] / (counters["wall_ns"] / 2)
        print(f"| `{name}` | {rate:,.0f} | {len(values)} | {middle:.4f} ({low:.4f} to {high:.4f}) | {share:.2f}% of a core |")


if __name__ == "__main__":
    main()
