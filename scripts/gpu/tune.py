"""What `apex tune` gains on programs with poor launch shapes, and whether their results stay the same, bit by bit.

    tune.py measure [--apex BIN] [--out DIR] [--turns N] [--longest SECONDS] [--suite FOLDER] [PROGRAM]…
    tune.py table FILE

The programs are ours (testing/tune) and some of HeCBench (https://github.com/zjin-lcf/HeCBench), of which FOLDER is the `src` folder or a part of it; nothing of it is kept here.
Each program is tuned (three runs), then verified (`apex tune --verify`, three runs each: alone, and with `--fast=batch`), and then runs with the profile and without in turns. The
checksum that ours print must be the same each time. Kernel times are medians of the runs' sums, as `apex run` measures them. It needs nvcc, and CuPy and numba for some
programs; what cannot be built or run is listed with the reason. Raw figures go to DIR/tune.json after each program. `APEX_BIN` names the folder of `apex` and its libraries.
"""

import argparse
import concurrent.futures
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import read_results

PROGRAMS = Path(__file__).resolve().parents[2] / "testing" / "tune"
# Longest run of a program, in seconds.
LIMIT = 60
# The code that runs is the PTX, which the driver compiles.
NVCC = ["nvcc", "-O3", "-std=c++17", "-w", "-arch=compute_90", "-code=compute_90"]
# Programs of HeCBench with poor shapes, and their arguments: those of its `make run`, with fewer repetitions.
PUBLIC = {
    "hellinger-cuda": ["100"],
    "minkowski-cuda": ["30"],
    "ace-cuda": ["60"],
    "bilateral-cuda": ["480", "320", "0.5", "0.5", "1000"],
    "burger-cuda": ["1000", "1000", "200"],
    "colorwheel-cuda": ["10", "2048", "300"],
    "iso2dfd-cuda": ["2000", "2000", "500"],
    "libor-cuda": ["100"],
    "mandelbrot-cuda": ["100"],
    "maxpool3d-cuda": ["1024", "1024", "32", "300"],
    "overlay-cuda": ["640", "480"],
    "surfel-cuda": ["1024", "320", "240", "100"],
}


class Failed(Exception):
    """A program cannot be measured; the text says why."""


