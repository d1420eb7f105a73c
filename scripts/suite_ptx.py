#!/usr/bin/env python3
"""Compiles the kernels of public suites to PTX, and says of how many of them another block is proven to change no result.

    suite_ptx.py compile --suite FOLDER --out DIR [--every N]
    suite_ptx.py judge DIR... [--by-hand FILE] [--json FILE]

FOLDER is a clone of HeCBench (https://github.com/zjin-lcf/HeCBench) or of cuda-samples (https://github.com/NVIDIA/cuda-samples), of which nothing is
kept here. `compile` takes each N-th folder with CUDA C++ sources and compiles each of them for compute_90 with scripts/nvcc and the definitions and
folders of its Makefile; what does not compile is counted. `judge` needs `cargo build -p apex-reshape --example kernels`.

Kernels are sorted by the reason of the answer. Shared memory, barriers, operations of a warp, floating-point atomics, clocks, `printf` and so on rule a
kernel out: no other block may be proven. Of the others a person decides: FILE has a line `SUITE/PROGRAM KERNEL yes|no WHY` for each that was read, where
yes means that another block changes no result for all launches that the program can make.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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
