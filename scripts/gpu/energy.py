#!/usr/bin/env python3
"""What readings of energy are worth on a GPU, and joules per step of programs of testing/corpus. It only reads: it calls
no function of NVML that changes a device.

    energy.py measure OUT [--seconds 8] [--rounds 5] [--programs NAME,…]   # on the machine with the GPU
    energy.py table FILE [cost|updates|programs]                           # the tables of docs/power.md, from energy.json.xz

`measure` writes OUT/energy.json.xz, which holds raw readings:

* cost: nanoseconds of calls, one after the other: the energy counter, power, instantaneous and average power, clock.
* polled: moments at which the energy counter and the powers changed while they were asked for without a pause, on an
  idle GPU and beside matrix products.
* runs: the programs take turns for some seconds each, several rounds. Steps and times of each run, temperature, clocks
  and reasons for low clocks at its ends.
* energy, instant: all changes of the energy counter and of instantaneous power that another process saw meanwhile, about
  every two milliseconds. Each is the moment of the last reading before the change, of the first one after it, and the
  new value.
"""

import argparse
import ctypes
import importlib
import json
import lzma
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[2] / "testing/corpus/python"
PROGRAMS = "eager_decode,gemm_saturated,bert_fp32,unfused_norm,causal_attention,llama_eager"
# NVML_FI_DEV_POWER_AVERAGE and …_INSTANT, milliwatts.
AVERAGE, INSTANT = 185, 186
POLLED_SECONDS = 3
CALLS = 2000
PAUSE = 0.002
# Nanoseconds.
SAME_UPDATE = 1_000_000
IDLE_SECONDS = 6
# Steps are waited for about so often, so that the host runs ahead of the GPU by no more.
BATCH_SECONDS = 0.05


class Field(ctypes.Structure):
    """`nvmlFieldValue_t`."""

    _fields_ = [
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong), ("latency", ctypes.c_longlong),
        ("type", ctypes.c_uint), ("returned", ctypes.c_uint), ("value", ctypes.c_ulonglong),
    ]


