"""What a schedule of apex-gpu gains over serial launches, a graph of one stream, and streams chosen by hand.

    schedule.py measure --folder BIN --out DIR [--rounds N] [--small]
    schedule.py table FILE

`measure` needs two programs in BIN, and no Rust:

    cargo build --release -p apex-gpu --no-default-features --example schedule
    cargo test -p apex-gpu --test schedules --no-run      (target/debug/deps/schedules-*, as BIN/schedules)

It runs the tests, which compare 2,000 random programs with their serial execution bit by bit, then the six programs of the
example in four ways, which take turns in each round, and writes DIR/schedule.json. `--small` tries that without a GPU.
`table` prints the table of such a file: docs/results/schedule-h200.md shows it.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from bench import median, shown_ratio
from figures import read_results, table

WAYS = ["serial", "graph", "streams", "schedule"]


def run(command, limit):
    print("+", *command, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    if done.returncode:
        sys.exit(f"{command}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def device():
    query = "--query-gpu=name,driver_version"
    try:
        return subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    except OSError:
        return "no GPU"


def measure(arguments):
    folder, out = arguments.folder.resolve(), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    tests = run([str(folder / "schedules"), "--test-threads=1"], 150)
    print(tests, flush=True)
    mode = "try" if arguments.small else "bench"
    lines = run([str(folder / "schedule"), mode, str(arguments.rounds)], 240).splitlines()
    results = {"device": device(), "tests": tests.strip().splitlines(), "lines": [json.loads(line) for line in lines]}
    (out / "schedule.json").write_text(json.dumps(results) + "\n")
    print(tables(results))


def tables(results):
    checks = [line for line in results["lines"] if "nodes" in line]
    rows = []
    for check in checks:
        name, scale = check["program"], check["scale"]
        rounds = [line["us"] for line in results["lines"] if "us" in line and (line["program"], line["scale"]) == (name, scale)]
        times = {way: [one[way] for one in rounds] for way in WAYS}
        against = [shown_ratio(times[way], times["schedule"]) for way in WAYS[:-1]]
        rows.append([name, "small" if scale == 1 else "large", f"{check['nodes']} / {check['longest_chain']}",
                     *(f"{median(times[way]):,.1f}" for way in WAYS), *against, f"{check['error']:.0e}"])
    header = ["program", "size", "nodes / longest chain", *(f"{way}, µs" for way in WAYS), "schedule against serial",
              "against the graph", "against streams", "error against f64"]
    return table(header, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--folder", type=Path, required=True)
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--rounds", type=int, default=8)
    measuring.add_argument("--small", action="store_true")
    printing = commands.add_parser("table")
    printing.add_argument("file", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "measure":
        measure(arguments)
    else:
        print(tables(read_results(arguments.file)), end="")


if __name__ == "__main__":
    main()
