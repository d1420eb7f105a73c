#!/usr/bin/env python3
"""What an open dashboard costs the program that it shows, and how old its numbers are: Markdown on stdout.

    cargo build --release
    cargo build --release -p fake-driver
    scripts/dashboard_cost.py target/release/apex --libcuda target/release/libfake_driver.so
    scripts/dashboard_cost.py target/release/apex torch torch:alone                # on a machine with a GPU and PyTorch

docs/results/live.txt has its tables; scripts/gpu/dashboard.sh runs it on a machine with a GPU.

A row is WHERE:RATE: a program launches an empty kernel at that rate on the CPU device (`cpu`), or on the driver that --libcuda
names (`fake`, the library of `testing/fake-driver`). Or it is `torch`: PyTorch trains a small network, step after step, on the
GPU. Meanwhile somebody looks at the last 5 seconds, then nobody, in turns: each turn and the next are a pair. A pair's figure
is the CPU time that the program takes at that rate, or the time that a step takes, looked at over not looked at. The interval
is that of the median over pairs (order statistics, at least 95%). In a row that ends with `:alone` nobody looks in either
turn: it shows what is chance.
"""

import argparse

import http.client
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROWS = ["cpu:2000", "cpu:10000", "cpu:50000", "cpu:10000:alone"]
FAKE_ROWS = ["fake:2000", "fake:10000", "fake:50000", "fake:150000", "fake:10000:alone"]
TURN_S = 3.0

LAUNCHES = r"""
import ctypes, sys, time
cuda, rate, seconds = ctypes.CDLL("libcuda.so.1"), int(sys.argv[1]), float(sys.argv[2])
PTX = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n\0"
def ok(result):
    if result: sys.exit(f"a driver call returned {result}")
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
ok(cuda.cuInit(0))
ok(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
ok(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"empty"))
launch, none, one = cuda.cuLaunchKernel, ctypes.c_void_p(), ctypes.c_uint(1)
arguments = (function, one, one, one, one, one, one, ctypes.c_uint(0), none, none, none)
begin, made, told = time.monotonic(), 0, time.monotonic()
while (now := time.monotonic()) < begin + seconds:
    due = int((now - begin) * rate) - made
    # What cannot be made in time is not made up for.
    for _ in range(min(due, 1000)): launch(*arguments)
    made += due
    if due <= 1000: time.sleep(0.002)
    if now - told >= 0.05:
        print(now, time.process_time(), flush=True)
        told = now
"""

# What it tells is how many steps it has made.
TRAINING = r"""
import sys, time, torch
layers = [layer for _ in range(12) for layer in (torch.nn.Linear(512, 512), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(64, 512, device="cuda")
steps, begin, told = 0, time.monotonic(), 0.0
while time.monotonic() < begin + float(sys.argv[2]):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    steps += 1
    if time.monotonic() - told >= 0.05:
        torch.cuda.synchronize()
        told = time.monotonic()
        print(told, steps, flush=True)
"""


class Looker:
    """Looks at the last seconds of the session, as the page does, while it is open."""

    def __init__(self, address, path):
        self.connection = http.client.HTTPConnection(address)
        self.connection.request("GET", path)
        self.arrived = []
        self.answer = self.connection.getresponse()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for line in self.answer:
                if line.startswith(b"event: document"):
                    self.arrived.append(time.monotonic())
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass

    def close(self):
        self.connection.sock.shutdown(2)
        self.connection.close()