class Nvml:
    """NVML's first device, to read. Each reading is `None` where the device does not tell it."""

    def __init__(self, library="libnvidia-ml.so.1"):
        self.library = ctypes.CDLL(library)
        self.device = ctypes.c_void_p()
        self.must("nvmlInit_v2")
        self.must("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self.device))
        self.field = (Field * 1)()

    def must(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise SystemExit(f"energy.py: {name} returned {code}")

    def number(self, name, kind, *arguments):
        value = kind()
        code = getattr(self.library, name)(self.device, *arguments, ctypes.byref(value))
        return None if code else value.value

    def energy(self):
        return self.number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)

    def power(self):
        return self.number("nvmlDeviceGetPowerUsage", ctypes.c_uint)

    def of_field(self, number):
        self.field[0].field, self.field[0].scope = number, 0
        code = self.library.nvmlDeviceGetFieldValues(self.device, 1, self.field)
        # The union's first four bytes: both fields are of 32 bits.
        return None if code or self.field[0].returned else self.field[0].value & 0xFFFFFFFF

    def instant(self):
        return self.of_field(INSTANT)

    def average(self):
        return self.of_field(AVERAGE)

    def clock(self):
        return self.number("nvmlDeviceGetClockInfo", ctypes.c_uint, 1)

    def state(self):
        return {
            "celsius": self.number("nvmlDeviceGetTemperature", ctypes.c_uint, 0),
            "sm_mhz": self.clock(),
            "reasons": self.number("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong),
        }


class Changes:
    """The moments at which a reading changed: nanoseconds of the last reading with the old value, of the first with the new
    one, and the new value."""

    def __init__(self, read):
        self.read, self.last, self.last_ns, self.seen = read, None, None, []

    def look(self):
        value, now = self.read(), time.monotonic_ns()
        if value != self.last:
            if self.last is not None:
                self.seen.append((self.last_ns, now, value))
            self.last = value
        self.last_ns = now


def costs(nvml):
    """Percentiles of the nanoseconds of each call, Python's own included."""
    out = {}
    for name in ("energy", "power", "instant", "average", "clock"):
        read, times = getattr(nvml, name), []
        value = read()
        for _ in range(CALLS):
            began = time.perf_counter_ns()
            read()
            times.append(time.perf_counter_ns() - began)
        times.sort()
        out[name] = {"value": value, "median": times[CALLS // 2], "p99": times[CALLS * 99 // 100], "most": times[-1]}
    return out


def polled(nvml):
    """Changes of each reading while it is asked for without a pause."""
    out = {}
    for name in ("energy", "instant", "power", "average"):
        changes, end = Changes(getattr(nvml, name)), time.monotonic() + POLLED_SECONDS / 2
        began, calls = time.monotonic_ns(), 0
        while time.monotonic() < end:
            changes.look()
            calls += 1
        out[name] = {"calls": calls, "from_ns": began, "seen": changes.seen}
    return out


def sample(library):
    """A process: writes all changes as JSON when its standard input ends."""
    import select

    nvml = Nvml(library)
    all_of = {"energy": Changes(nvml.energy), "instant": Changes(nvml.instant)}
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for changes in all_of.values():
            changes.look()
        time.sleep(PAUSE)
    json.dump({name: changes.seen for name, changes in all_of.items()}, sys.stdout)


class Program:
    """A program of the corpus, without its remedy."""

    def __init__(self, name, device, synchronize):
        self.name, self.synchronize = name, synchronize
        self.step = importlib.import_module(name).build(False, device)
        self.run(0.5)
        began = time.perf_counter()
        self.batch = 1
        steps, _, _ = self.run(0.5)
        self.batch = max(1, int(steps * BATCH_SECONDS / (time.perf_counter() - began)))

    def run(self, seconds):
        """Steps for so many seconds; their number, and when they began and ended."""
        self.synchronize()
        began, steps, end = time.monotonic_ns(), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(getattr(self, "batch", 1)):
                self.step()
            self.synchronize()
            steps += getattr(self, "batch", 1)
        return steps, began, time.monotonic_ns()


def idle(seconds):
    began = time.monotonic_ns()
    time.sleep(seconds)
    return {"program": "idle", "round": 0, "steps": 0, "from_ns": began, "to_ns": time.monotonic_ns()}


def measure(a):
    nvml = Nvml(a.library)
    results = {"command": " ".join(sys.argv), "date": time.strftime("%Y-%m-%d"), "begin": nvml.state(), "cost": costs(nvml), "polled": {}}
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    results["polled"]["idle"] = polled(nvml)

    sys.path.append(str(CORPUS))
    import torch

    results["torch"] = torch.__version__
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        results["device"] = torch.cuda.get_device_name(0)
        results["driver"] = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=False
        ).stdout.strip()
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    torch.manual_seed(1)
    sampler = [sys.executable, __file__, "sample", "--library", a.library]
    process = subprocess.Popen(sampler, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    # An edge of the counter lies before the first run.
    time.sleep(0.5)
    try:
        runs = [idle(a.idle)]
        programs, results["failed"] = [], {}
        for name in a.programs.split(","):
            try:
                programs.append(Program(name, device, synchronize))
            except Exception as error:  # One program that fails must not cost the others.
                results["failed"][name] = repr(error)[:300]
        runs.append(idle(a.idle) | {"program": "idle with a context"})
        for number in range(a.rounds):
            for program in programs:
                program.run(0.3)
                before = nvml.state()
                steps, began, ended = program.run(a.seconds)
                runs.append({
                    "program": program.name, "round": number, "steps": steps, "from_ns": began, "to_ns": ended,
                    "before": before, "after": nvml.state(),
                })
                print(f"{number} {program.name}: {steps} steps in {(ended - began) / 1e9:.2f} s", flush=True)
        time.sleep(0.5)
    finally:
        text = process.communicate("end\n", timeout=60)[0]
    results |= {"runs": runs, **json.loads(text)}
    beside = next((program for program in programs if program.name == "gemm_saturated"), None)
    if beside:
        results["polled"]["busy"] = polled_beside(a, beside)
    results["end"] = nvml.state()
    packed = lzma.compress(json.dumps(compact(results), separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)
    (out / "energy.json.xz").write_bytes(packed)
    print(table(results))


def polled_beside(a, program):
    """The same in another process, while a program runs in this one."""
    process = subprocess.Popen([sys.executable, __file__, "polled", "--library", a.library], stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        program.run(0.5)
    return json.loads(process.stdout.read())


def compact(results):
    """Changes as differences in units of 10 µs, mJ and mW, which pack better."""
    return results | {name: deltas(results[name]) for name in ("energy", "instant")}


def deltas(seen):
    rows, last = [], (0, 0)
    for before, after, value in seen:
        after_10us = after // 10_000
        rows.append((after_10us - last[0], (after - before) // 10_000, value - last[1]))
        last = (after_10us, value)
    return rows


def spread(rows):
    """The reverse of `deltas`: nanoseconds and values."""
    out, at, value = [], 0, 0
    for step, width, grown in rows:
        at, value = at + step, value + grown
        out.append(((at - width) * 10_000, at * 10_000, value))
    return out


def by_counter(edges, begin, end):
    """Joules between two moments by the counter's edges: best, least, most.

    The counter holds the energy up to its last edge. An edge lies between two readings. So the energy up to a moment is at
    least the value of the last edge that is surely before it, and at most that of the first edge that is surely after."""

    def up_to(moment):
        # First edges whose readings are beyond the moment.
        after = next((i for i, edge in enumerate(edges) if edge[0] >= moment), None)
        if not after:
            raise SystemExit("energy.py: the counter's edges do not reach around a run")
        before = next(i for i in range(after - 1, -1, -1) if edges[i][1] <= moment)
        (_, at, low), (_, later, high) = edges[before], edges[after]
        return low + (high - low) * min(1, max(0, (moment - at) / (later - at))), low, high

    (a, a_low, a_high), (b, b_low, b_high) = up_to(begin), up_to(end)
    return (b - a) / 1e3, (b_low - a_high) / 1e3, (b_high - a_low) / 1e3


def by_power(changes, begin, end):
    """Joules between two moments by instantaneous power, which holds until it changes."""
    total, value, since = 0.0, None, begin
    for _, at, watts in changes:
        if at >= end:
            break
        if at > begin:
            if value is not None:
                total += value * (at - since)
            since = at
        value = watts
    return (total + (value or 0) * (end - since)) / 1e12


def periods(seen):
    """Milliseconds between updates: least, median, most. Powers change twice in some microseconds: that is one update."""
    moments = []
    for _, after, _ in seen:
        if not moments or after - moments[-1] > SAME_UPDATE:
            moments.append(after)
    gaps = sorted((b - a) / 1e6 for a, b in zip(moments, moments[1:]))
    return len(moments), [gaps[0], gaps[len(gaps) // 2], gaps[-1]] if gaps else []


def table(results, which=""):
    """All tables, or one of them by its name."""
    parts = dict(zip(("cost", "updates", "programs"), "\n".join(all_tables(results)).split("\n\n")))
    return parts[which] if which else "\n\n".join(parts.values())


def all_tables(results):
    lines = ["| reading | median, µs | 99%, µs | most, µs |", "| --- | --- | --- | --- |"]
    for name, cost in results["cost"].items():
        lines.append(f"| {name} | " + " | ".join(f"{cost[part] / 1e3:.1f}" for part in ("median", "p99", "most")) + " |")
    lines += ["", "| reading | GPU | changes | updates | ms between them, least | median | most |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for when, readings in results["polled"].items():
        for name, of in readings.items():
            updates, gaps = periods(of["seen"])
            lines.append(f"| {name} | {when} | {len(of['seen'])} | {updates} | " + " | ".join(f"{gap:.1f}" for gap in gaps) + " |")
    lines += ["", "| program | steps | seconds | J per step, median of rounds | rounds apart | interval | by power | apart | W |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    names = dict.fromkeys(run["program"] for run in results["runs"])
    for name in names:
        lines.append(row(name, [run for run in results["runs"] if run["program"] == name], results))
    return lines


def row(name, runs, results):
    """A line for a program: repeatability is the widest distance of a round from the median of all."""
    each = []
    for run in runs:
        best, least, most = by_counter(results["energy"], run["from_ns"], run["to_ns"])
        seconds = (run["to_ns"] - run["from_ns"]) / 1e9
        each.append((best, (most - least) / 2 / best, by_power(results["instant"], run["from_ns"], run["to_ns"]), max(1, run["steps"]), seconds))
    steps = [best / steps for best, _, _, steps, _ in each]
    middle = statistics.median(steps)
    apart = max(abs(one / middle - 1) for one in steps)
    width = max(width for _, width, _, _, _ in each)
    power = statistics.median(power / count for _, _, power, count, _ in each)
    off = max(abs(power / best - 1) for best, _, power, _, _ in each)
    watts = statistics.median(best / seconds for best, _, _, _, seconds in each)
    count, seconds = sum(run["steps"] for run in runs), sum(one[4] for one in each)
    return f"| {name} | {count} | {seconds:.1f} | {middle:.4g} | {apart:.2%} | ±{width:.2%} | {power:.4g} | {off:.2%} | {watts:.0f} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["measure", "sample", "polled", "table"])
    parser.add_argument("out", nargs="?", default="")
    parser.add_argument("which", nargs="?", default="")
    parser.add_argument("--library", default="libnvidia-ml.so.1")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", default=PROGRAMS)
    a = parser.parse_args()
    if a.what == "measure":
        measure(a)
    elif a.what == "sample":
        sample(a.library)
    elif a.what == "polled":
        json.dump(polled(Nvml(a.library)), sys.stdout)
    else:
        results = json.loads(lzma.decompress(Path(a.out).read_bytes()))
        print(table(results | {name: spread(results[name]) for name in ("energy", "instant")}, a.which))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "4")
    main()
