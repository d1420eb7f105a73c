#!/usr/bin/env python3
"""Compiles the kernels of public suites to PTX, and says of how many of them another block is proven to change no result.

    suite_ptx.py compile --suite FOLDER --out DIR [--every N]
    suite_ptx.py judge DIR... [--open]

FOLDER is a clone of HeCBench (https://github.com/zjin-lcf/HeCBench) or of cuda-samples (https://github.com/NVIDIA/cuda-samples), of which nothing is
kept here. `compile` takes each N-th folder with CUDA C++ sources and compiles each of them for compute_90 with scripts/nvcc and the definitions and
folders of its Makefile; what does not compile is counted. `judge` needs `cargo build -p apex-reshape --example kernels`.

A kernel qualifies if another block changes no result in all launches that its program can make. For many the answer is plain: those that are proven do, and those
that use shared memory, barriers, operations of a warp, floating-point atomics, clocks or `printf` do not. About the others a person decided from the source:
crates/ptx/reshape/examples/by-hand.tsv has the program, the kernel, yes or no, and why. `--open` lists those that nobody has decided about.
"""

import argparse
import collections
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BY_HAND = ROOT / "crates" / "ptx" / "reshape" / "examples" / "by-hand.tsv"
# Reasons that rule a kernel out.
RULED_OUT = (
    "no proof covers this instruction",
    "this register tells where the thread runs",
    "the result of the atomic operation is used or depends on the order",
)
# Longest compilation of a file, in seconds.
LIMIT = 90


def programs(suite):
    """The folders with CUDA C++, in order."""
    sources = [path for path in suite.rglob("*.cu") if "-omp" not in str(path)]
    return sorted({path.parent for path in sources})


def options(folder, suite):
    """What a folder's Makefile defines and includes; the suite's common folders."""
    makefile = folder / "Makefile"
    text = makefile.read_text(errors="replace") if makefile.exists() else ""
    found = re.findall(r"(?<!\S)-[DI][\w./=-]+", text)
    common = [path for path in (suite / "Common", suite / "src" / "include") if path.is_dir()]
    return [*found, "-I", str(folder), *(f"-I{path}" for path in common)]


def compile_one(source, folder, suite, out):
    """Compiles a file; false if that fails."""
    command = [str(ROOT / "scripts" / "nvcc"), "-ptx", "-O3", "-std=c++17", "-arch=compute_90", "-lineinfo", "-w"]
    command += [*options(folder, suite), "-o", str(out), str(source)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def compile_all(arguments):
    """Compiles each N-th program."""
    suite, out = Path(arguments.suite).resolve(), Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    failed, made = 0, 0
    for folder in programs(suite)[:: arguments.every]:
        for source in sorted(folder.glob("*.cu")):
            name = f"{folder.name}.{source.stem}.ptx"
            if (out / name).exists() or compile_one(source, folder, suite, out / name):
                made += 1
            else:
                failed += 1
    print(f"{out}: {made} files compiled, {failed} not")


def program(path):
    """The program of a PTX file."""
    return Path(path).name.split(".")[0].removesuffix("-cuda")


def judged(folders):
    """The answer about each kernel, by program and name: a program may compile a kernel twice."""
    command = [str(ROOT / "target" / "debug" / "examples" / "kernels")]
    command += [str(path) for folder in folders for path in sorted(Path(folder).glob("*.ptx"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {(program(row[0]), row[1]): row[2:] for row in rows}


def decided():
    """What a person decided: whether the kernel qualifies."""
    rows = [line.split("\t") for line in BY_HAND.read_text().splitlines()]
    return {(row[0], row[1]): row[2] == "yes" for row in rows}


def judge(arguments):
    """Prints how many kernels qualify, and how many of these are proven."""
    answers, by_hand = judged(arguments.folders), decided()
    counts, wrong = collections.Counter(), []
    for key, (verdict, *why) in sorted(answers.items()):
        if verdict == "proven":
            counts["proven"] += 1
            if by_hand.get(key) is False:
                wrong.append(key)
        elif key in by_hand:
            counts["qualifies, not proven" if by_hand[key] else "does not qualify, by hand"] += 1
        elif why and why[0] in RULED_OUT:
            counts["does not qualify, by an instruction"] += 1
        else:
            counts["open"] += 1
            if arguments.open:
                print(*key, *why, sep="\t")
    print("| kernels | |\n| --- | ---: |")
    for name, count in sorted(counts.items()):
        print(f"| {name} | {count} |")
    qualify = counts["proven"] + counts["qualifies, not proven"]
    print(f"| of those that qualify, proven | {counts['proven'] / max(qualify, 1):.0%} |")
    return f"proven, and does not qualify: {wrong}" if wrong else None


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    compiling = commands.add_parser("compile")
    compiling.add_argument("--suite", required=True)
    compiling.add_argument("--out", required=True)
    compiling.add_argument("--every", type=int, default=1)
    compiling.set_defaults(work=compile_all)
    judging = commands.add_parser("judge")
    judging.add_argument("folders", nargs="+")
    judging.add_argument("--open", action="store_true")
    judging.set_defaults(work=judge)
    arguments = parser.parse_args()
    return arguments.work(arguments)


if __name__ == "__main__":
    sys.exit(main())
