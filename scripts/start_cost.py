#!/usr/bin/env python3
"""What APEX adds to the start of a program, and what the ranges of `apex_cuda` cost: Markdown on stdout.

    cargo build --release
    nice -n -20 scripts/start_cost.py target/release/apex >docs/results/start.md

A program has started when its first byte arrives: `/bin/echo` in a pipe. The ways of starting take turns, so that a busy
machine is busy for all of them. Medians and the fastest of each are given.
"""

import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 200
RANGES = 300_000
ECHO = ["/bin/echo", "x"]


def first_byte(command, environment):
    """Milliseconds until the command's first byte arrives, and until it has ended."""
    begin = time.perf_counter_ns()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        if not child.stdout.read(1):
            sys.exit(f"{command} printed nothing")
        arrived = time.perf_counter_ns()
        child.stdout.read()
    return (arrived - begin) / 1e6, (time.perf_counter_ns() - begin) / 1e6


def starts(apex):
    """Milliseconds of each way of starting: to the first byte, and to the end."""
    folder = Path(tempfile.mkdtemp())
    library = Path(apex).with_name("libapex.so")
    if not library.exists():
        library = Path(apex).parent / "../lib/apex/libapex.so"
    environment = {"PATH": os.environ["PATH"], "HOME": "/"}
    preloaded = {**environment, "LD_PRELOAD": str(library.resolve())}
    session = str(folder / "s")
    ways = {
        "`apex --help`": ([apex, "--help"], environment),
        "`apex --version`": ([apex, "--version"], environment),
        "`echo x`": (ECHO, environment),
        "`echo x` with `libapex.so` preloaded": (ECHO, preloaded),
        "`apex run --device gpu -- echo x`": ([apex, "run", "-o", session, "--device", "gpu", "--", *ECHO], environment),
        "`apex run --device cpu -- echo x`": ([apex, "run", "-o", session, "--device", "cpu", "--", *ECHO], environment),
    }
    taken = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (command, variables) in ways.items():
            taken[name].append(first_byte(command, variables))
            shutil.rmtree(session, ignore_errors=True)
    shutil.rmtree(folder)
    return taken


MEASURE_RANGES = """
import timeit, sys
sys.path.insert(0, sys.argv[1])
import apex_cuda
number = int(sys.argv[2])
kept = apex_cuda.range("forward")
@apex_cuda.range("forward")
def decorated(): pass
def bare(): pass
ways = {
    "`with kept:`, a range that is made once": ("with kept: pass", "pass"),
    '`with apex_cuda.range("forward"):`': ("with apex_cuda.range('forward'): pass", "pass"),
    "a call of a function with the decorator": ("decorated()", "bare()"),
}
for name, (statement, base) in ways.items():
    fastest = [min(timeit.repeat(code, number=number, repeat=7, globals=globals())) for code in (statement, base)]
    print(f"{name}\\t{(fastest[0] - fastest[1]) / number * 1e9:.0f}")
"""


def ranges(apex):
    """Nanoseconds of a range, by way of naming it: without APEX, under it."""
    package = str(Path(__file__).resolve().parent.parent / "python")
    measure = [sys.executable, "-c", MEASURE_RANGES, package, str(RANGES)]
    with tempfile.TemporaryDirectory() as folder:
        under = [apex, "run", "-q", "-o", f"{folder}/s", "--device", "cpu", "--", *measure]
        done = [subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout for command in (measure, under)]
    tables = [dict(line.split("\t") for line in text.splitlines()) for text in done]
    return {name: [table[name] for table in tables] for name in tables[0]}


def main():
    """Measures and prints."""
    apex = os.path.abspath(sys.argv[1])
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    print("# What APEX adds to the start of a program\n")
    print(f"Measured on {time.strftime('%-d %B %Y')} with `scripts/start_cost.py`, {ROUNDS} starts of each: {processor}, {os.cpu_count()} cores,")
    print(f"Linux {platform.release()}, load {os.getloadavg()[0]:.1f}. Milliseconds, median (fastest).\n")
    print("| start | first byte | end |\n| --- | --- | --- |")
    taken = starts(apex)
    for name, times in taken.items():
        cells = (f"{statistics.median(column):.2f} ({min(column):.2f})" for column in zip(*times))
        print(f"| {name} | {' | '.join(cells)} |")
    bare, under = ([first for first, _ in taken[name]] for name in ("`echo x`", "`apex run --device gpu -- echo x`"))
    later = [statistic(under) - statistic(bare) for statistic in (statistics.median, min)]
    print(f"\nUnder `apex run` the program starts {later[0]:.2f} ms later ({later[1]:.2f} from the fastest of both).")
    print(f"\nA range of `apex_cuda`, nanoseconds (CPython {platform.python_version()}, the fastest of 7 times {RANGES:,}):\n")
    print("| range | without APEX | under `apex run` |\n| --- | --- | --- |")
    for name, cells in ranges(apex).items():
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
