#!/usr/bin/env python3
"""Measures how fast large traces are imported, and in how much memory.

    scripts/import_speed.py FOLDER --example target/release/examples/import_trace [--gigabytes 1] [--kernels 10000000]

It makes a JSON trace of the given size in FOLDER (plain and compressed), unless it is there, with launches, kernels, operators and frames in the
proportions of a real one, and an export of Nsight Systems with the given number of kernels and launches, and imports each
(`cargo build --release -p apex-import --example import_trace`). With `--hta PYTHON`, an interpreter that has
HolisticTraceAnalysis (`pip install HolisticTraceAnalysis==0.5.0`), it also makes a smaller JSON trace, which APEX imports and
HTA reads: only its parsing, without an analysis.
"""

import argparse
import os
import resource
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

EVENT = (
    '  {{"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 7, "tid": 7, "ts": {t}.123, "dur": 9.5, "args": {{"External id": {n}, "Record function id": 0, '
    '"Concrete Inputs": ["", "", ""], "Input type": ["float", "float", "float"], "Input Dims": [[8, 512], [2048, 512], [2048]], "Ev Idx": {n}}}}},\n'
    '  {{"ph": "X", "cat": "python_function", "name": "torch/nn/modules/linear.py(114): forward", "pid": 7, "tid": 7, "ts": {t}.001, "dur": 12.5, '
    '"args": {{"Python parent id": {n}, "Python id": {n}, "Ev Idx": {n}}}}},\n'
    '  {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": {t}.500, "dur": 4.25, "args": {{"External id": {n}, "cbid": 211, '
    '"correlation": {n}}}}},\n'
    '  {{"ph": "s", "id": {n}, "pid": 7, "tid": 7, "ts": {t}.500, "cat": "ac2g", "name": "ac2g"}},\n'
    '  {{"ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int, '
    'at::native::FillFunctor<float>, at::detail::Array<char*, 1>)", "pid": 0, "tid": 7, "ts": {k}.750, "dur": 6.125, "args": {{"External id": {n}, "queued": 0, '
    '"device": 0, "context": 1, "stream": 7, "correlation": {n}, "registers per thread": 32, "shared memory": 0, "blocks per SM": 1.5, "warps per SM": 12.0, '
    '"grid": [198, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 19}}}},\n'
    '  {{"ph": "f", "id": {n}, "pid": 0, "tid": 7, "ts": {k}.750, "cat": "ac2g", "name": "ac2g", "bp": "e"}}'
)


# Kernels of different names in the export of Nsight Systems.
KINDS = 200


def make_json(path, size):
    if path.exists():
        return
    with path.open("w") as out:
        out.write('{"schemaVersion": 1, "baseTimeNanoseconds": 1700000000000000000, "traceEvents": [\n')
        written = number = 0
        while written < size:
            text = ",\n".join(EVENT.format(t=1000 + n * 13, k=1020 + n * 13, n=n + 1) for n in range(number, number + 1000))
            out.write((",\n" if number else "") + text)
            written, number = written + len(text), number + 1000
        out.write("\n]}\n")


def make_sqlite(path, kernels):
    if path.exists():
        return
    database = sqlite3.connect(path)
    database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; CREATE TABLE StringIds (id INTEGER, value TEXT);"
                           "INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000');"
                           "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER,"
                           " correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER,"
                           " blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER);"
                           "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);")
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::Functor{}<float>, at::detail::Array<char*, 3>>(int, {})"
    names = [name.format(n, "at::detail::Array<char*, 3>, " * (n % 7)) for n in range(KINDS)]
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names, 2))
    database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, 117440512, ?, ?, 1, 1, 256, 1, 1, 32)",
                         ((n * 9000 + 6000, n * 9000 + 12000, n + 1, 2 + n * 7919 % KINDS, 1 + n * 31 % 5) for n in range(kernels)))
    database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 117440519, ?, 1, 0)", ((n * 9000, n * 9000 + 4000, n + 1) for n in range(kernels)))
    database.commit()


HTA = "import sys; from hta.trace_analysis import TraceAnalysis; print(TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir='').t.traces[0].shape)"


def measure(command, session):
    """Seconds, seconds of CPU time and MiB of a command, which may write a session, and what it prints."""
    shutil.rmtree(session, ignore_errors=True)
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    out, _ = process.stdout.read(), process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    assert status == 0, status
    shutil.rmtree(session, ignore_errors=True)
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out.decode().strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--example", type=Path, required=True)
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--kernels", type=int, default=10_000_000)
    parser.add_argument("--hta", help="a Python with HolisticTraceAnalysis")
    parser.add_argument("--hta-gigabytes", type=float, default=0.1)
    a = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    a.folder.mkdir(parents=True, exist_ok=True)
    plain, export, session = a.folder / "large.trace.json", a.folder / "large.sqlite", a.folder / "session"
    small = a.folder / "small.trace.json"
    make_json(plain, a.gigabytes * 2**30)
    size = plain.stat().st_size / 1e6
    print("| trace | size | import, s | CPU, s | MB/s of CPU time | most memory, MiB |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    show = lambda name, megabytes, seconds, cpu, memory, _: print(f"| {name} | {megabytes:,.0f} MB | {seconds:.1f} | {cpu:.1f} | {megabytes / cpu:.0f} | {memory:.0f} |", flush=True)
    show("JSON", size, *measure([a.example, plain, session], session))
    subprocess.run(["gzip", "-1", "-f", plain], check=True)
    show("the same, compressed (size before)", size, *measure([a.example, f"{plain}.gz", session], session))
    Path(f"{plain}.gz").unlink()
    if a.hta:
        make_json(small, a.hta_gigabytes * 2**30)
        megabytes = small.stat().st_size / 1e6
        show("a smaller JSON", megabytes, *measure([a.example, small, session], session))
        show("the same by HTA 0.5.0", megabytes, *measure([a.hta, "-c", HTA, small], session))
        small.unlink()
    make_sqlite(export, a.kernels)
    show(f"SQLite, {a.kernels:,} kernels", export.stat().st_size / 1e6, *measure([a.example, export, session], session))
    export.unlink()


if __name__ == "__main__":
    main()
