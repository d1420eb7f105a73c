"""What `apex tune` gains on programs with poor launch shapes (testing/tune), and whether their results stay the same, bit by bit.

    tune.py measure [--apex BIN] [--out DIR] [--turns N] [PROGRAM]…
    tune.py table FILE

Each program is tuned (three runs), and then runs with the profile and without in turns. Its checksum must be the same each time. Kernel times are medians
of the runs' means, as `apex run` measures them. It needs nvcc, and CuPy for some programs; what cannot be built or run is listed with the reason. Raw
figures go to DIR/tune.json after each program. `APEX_BIN` names the folder of `apex` and its libraries.
"""

import argparse
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[2] / "testing" / "tune"
# Longest run of a program, in seconds.
LIMIT = 60
# The code that runs is the PTX, which the driver compiles.
NVCC = ["nvcc", "-O3", "-arch=compute_90", "-code=compute_90", "-I", str(PROGRAMS)]


class Failed(Exception):
    """A program cannot be measured; the text says why."""


def run(command, **environment):
    """What a command prints."""
    variables = os.environ | {"CUPY_COMPILE_WITH_PTX": "1"} | environment
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if done.returncode != 0:
        raise Failed(f"{command[0]} exits with status {done.returncode}: {done.stderr[-600:]}")
    return done.stdout


def built(source, folder):
    """The command that runs a program."""
    if source.suffix == ".py":
        return [sys.executable, str(source)]
    program = folder / source.stem
    run([*NVCC, "-o", str(program), str(source)])
    return [str(program)]


def recorded(apex, command, options, folder):
    """A run under `apex run`: what it printed, and the time of its kernels on the GPU, in ms."""
    session = Path(tempfile.mkdtemp(dir=folder)) / "session"
    printed = run([apex, "run", "--quiet", *options, "-o", str(session), "--", *command])
    report = json.loads(run([apex, "report", str(session), "--json"]))
    kernels = report["profile"]["kernels"]
    total_ns = sum(kernel["gpu"]["total_ns"]["value"] for kernel in kernels if kernel["gpu"])
    return printed, total_ns / 1e6


def measure_program(apex, source, turns, folder):
    """Tunes a program, and compares it with the profile and without."""
    command, profile = built(source, folder), folder / f"{source.stem}.json"
    bare = run(command)
    begun = time.monotonic()
    tuned = json.loads(run([apex, "tune", "--json", "--budget", "5", "-o", str(profile), "--", *command]))
    seconds, outputs = time.monotonic() - begun, [bare]
    before, after = [], []
    for _ in range(turns):
        for options, times in (([], before), (["--tuned", str(profile)], after)):
            printed, ms = recorded(apex, command, options, folder)
            outputs.append(printed)
            times.append(ms)
    return {
        "program": source.name,
        "same_output": len(set(outputs)) == 1,
        "output": bare.strip(),
        "tuning_seconds": round(seconds, 2),
        "before_ms": before,
        "after_ms": after,
        "profile": tuned,
    }


def measure(arguments):
    """Measures all programs, and writes what is known after each."""
    results = {"driver": "", "device": "", "programs": []}
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    sources = sorted(path for path in PROGRAMS.iterdir() if path.suffix in (".cu", ".py"))
    wanted = [path for path in sources if not arguments.programs or path.stem in arguments.programs]
    with tempfile.TemporaryDirectory() as folder:
        for source in wanted:
            try:
                result = measure_program(arguments.apex, source, arguments.turns, Path(folder))
                results["device"], results["driver"] = result["profile"]["device"], result["profile"]["driver_version"]
            except Failed as error:
                result = {"program": source.name, "failed": str(error)}
            results["programs"].append(result)
            print(line(result), flush=True)
            (out / "tune.json").write_text(json.dumps(results, indent=1) + "\n")
    wrong = [result["program"] for result in results["programs"] if not result.get("same_output", True)]
    return f"other results: {', '.join(wrong)}" if wrong else None


def shape(block):
    """A block as people write it."""
    while len(block) > 1 and block[-1] == 1:
        block = block[:-1]
    return "×".join(map(str, block))


def change(profile):
    """What became of the kernel that takes most time, in words."""
    sizes = [size for kernel in profile["kernels"] for size in kernel["sizes"]]
    better = [size for size in sizes if size["change"]]
    if better:
        size = max(better, key=lambda size: size["share"])
        ratio = size["change"]["ratio"]
        found = f"{ratio['median']:.0%} ({ratio['low']:.0%} … {ratio['high']:.0%})"
        return f"{shape(size['asked'])} → {shape(size['change']['block'])}, {found}"
    if profile["refused"]:
        refused = max(profile["refused"], key=lambda refused: refused["share"])
        return f"refused: {refused['reason']} `{refused['instruction']}`"
    return f"kept: {sizes[0]['kept']['reason']}" if sizes else "no kernel"


def line(result):
    """A row of the table."""
    if "failed" in result:
        return f"| {result['program']} | failed | | | {result['failed'].splitlines()[0]} |"
    before, after = statistics.median(result["before_ms"]), statistics.median(result["after_ms"])
    same = "same" if result["same_output"] else "**OTHER**"
    return f"| {result['program']} | {before:.1f} ms | {after:.1f} ms ({after / before - 1:+.0%}) | {same} | {change(result['profile'])} |"


def show(arguments):
    """Prints the table of a file of raw figures."""
    opened = lzma.open if arguments.file.endswith(".xz") else open
    with opened(arguments.file, "rt") as file:
        results = json.load(file)
    print("| program | kernels | tuned | results | block, time |\n| --- | ---: | ---: | --- | --- |")
    print("\n".join(map(line, results["programs"])))


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--apex", default=str(Path(os.environ.get("APEX_BIN", "target/release")) / "apex"))
    measuring.add_argument("--out", default=os.environ.get("OUT", "out"))
    measuring.add_argument("--turns", type=int, default=3)
    measuring.add_argument("programs", nargs="*")
    measuring.set_defaults(work=measure)
    showing = commands.add_parser("table")
    showing.add_argument("file")
    showing.set_defaults(work=show)
    arguments = parser.parse_args()
    return arguments.work(arguments)


if __name__ == "__main__":
    sys.exit(main())
