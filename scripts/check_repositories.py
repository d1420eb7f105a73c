#!/usr/bin/env python3
"""Tries `apex check` on programs of public CUDA repositories, on the CPU device.

For each program: compiles it at a pinned commit, records it five times, writes budgets from the
first run, and has `apex check` judge the other four, which must be quiet. Then one regression at a
time is planted by an edit of its source (an extra copy, an extra launch, accesses that are not
coalesced, a missing barrier), and `apex check` must fail and name the figure. Needs nvcc
(`scripts/cuda-toolchain.sh DIR`), git and apex; no GPU.

    scripts/check_repositories.py --nvcc DIR/bin/nvcc --json out.json     measure (about 10 minutes)
    scripts/check_repositories.py --table out.json                        the table of docs/results/check.md

`--from` says where repositories are cloned from, such as 'https://github.com/{owner}/{name}'.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 5
# Figures of which at least one must be exceeded by each planted regression.
EXPECTED = {
    "copy": {"copies", "copied_bytes"},
    "launch": {"launches"},
    "uncoalesced": {"excessive_sectors"},
    "race": {"defects"},
}


class Fault(Exception):
    """A program cannot be tried."""


class Program:
    """A program of a repository, and edits (pattern, replacement) of its source."""

    def __init__(self, repository, commit, file, planted, **others):
        self.repository, self.commit, self.file = repository, commit, file
        self.planted, self.smaller = planted, others.get("smaller", [])
        self.flags, self.arguments = others.get("flags", []), others.get("arguments", [])
        # The folders that are checked out: the program's, and those that it includes.
        included = [flag[2:] for flag in self.flags if flag.startswith("-I")]
        self.folders = [str(Path(file).parent), *included, *others.get("needs", [])]


BARRIER = (r"__syncthreads\(\);", "")
PROGRAMS = [
    Program(
        "NVIDIA-developer-blog/code-samples",
        "72d62ec464442786a36754508bcb1094d197d6a5",
        "series/cuda-cpp/shared-memory/shared-memory.cu",
        {
            "copy": (r"(cudaMemcpy\(d_d, a.*?;)", r"\1 \1"),
            "launch": (r"(staticReverse<<<1,n>>>\(d_d, n\);)", r"\1 \1 \1"),
            "uncoalesced": (r"int t = threadIdx.x;", "int t = (threadIdx.x * 33) % 64;"),
            "race": BARRIER,
        },
    ),
    Program(
        "NVIDIA/cuda-samples",
        "c94ff366aed18c797b8a85dfaac7817b0228b420",
        "Samples/0_Introduction/matrixMul/matrixMul.cu",
        {
            "copy": (r"(checkCudaErrors\(cudaMemcpyAsync\(d_A.*?;)", r"\1 \1"),
            "launch": (r"nIter = 10;", "nIter = 11;"),
            "uncoalesced": (
                r"int tx = threadIdx.x;\s+int ty = threadIdx.y;",
                "int tx = threadIdx.y; int ty = threadIdx.x;",
            ),
            # The one behind the product: without the other one, the program itself fails.
            "race": (r"__syncthreads\(\);(\s+\}\s+// Write)", r"\1"),
        },
        # The packages of a toolkit on PyPI do not have the profiler's header.
        smaller=[
            (r"nIter = 300;", "nIter = 10;"),
            (r"#include <cuda_profiler_api.h>", ""),
            (r"checkCudaErrors\(cudaProfilerSt\w+\(\)\);", ""),
        ],
        flags=["-ICommon"],
        arguments=["-wA=64", "-hA=64", "-wB=64", "-hB=64"],
    ),
    Program(
        "brucefan1983/CUDA-Programming",
        "8b6c96ba30fafeb3f71c74b2abb18a6bf849822d",
        "src/08-shared-memory/reduce2gpu.cu",
        {
            "copy": (r"(CHECK\(cudaMemcpy\(h_y.*?;)", r"\1 \1"),
            "launch": (r"(reduce_shared<<<.*?;)", r"\1 \1"),
            "uncoalesced": (
                r"(\w+)\[tid\] = \(n < N\) \? d_x\[n\]",
                r"\1[tid] = (n < N) ? d_x[bid * blockDim.x + tid * 5 % 128]",
            ),
            "race": (r"0\.0;\s+__syncthreads\(\);", "0.0;"),
        },
        smaller=[(r"N = 100000000;", "N = 128000;"), (r"NUM_REPEATS = 100;", "NUM_REPEATS = 2;")],
    ),
    Program(
        "Tony-Tan/CUDA_Freshman",
        "979938216fbbd8bc81ccbc525c4dd1f8c0c9fcbb",
        "26_transform_shared_memory/transform_shared_memory.cu",
        {
            "copy": (r"(CHECK\(cudaMemcpy\(A_dev.*?;)", r"\1 \1"),
            "launch": (r"(\btransformSmem<<<grid,block>>>\(.*?;)", r"\1 \1"),
            "uncoalesced": (
                r"int idx=ix\+iy\*nx;",
                "int idx=(ix*8+ix/8)%64+ix/64*64+iy*nx;",
            ),
            "race": BARRIER,
        },
        smaller=[(r"nx=1<<12;", "nx=1<<8;"), (r"ny=1<<12;", "ny=1<<8;")],
        flags=["-Iinclude"],
        arguments=["2"],
    ),
    Program(
        "deeperlearning/professional-cuda-c-programming",
        "ee58310bcdcec62a609f02b6c5193452d8102183",
        "examples/chapter05/checkSmemSquare.cu",
        {
            "copy": (r"(CHECK\(cudaMemcpy\(gpuRef.*?;)", r"\1 \1"),
            "launch": (r"(setRowReadCol<<<grid, block>>>\(d_C\);)", r"\1 \1"),
            "uncoalesced": (
                r"idx = threadIdx.y \* blockDim.x \+ threadIdx.x;",
                "idx = threadIdx.x * blockDim.y + threadIdx.y;",
            ),
            "race": BARRIER,
        },
        # Toolkits of today do not have the mode of the banks.
        smaller=[
            (r"CHECK\(cudaDeviceGetSharedMemConfig.*?;", ""),
            (r"cudaSharedMemConfig pConfig;", "int pConfig = 1;"),
        ],
        needs=["examples/common"],
    ),
    Program(
        "olcf/vector_addition_tutorials",
        "27181b5a04c9ec4a9d441fb19c5b2d67fbe7e521",
        "CUDA/vecAdd.cu",
        {
            "copy": (r"(cudaMemcpy\( d_a.*?;)", r"\1 \1"),
            "launch": (r"(vecAdd<<<.*?;)", r"\1 \1"),
            "uncoalesced": (
                r"int id = blockIdx.x\*blockDim.x\+threadIdx.x;",
                "int id = blockIdx.x*blockDim.x + threadIdx.x % 32 * 32 + threadIdx.x / 32;",
            ),
        },
    ),
    Program(
        "CodedK/CUDA-by-Example-source-code-for-the-book-s-examples-",
        "0824fae6f6c4aba60a5cf339971f698b9d5a9a41",
        "chapter05/dot.cu",
        {
            "copy": (r"(HANDLE_ERROR\( cudaMemcpy\( dev_a.*?;)", r"\1 \1"),
            "launch": (r"(dot<<<.*?;)", r"\1 \1"),
            "uncoalesced": (
                r"int tid = threadIdx.x \+ blockIdx.x",
                "int tid = threadIdx.x % 16 * 16 + threadIdx.x / 16 + blockIdx.x",
            ),
            "race": (r"temp;\s+// synchronize threads in this block\s+__syncthreads\(\);", "temp;"),
        },
        needs=["common"],
    ),
    Program(
        "PacktPublishing/Learn-CUDA-Programming",
        "10bd9b59bfcc680d608ea1417da5089f73d91b11",
        "Chapter02/02_memory_overview/04_matrix_transpose/conflict_solved.cu",
        {
            "copy": (r"(cudaMemcpy\(d_a.*?;)", r"\1 \1"),
            "launch": (r"(matrix_transpose_shared<<<.*?;)", r"\1 \1"),
            "uncoalesced": (
                r"output\[transposedIndex\] = sharedMemory\[localIndexY\]\[localIndexX\];",
                "output[indexX * N + indexY] = sharedMemory[localIndexX][localIndexY];",
            ),
            "race": BARRIER,
        },
        smaller=[(r"#define N 1024", "#define N 256")],
    ),
    Program(
        "puttsk/cuda-tutorial",
        "dc6c2f1b0350edc20ac9f3c7c2c6f35624e3632d",
        "tutorial02/solutions/vector_add_grid.cu",
        {
            "copy": (r"(cudaMemcpy\(d_a.*?;)", r"\1 \1"),
            "launch": (r"(vector_add<<<.*?;)", r"\1 \1"),
            "uncoalesced": (
                r"blockDim.x \+ threadIdx.x;",
                "blockDim.x + threadIdx.x % 16 * 16 + threadIdx.x / 16;",
            ),
        },
        smaller=[(r"N 10000000", "N 100000")],
    ),
    Program(
        "moderngpu/moderngpu",
        "267cc8d02c03f00f1656f1205c61c946a1e530b0",
        "tests/test_reduce.cu",
        {
            "copy": (
                r"(std::vector<int> input_host = from_mem\(input\);)",
                r"\1 input_host = from_mem(input);",
            ),
            "launch": (r"(reduce<launch_t>\(.*?;)", r"\1 \1"),
            "uncoalesced": (r"input_data\[index\]", "input_data[index * 32 % count]"),
        },
        smaller=[(r"count < 23456789; count \+= count / 100", "count < 40000; count += 7777")],
        flags=["-Isrc", "--extended-lambda"],
    ),
]


def run(command, folder, *, code=0, seconds=600):
    """Runs a command, and expects its exit status: what it printed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
    )
    if code is not None and done.returncode != code:
        raise Fault(f"{command}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def clone(program, origin, folder):
    """A clone at the pinned commit."""
    owner, name = program.repository.split("/")
    if not folder.exists():
        address = origin.format(owner=owner, name=name)
        run(["git", "clone", "-q", "--no-checkout", address, str(folder)], None)
    run(["git", "checkout", "-q", program.commit, "--", *program.folders], folder)


def edit(text, edits, count=0):
    """The text after edits, each of which must apply."""
    for pattern, replacement in edits:
        text, made = re.subn(pattern, replacement, text, count=count, flags=re.DOTALL)
        if made == 0:
            raise Fault(f"the edit {pattern!r} does not apply")
    return text


def build(program, text, folder, nvcc):
    """The program with this source."""
    source = folder / program.file
    source.write_text(text, encoding="utf-8")
    flags = [f"-I{folder / flag[2:]}" if flag.startswith("-I") else flag for flag in program.flags]
    target = ["-gencode", "arch=compute_80,code=compute_80", "-lineinfo", "-w"]
    output = folder / "program-of-the-trial"
    run([nvcc, *target, *flags, "-o", str(output), source.name], source.parent)
    return str(output)


def record(program, binary, session, folder):
    """A run on the CPU device. Defects end it with status 123."""
    command = ["apex", "run", "--quiet", "--device", "cpu", "--check", "-o", session, "--", binary]
    done = run([*command, *program.arguments], folder, code=None)
    if done.returncode not in (0, 123):
        raise Fault(f"{program.file}: exit status {done.returncode}\n{done.stdout}{done.stderr}")


def judged(session, folder):
    """What limits the run exceeds, and the exit status of `apex check`."""
    done = run(["apex", "check", "--json", session], folder, code=None)
    if done.returncode not in (0, 1):
        return done.returncode, [done.stderr.strip()]
    limits = json.loads(done.stdout)["judged"]
    exceeded = [limit["quantity"] for limit in limits if limit["outcome"] != "kept"]
    return done.returncode, sorted(set(exceeded))


def attempt(program, arguments, folder):
    """One program: unchanged runs, and each planted regression."""
    begun = time.monotonic()
    where = folder / program.repository.replace("/", "+")
    clone(program, arguments.origin, where)
    text = (where / program.file).read_text(encoding="utf-8")
    plain = edit(text, program.smaller)
    binary = build(program, plain, where, arguments.nvcc)
    for number in range(RUNS):
        record(program, binary, f"run-{number}", where)
    run(["apex", "check", "--init", "run-0"], where)
    budgets = (where / "apex-budgets.toml").read_text(encoding="utf-8")
    quiet = [judged(f"run-{number}", where)[0] == 0 for number in range(1, RUNS)]
    planted = {}
    for kind, (pattern, replacement) in program.planted.items():
        # An extra copy or launch is one; indices and barriers are changed everywhere.
        changed = edit(plain, [(pattern, replacement)], int(kind in ("copy", "launch")))
        binary = build(program, changed, where, arguments.nvcc)
        record(program, binary, kind, where)
        status, exceeded = judged(kind, where)
        found = status == 1 and bool(EXPECTED[kind] & set(exceeded))
        planted[kind] = {"found": found, "status": status, "exceeded": exceeded}
    return {
        "repository": program.repository,
        "commit": program.commit,
        "file": program.file,
        "limits": len(re.findall(r"^\w+ = [0-9]", budgets, re.MULTILINE)),
        "unchanged_runs": len(quiet),
        "quiet": sum(quiet),
        "planted": planted,
        "seconds": round(time.monotonic() - begun, 1),
    }


def table(results):
    """The results as Markdown."""
    print(
        "| repository, commit | program | limits | unchanged runs quiet | "
        + " | ".join(EXPECTED)
        + " |"
    )
    print("| --- | --- | ---: | ---: | " + " | ".join(["---"] * len(EXPECTED)) + " |")
    for one in results:
        cells = [f"`{one['repository']}` `{one['commit'][:10]}`", f"`{one['file'].split('/')[-1]}`"]
        cells += [str(one["limits"]), f"{one['quiet']} of {one['unchanged_runs']}"]
        for kind, figures in EXPECTED.items():
            found = one["planted"].get(kind)
            named = [name for name in (found or {}).get("exceeded", []) if name in figures]
            cells.append(
                "–" if found is None else ", ".join(named) if found["found"] else "**missed**"
            )
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nvcc", default="nvcc", help="the compiler")
    parser.add_argument("--from", dest="origin", default="https://github.com/{owner}/{name}")
    parser.add_argument("--only", default="", help="only repositories whose name contains this")
    parser.add_argument("--json", type=Path, help="the file for the results")
    parser.add_argument(
        "--table", type=Path, help="print the table of such a file, and do nothing else"
    )
    arguments = parser.parse_args()
    if arguments.table:
        table(json.loads(arguments.table.read_text(encoding="utf-8")))
        return
    results, failed = [], 0
    with tempfile.TemporaryDirectory(prefix="apex-check-") as folder:
        for program in PROGRAMS:
            if arguments.only not in program.repository:
                continue
            try:
                results.append(attempt(program, arguments, Path(folder)))
            except Fault as fault:
                failed += 1
                print(f"{program.repository}: {fault}", file=sys.stderr)
                continue
            print(json.dumps(results[-1]["planted"]), results[-1]["seconds"], "s", file=sys.stderr)
            if arguments.json:
                text = "[\n" + ",\n".join(map(json.dumps, results)) + "\n]\n"
                arguments.json.write_text(text, encoding="utf-8")
    table(results)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
