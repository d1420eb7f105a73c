"""What a schedule of apex-gpu gains over serial launches, a graph of one stream, and streams chosen by hand.

    schedule.py measure --folder BIN --out DIR [--rounds N] [--small]
    schedule.py table FILE
    schedule.py rows --folder BIN --out DIR [--seconds N] [--small]
    schedule.py rows-table FILE

`measure` needs two programs in BIN, and no Rust:

    cargo build --release -p apex-gpu --no-default-features --example schedule
    cargo test -p apex-gpu --test schedules --no-run      (target/debug/deps/schedules-*, as BIN/schedules)

It runs the tests, which compare 2,000 random programs with their serial execution bit by bit, then the six programs of the
example in four ways, which take turns in each round, and writes DIR/schedule.json. `--small` tries that without a GPU.
`table` prints the table of such a file: docs/results/schedule-h200.md shows it.

`rows` needs `apex`, its libraries and the program `schedule` in BIN. It runs the six programs on one stream, unmodified, without APEX and with `apex run
--fast=batch` and `--fast=schedule`, and beside them a graph of one stream and streams chosen by hand, in turns for N seconds, each in rows of 20 runs
without a wait between them, and writes DIR/rows.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
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


def device_name():
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
    results = {"device": device_name(), "tests": tests.strip().splitlines(), "lines": [json.loads(line) for line in lines]}
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


ROWS = {"bare": ("serial", None), "batch": ("serial", "--fast=batch"), "scheduled": ("serial", "--fast=schedule"),
        "graph": ("graph", None), "streams": ("streams", None)}


def rows(arguments):
    with tempfile.TemporaryDirectory() as sessions_folder:
        rows_in(arguments, sessions_folder)


def rows_in(arguments, sessions_folder):
    folder, out = arguments.folder.resolve(), arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "APEX_LIB_DIR": str(folder)}
    mode, begun, done, sessions = "rows-try" if arguments.small else "rows", time.monotonic(), [], []
    while len(done) < 2 or time.monotonic() - begun < arguments.seconds * len(done) / (len(done) + 1):
        names = list(ROWS) if len(done) % 2 == 0 else list(reversed(ROWS))
        found = {}
        for name in names:
            way, fast = ROWS[name]
            command = [str(folder / "schedule"), mode, way]
            if fast:
                session = Path(sessions_folder) / f"{name}-{len(done)}"
                device = ["--device", "cpu"] if arguments.small else []
                command = [str(folder / "apex"), "run", "--quiet", "--no-machine", "--host-stacks", "off", *device, fast,
                           "-o", str(session), "--", *command]
            print("+", *command, flush=True)
            ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
            if ran.returncode:
                sys.exit(f"{command}: exit status {ran.returncode}\n{ran.stdout}\n{ran.stderr}")
            found[name] = [json.loads(line) for line in ran.stdout.splitlines()]
            if fast:
                report = subprocess.run([str(folder / "apex"), "report", "--json", str(session)], capture_output=True,
                                        text=True, timeout=120, env=environment)
                queue = json.loads(report.stdout)["profile"]["processes"][0].get("queue") if report.returncode == 0 else report.stderr
                sessions.append({"way": name, "queue": queue})
        done.append(found)
        (out / "rows.json").write_text(json.dumps({"device": device_name(), "rounds": done, "sessions": sessions}) + "\n")
    print(rows_tables({"rounds": done}))
    print(json.dumps(sessions), flush=True)


def of_rounds(times, scheduled):
    """The median of the rounds' ratios, and the least and the greatest."""
    ratios = sorted(time / schedule for time, schedule in zip(times, scheduled))
    return f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def rows_tables(results):
    rounds, lines = results["rounds"], []
    for at, line in enumerate(results["rounds"][0]["bare"]):
        times = {name: [one[name][at]["us"] for one in rounds] for name in ROWS}
        against = [of_rounds(times[name], times["scheduled"]) for name in ("bare", "batch", "graph", "streams")]
        lines.append([line["program"], "small" if line["scale"] < 2 else "large", *(f"{median(times[name]):,.1f}" for name in ROWS), *against])
    header = ["program", "size", "one stream, µs", "`--fast=batch`, µs", "`--fast=schedule`, µs", "graph, µs", "streams, µs",
              "schedule against one stream", "against `--fast=batch`", "against the graph", "against streams"]
    return table(header, lines)


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
    in_rows = commands.add_parser("rows")
    in_rows.add_argument("--folder", type=Path, required=True)
    in_rows.add_argument("--out", type=Path, required=True)
    in_rows.add_argument("--seconds", type=int, default=110)
    in_rows.add_argument("--small", action="store_true")
    of_rows = commands.add_parser("rows-table")
    of_rows.add_argument("file", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "measure":
        measure(arguments)
    elif arguments.command == "rows":
        rows(arguments)
    elif arguments.command == "rows-table":
        print(rows_tables(read_results(arguments.file)), end="")
    else:
        print(tables(read_results(arguments.file)), end="")


if __name__ == "__main__":
    main()
