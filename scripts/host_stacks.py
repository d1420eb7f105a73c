#!/usr/bin/env python3
"""What the sampling of host stacks costs a program, and what it costs itself.

    python3 scripts/host_stacks.py [--device cpu|gpu] [--hz 100] [--threads 8] [--seconds 30]

Records a program of so many Python threads, of which half compute and half sleep. Sampling is on in every other window of
500 ms of the monotonic clock (APEX_HOST_STACKS_WINDOWS_MS), and the program counts its loops by window: the comparison
is between neighbouring windows of one run. `apex` is the one on the PATH.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

WINDOW_NS = 500_000_000


def leaf(n):
    return n + 1


def call(n):
    return leaf(n)


def computes(counts, end_ns):
    n = 0
    while (now := time.monotonic_ns()) < end_ns:
        window = now // WINDOW_NS
        for _ in range(200):
            n = call(n)
        counts[window] = counts.get(window, 0) + 200


def sleeps(end_ns):
    while time.monotonic_ns() < end_ns:
        time.sleep(0.02)


def program(threads, seconds):
    """Makes a CUDA call, which has the process sampled, and counts its loops in each window."""
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    counts = [{} for _ in range(threads // 2)]
    running = [threading.Thread(target=computes, args=(count, end_ns)) for count in counts]
    running += [threading.Thread(target=sleeps, args=(end_ns,)) for _ in range(threads - len(running))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    total = {}
    for count in counts:
        for window, loops in count.items():
            total[window] = total.get(window, 0) + loops
    print(json.dumps(total))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--hz", type=int, default=100)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--program", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        program(options.threads, options.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        session = os.path.join(folder, "session")
        command = ["apex", "run", "--quiet", "--device", options.device, "--host-stacks", str(options.hz)]
        command += ["-o", session, "--", sys.executable, __file__, "--program"]
        command += ["--threads", str(options.threads), "--seconds", str(options.seconds)]
        variables = dict(os.environ, APEX_HOST_STACKS_WINDOWS_MS=str(WINDOW_NS // 1_000_000))
        result = subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True)
        with open(os.path.join(session, "host-stacks.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        size = os.path.getsize(os.path.join(session, "host-stacks.jsonl"))
    counters = [line["counters"] for line in lines if "counters" in line][-1]
    loops = {int(window): count for window, count in json.loads(result.stdout.splitlines()[-1]).items()}
    # The first and the last window are cut.
    windows = sorted(loops)[1:-1]
    ratios = [
        2 * loops[window] / (loops[window - 1] + loops[window + 1])
        for window in windows[1:-1]
        if window % 2 == 0
    ]
    rounds = max(counters["rounds"], 1)
    print(f"{options.threads} threads, {options.hz} Hz, {len(ratios)} windows with sampling between windows without")
    spread = statistics.quantiles(ratios, n=4)
    print(f"loop rate with sampling / without: median {spread[1]:.4f}, quartiles {spread[0]:.4f} to {spread[2]:.4f}")
    on_ns = counters["wall_ns"] / 2
    print(f"CPU of the sampler: {100 * counters['cpu_ns'] / on_ns:.2f}% of a core while it samples")
    print(f"a round of all threads: {counters['cpu_ns'] / rounds / 1000:.0f} µs; rate {1e9 * rounds / on_ns:.0f} Hz")
    print(f"not settled: {counters['unsettled']} of {counters['samples']} samples")
    print(f"unchanged, not read: {counters['unchanged']}; failed: {counters['failed']}")
    print(f"late rounds {counters['late']}, left out {counters['missed']}; file {size} bytes")


if __name__ == "__main__":
    main()