def cpu_s(pid):
    """CPU time that a process has taken, all its threads."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interval(values):
    """The median and an interval that holds that of the population with at least 95%."""
    values, count = sorted(values), len(values)
    tail, outside = 0, 0.0
    while outside + math.comb(count, tail) / 2**count <= 0.025:
        outside += math.comb(count, tail) / 2**count
        tail += 1
    if tail == 0:
        return statistics.median(values), values[0], values[-1]
    return statistics.median(values), values[tail - 1], values[count - tail]


def measure(apex, row, libcuda, pairs):
    """A row of the table; where nobody looks, both turns of a pair are the same, and what differs is chance."""
    where, *rest = row.split(":")
    looks = rest[-1:] != ["alone"]
    rate = int(rest[0]) if where != "torch" else 0
    program, warm_s = (TRAINING, 20) if where == "torch" else (LAUNCHES, 5)
    with tempfile.TemporaryDirectory() as folder:
        session, environment = f"{folder}/s", dict(os.environ)
        device = "cpu" if where == "cpu" else "gpu"
        if where == "fake":
            os.symlink(libcuda, f"{folder}/libcuda.so.1")
            environment["LD_LIBRARY_PATH"] = folder
        seconds = 2 * pairs * TURN_S + warm_s + 3
        command = [sys.executable, "-c", program, str(rate), str(seconds)]
        words = [apex, "run", "-q", "-o", session, "--device", device, "--", *command]
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as program:
            told = []
            reader = threading.Thread(target=lambda: told.extend([float(word) for word in line.split()] for line in program.stdout))
            reader.start()
            time.sleep(warm_s)
            serve = [apex, "dashboard", "--no-open", session]
            with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as dashboard:
                address = dashboard.stdout.readline().strip().removeprefix("http://").rstrip("/")
                turns, ages, count, looked_s = [], [], 0, 0.0
                for turn in range(2 * pairs):
                    # Which one of a pair comes first alternates.
                    looks_now = turn % 4 in (0, 3)
                    begun, cpu = time.monotonic(), cpu_s(dashboard.pid)
                    if looks_now and looks:
                        listed = http.client.HTTPConnection(address)
                        listed.request("GET", "/api/v1/sessions")
                        name = json.load(listed.getresponse())["sessions"][0]["id"]
                        looker = Looker(address, f"/api/v1/sessions/{name}/events?last=5")
                    time.sleep(TURN_S)
                    if looks_now and looks:
                        looker.close()
                        took = cpu_s(dashboard.pid) - cpu
                        arrived = looker.arrived
                        looked_s, count = looked_s + took, count + len(arrived)
                        each = took / max(len(arrived), 1)
                        ages += [later - earlier + each for earlier, later in zip(arrived, arrived[1:])]
                    turns.append((looks_now, begun, time.monotonic()))
                dashboard.terminate()
            reader.join()
        if where == "torch":
            report = subprocess.run([apex, "report", "--json", session], stdout=subprocess.PIPE, check=True)
            profile = json.loads(report.stdout)["profile"]
            rate = round(profile["totals"]["launches"] / (profile["processes"][0]["wall_ns"] / 1e9))
    costs = [(looks_now, spent(told, begun, ended)) for looks_now, begun, ended in turns]
    ratios = []
    for first, second in zip(costs[::2], costs[1::2]):
        with_it, without = (first, second) if first[0] else (second, first)
        # Of training, more steps in the same time are better.
        ratios.append(without[1] / with_it[1] if where == "torch" else with_it[1] / without[1])
    middle, low, high = interval([ratio - 1 for ratio in ratios])
    name = {"cpu": "CPU device", "fake": "fake driver", "torch": "PyTorch on the GPU"}[where]
    name += "" if looks else ", nobody looks"
    slower = f"{middle:+.2%} ({low:+.2%} to {high:+.2%})"
    if not looks:
        return f"| {name} | {rate:,} | {slower} | | | | |"
    each = looked_s / max(count, 1)
    return (
        f"| {name} | {rate:,} | {slower} | {looked_s / (pairs * TURN_S):.1%} | {each * 1e3:.0f} ms "
        + (f"| {statistics.median(ages):.2f} s | {max(ages):.2f} s |" if ages else f"| over {TURN_S:.0f} s | |")
    )


def spent(told, begun, ended):
    """CPU time of the program (at a rate that is the same in all), or its steps, for each second of a turn."""
    inside = [one for one in told if begun + 0.3 <= one[0] <= ended]
    (first, cpu), (last, cpu_after) = inside[0], inside[-1]
    return (cpu_after - cpu) / (last - first)


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("apex")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--libcuda", type=os.path.abspath)
    parser.add_argument("--pairs", type=int, default=12, help="pairs of turns")
    parser.add_argument("--no-head", action="store_true", help="print the rows alone")
    given = parser.parse_args()
    rows = given.rows or ROWS + (FAKE_ROWS if given.libcuda else [])
    if not given.no_head:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            processor = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
        print("# What an open dashboard costs the program that it shows\n")
        print(f"Measured on {time.strftime('%-d %B %Y')} with `scripts/dashboard_cost.py`, {given.pairs} pairs of turns of {TURN_S:.0f} s each: {processor},")
        print(f"{os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f} at the beginning.\n")
        print("| program | launches a second | slower while somebody looks (95% interval) | CPU of the dashboard | CPU of a look | age of the numbers when replaced, median | at most |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for row in rows:
        print(measure(os.path.abspath(given.apex), row, given.libcuda, given.pairs), flush=True)
    if not given.no_head:
        print("\nThe age is the time between two documents and the CPU time of a look. CPU of the dashboard is a share of one core while somebody looks.")


if __name__ == "__main__":
    main()