def run(command, cwd=None, may_fail=False):
    """What a command prints."""
    variables = os.environ | {"CUPY_COMPILE_WITH_PTX": "1"}
    try:
        done = subprocess.run(
            command, env=variables, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if done.returncode != 0 and not (may_fail and done.returncode == 1):
        raise Failed(f"{command[0]} exits with status {done.returncode}: {done.stderr[-600:]}")
    return done.stdout


def options(folder):
    """What the Makefile of a public program defines and includes, but for checks on the CPU, which take long."""
    found = re.findall(r"(?<!\S)-[DI][\w./=-]+", (folder / "Makefile").read_text(errors="replace"))
    return [option for option in found if option not in ("-DVERIFY", "-DDEBUG")]


def built(source, folder):
    """The command that runs a program, and the folder that it runs in."""
    if source.suffix == ".py":
        return [sys.executable, str(source)], folder
    program = folder / source.stem
    if source.is_dir():
        files = [str(path) for end in ("cu", "cpp") for path in sorted(source.glob(f"*.{end}"))]
        run([*NVCC, *options(source), "-o", str(program), *files], cwd=source)
        return [str(program), *PUBLIC[source.name]], source
    run([*NVCC, "-I", str(PROGRAMS), "-o", str(program), str(source)])
    return [str(program)], folder


def verified(apex, command, place, profile, fast):
    """What `apex tune --verify` says, as a document."""
    try:
        return json.loads(run([apex, "tune", "--verify", "--json", *fast, "-o", str(profile), "--", *command], place, may_fail=True))
    except (Failed, json.JSONDecodeError) as error:
        return {"failed": str(error)}


def recorded(apex, command, place, options, folder):
    """A run under `apex run`: what it printed, and the time of its kernels on the GPU, in ms."""
    session = Path(tempfile.mkdtemp(dir=folder)) / "session"
    printed = run([apex, "run", "--quiet", *options, "-o", str(session), "--", *command], place)
    report = json.loads(run([apex, "report", str(session), "--json"]))
    kernels = report["profile"]["kernels"]
    total_ns = sum(kernel["gpu"]["total_ns"]["value"] for kernel in kernels if kernel["gpu"])
    return printed, total_ns / 1e6


def measure_program(arguments, source, command, place, folder):
    """Tunes a program, and compares it with the profile and without."""
    apex, profile = arguments.apex, folder / f"{source.stem}.json"
    begun = time.monotonic()
    bare = run(command, place)
    if time.monotonic() - begun > arguments.longest:
        raise Failed(f"it takes more than {arguments.longest:g} s")
    begun = time.monotonic()
    tuned = json.loads(run([apex, "tune", "--json", "--budget", "5", "-o", str(profile), "--", *command], place))
    seconds, outputs = time.monotonic() - begun, [bare]
    changed = any(size["change"] for kernel in tuned["kernels"] for size in kernel["sizes"])
    before, after, fast = [], [], []
    ways = (([], before), (["--tuned", str(profile)], after), (["--fast=batch", "--tuned", str(profile)], fast))
    for _ in range(arguments.turns):
        for options, times in ways:
            printed, ms = recorded(apex, command, place, options, folder)
            outputs.append(printed)
            times.append(ms)
    ours = not source.is_dir()
    return {
        "program": source.name,
        "same_output": len(set(outputs)) == 1 if ours else None,
        "output": bare.strip() if ours else None,
        "tuning_seconds": round(seconds, 2),
        "before_ms": before,
        "after_ms": after,
        "fast_ms": fast,
        "verified": verified(apex, command, place, profile, []) if changed else None,
        "verified_fast": verified(apex, command, place, profile, ["--fast=batch"]) if changed else None,
        "profile": tuned,
    }


def measure(arguments):
    """Measures all programs, and writes what is known after each."""
    results = {"driver": "", "device": "", "programs": []}
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    sources = sorted(path for path in PROGRAMS.iterdir() if path.suffix in (".cu", ".py"))
    sources += [Path(arguments.suite).resolve() / name for name in PUBLIC] if arguments.suite else []
    wanted = [path for path in sources if not arguments.programs or path.stem in arguments.programs]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(14) as pool:
        builds = [pool.submit(built, source, Path(folder)) for source in wanted]
        concurrent.futures.wait(builds)
        for source, build in zip(wanted, builds):
            try:
                result = measure_program(arguments, source, *build.result(), Path(folder))
                results["device"], results["driver"] = result["profile"]["device"], result["profile"]["driver_version"]
            except Failed as error:
                result = {"program": source.name, "failed": str(error)}
            results["programs"].append(result)
            print(line(result), flush=True)
            (out / "tune.json").write_text(json.dumps(results, indent=1) + "\n")
    wrong = [result["program"] for result in results["programs"] if same(result) == "**OTHER**"]
    return f"other results: {', '.join(wrong)}" if wrong else None


def same(result):
    """Whether results are the same with the profile, in words."""
    found = [result.get("verified"), result.get("verified_fast")]
    differs = any(one and one.get("first_difference") for one in found)
    if result.get("same_output") is False or differs:
        return "**OTHER**"
    if not any(found):
        return "same" if result.get("same_output") else "-"
    counts = []
    for one in found:
        if one is None or "failed" in one:
            counts.append("not compared")
        else:
            unsure = sum(one["not_repeatable"].values())
            text = f"{one['same']['copies']} + {one['same']['allocations']}"
            counts.append(text + (f" ({unsure} not repeatable)" if unsure else ""))
    return "same: " + ", ".join(dict.fromkeys(counts))


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
        return f"| {result['program']} | failed | | | | {result['failed'].splitlines()[0]} |"
    before, *others = (statistics.median(result[name]) for name in ("before_ms", "after_ms", "fast_ms") if result.get(name))
    times = [f"{time:.1f} ms ({time / before - 1:+.0%})" for time in others] + ["-"] * (2 - len(others))
    return f"| {result['program']} | {before:.1f} ms | {' | '.join(times)} | {same(result)} | {change(result['profile'])} |"


def show(arguments):
    """Prints the table of a file of raw figures."""
    results = read_results(arguments.file)
    print("| program | kernels | tuned | tuned, fast | results | block, time |\n| --- | ---: | ---: | ---: | --- | --- |")
    print("\n".join(map(line, results["programs"])))


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--apex", default=str(Path(os.environ.get("APEX_BIN", "target/release")) / "apex"))
    measuring.add_argument("--out", default=os.environ.get("OUT", "out"))
    measuring.add_argument("--turns", type=int, default=3)
    measuring.add_argument("--longest", type=float, default=4, help="longest run alone of a program that is measured, in seconds")
    measuring.add_argument("--suite", help="the folder `src` of HeCBench, for its programs")
    measuring.add_argument("programs", nargs="*")
    measuring.set_defaults(work=measure)
    showing = commands.add_parser("table")
    showing.add_argument("file")
    showing.set_defaults(work=show)
    arguments = parser.parse_args()
    return arguments.work(arguments)


if __name__ == "__main__":
    sys.exit(main())
