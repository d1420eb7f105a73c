#!/usr/bin/env python3
"""What joined kernels gain on a GPU: memory traffic, time, and whether results stay the same, bit by bit.

    fuse.py measure [--apex BIN] [--out DIR] [--words N] [--counted-words N] [--rounds N]
    fuse.py launch JOBS
    fuse.py table FILE

The programs (testing/tune/pairs) launch pairs of kernels again and again. Each is recorded once with few words (`apex run --code`), and `apex fuse` writes the joined kernels and a
profile. Then it runs with N words, in turns, without and with `--fast=queue --tuned`: the checksum of all its arrays must be the same, and kernel times are what `apex run` measures.
`apex tune --verify --fast=queue` compares allocations. Nsight Compute (`ncu`) counts the traffic of both kernels and of the joined one in a process of `fuse.py launch`, which
loads the PTX and launches it with larger arrays, of which the caches hold little; `without` is the joined kernel whose second part loads what it needs. The prediction is what `apex fuse` computed for the
recorded launch, times the ratio of words. It needs nvcc, and ncu for the traffic. Raw figures go to DIR/fuse.json.
"""

import argparse
import concurrent.futures
import csv
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import read_results

PROGRAMS = Path(__file__).resolve().parents[2] / "testing" / "tune" / "pairs"
NVCC = ["nvcc", "-O3", "-std=c++17", "-w", "-arch=compute_90"]
# Words of an array in the recorded run.
FEW = 1 << 16
METRICS = {
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "l2_sectors": "lts__t_sectors_op_read.sum",
    "l1_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "ns": "gpu__time_duration.sum",
}
# The pairs: kernels, bytes of the arrays for each word, and the arguments of both kernels (arrays by number, numbers as text).
PAIRS = {
    "scale_add": (["scale", "add"], [4, 4, 4, 4], [[0, 1, "a", "n"], [2, 0, 3, "n"]]),
    "in_place": (["positive", "scaled"], [4], [[0, "n"], [0, "a", "n"]]),
    "halves": (["narrow", "widen"], [2, 4, 4], [[0, 1, "n"], [2, 0, "a", "n"]]),
    "image": (["gray", "invert"], [4, 4, 4, 4, 4], [[0, 1, 2, 3, "width", "height"], [4, 0, "width", "height"]]),
}


class Failed(Exception):
    """Something cannot be measured; the text says why."""


def run(command, limit=60, may_fail=False):
    """What a command prints."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=limit, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if done.returncode != 0 and not may_fail:
        raise Failed(f"{' '.join(map(str, command[:3]))} exits with status {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
    return done.stdout


class Driver:
    """The CUDA driver with a context."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)

    def call(self, name, *arguments):
        """Makes a call that must succeed."""
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise Failed(f"{name} gives {result}")

    def kernel(self, path, name):
        """A kernel of a PTX file."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(Path(path).read_bytes()))
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def array(self, count):
        """Device memory of so many bytes, whose values are not zero."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count))
        self.call("cuMemsetD32_v2", address, ctypes.c_uint(0x3F012345), ctypes.c_size_t(count // 4))
        return address

    def launch(self, function, grid, block, values):
        """Launches a kernel and waits for it."""
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values))
        self.call("cuLaunchKernel", function, *grid, *block, 0, None, pointers, None)
        self.call("cuCtxSynchronize")


def launch(arguments):
    """Launches both kernels of each pair and the joined ones, one after the other, as a file says."""
    driver = Driver()
    for job in json.loads(Path(arguments.jobs).read_text()):
        words = job["words"]
        arrays = [driver.array(size * words) for size in job["arrays"]]
        width, height = 4096, words // 4096 * 4
        numbers = {"n": ctypes.c_int(words), "a": ctypes.c_float(1.0009765), "width": ctypes.c_int(width), "height": ctypes.c_int(height)}
        values = [[numbers[one] if isinstance(one, str) else arrays[one] for one in of] for of in job["arguments"]]
        is_image = "width" in job["arguments"][0]
        grid, block = ((width // 64, height // 4, 1), (64, 4, 1)) if is_image else (((words + 255) // 256, 1, 1), (256, 1, 1))
        for path, name, parameters in job["kernels"]:
            function = driver.kernel(path, name)
            driver.launch(function, grid, block, [values[part][place] for part, place in parameters])
        for array in arrays:
            driver.call("cuMemFree_v2", array)


def counted(jobs, folder):
    """The metrics of each launch, in order, by Nsight Compute."""
    path = folder / "jobs.json"
    path.write_text(json.dumps(jobs))
    command = ["ncu", "--csv", "--clock-control", "none", "--metrics", ",".join(METRICS.values())]
    printed = run([*command, sys.executable, __file__, "launch", str(path)])
    rows = [line for line in printed.splitlines() if line.startswith('"')]
    launches = {}
    for row in csv.DictReader(rows):
        scale = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "us": 1e3, "ms": 1e6, "usecond": 1e3, "msecond": 1e6}.get(row["Metric Unit"], 1)
        name = next(name for name, metric in METRICS.items() if metric == row["Metric Name"])
        launches.setdefault(int(row["ID"]), {})[name] = float(row["Metric Value"].replace(",", "")) * scale
    return [launches[at] for at in sorted(launches)]


def without_registers(ptx):
    """The joined kernel whose second part loads: a slot's address is never that of a load."""
    return re.sub(r"mov\.(\w+)(\s+)apex_fused_at_(\d), 1;|add\.s64(\s+)apex_fused_at_(\d), [^;]*;", lambda found: f"mov.u64 apex_fused_at_{found[3] or found[5]}, 1;", ptx)


def compiled(name, folder):
    """Compiles a program, and its PTX."""
    run([*NVCC, "-code=compute_90", "-o", folder / name, PROGRAMS / f"{name}.cu"])
    run([*NVCC, "-ptx", "-o", folder / f"{name}.ptx", PROGRAMS / f"{name}.cu"])


def joined(apex, name, folder):
    """Records a program and joins its pair."""
    program = folder / name
    run([apex, "run", "--quiet", "--code", "--timing", "all", "-o", folder / f"{name}-s", "--", program, str(FEW), "4"])
    profile = folder / f"{name}.json"
    found = json.loads(run([apex, "fuse", folder / f"{name}-s", "--json", "-o", folder / f"{name}-fused", "--tuned", profile]))
    pair = next(pair for pair in found["pairs"] if [pair["first"], pair["second"]] == PAIRS[name][0])
    return program, profile, pair


def timed(apex, program, profile, arguments, folder):
    """Runs without and with the profile in turns: checksums, and the GPU time of all kernels in ms."""
    printed, times = [run([program, *arguments])], {"before": [], "after": []}
    kernels = {}
    for _ in range(2):
        for way, options in (("before", []), ("after", ["--fast=queue", "--tuned", profile])):
            session = Path(tempfile.mkdtemp(dir=folder)) / "s"
            printed.append(run([apex, "run", "--quiet", *options, "-o", session, "--", program, *arguments]))
            report = json.loads(run([apex, "report", session, "--json"]))["profile"]
            times[way].append(sum(kernel["gpu"]["total_ns"]["value"] for kernel in report["kernels"] if kernel["gpu"]) / 1e6)
            kernels[way] = {kernel["symbol"]: kernel["launches"]["calls"] for kernel in report["kernels"]}
    return printed, times, kernels


def job(name, pair, words, folder):
    """What `fuse.py launch` does about a pair: both kernels, the joined one, and that without registers."""
    kernels, arrays, places = PAIRS[name]
    fused, plain = Path(pair["joined"]["file"]), folder / f"{name}-without.ptx"
    plain.write_text(without_registers(fused.read_text()))
    own = [[str(folder / f"{name}.ptx"), kernel, [[part, place] for place in range(len(places[part]))]] for part, kernel in enumerate(kernels)]
    parameters = [[int(one["kernel"] == "second"), one["index"]] for one in pair["joined"]["parameters"]]
    both = [[str(file), "apex_fused", parameters] for file in (fused, plain)]
    return {"words": words, "arrays": arrays, "arguments": places, "kernels": own + both}


def measure(arguments):
    """Measures all pairs: first the traffic, then runs of the programs."""
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    results = {"words": arguments.words, "rounds": arguments.rounds, "counted_words": arguments.counted_words, "pairs": []}
    keep = lambda: (out / "fuse.json").write_text(json.dumps(results, indent=1) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        folder, jobs, known = Path(folder), [], []
        with concurrent.futures.ThreadPoolExecutor(len(PAIRS)) as pool:
            builds = {name: pool.submit(compiled, name, folder) for name in PAIRS}
        for name, build in builds.items():
            result = {"program": name}
            results["pairs"].append(result)
            try:
                build.result()
                program, profile, pair = joined(arguments.apex, name, folder)
                predicted = pair["flowing_bytes"] * arguments.counted_words // FEW
                result |= {"checked": pair["joined"]["checked"], "predicted_bytes": predicted}
                jobs.append(job(name, pair, arguments.counted_words, folder))
                known.append((result, program, profile))
            except (Failed, json.JSONDecodeError, StopIteration, KeyError) as error:
                result["failed"] = f"{type(error).__name__}: {error}"
                print(name, result["failed"], flush=True)
        keep()
        try:
            launches = counted(jobs, folder)
            for at, (result, *_) in enumerate(known):
                result["traffic"] = dict(zip(("first", "second", "joined", "without"), launches[4 * at : 4 * at + 4]))
        except (Failed, KeyError, ValueError, StopIteration) as error:
            results["failed"] = f"{type(error).__name__}: {error}"
            print("ncu:", results["failed"], flush=True)
        keep()
        for result, program, profile in known:
            try:
                given = [str(arguments.words), str(arguments.rounds)]
                printed, result["ms"], result["launches"] = timed(arguments.apex, program, profile, given, folder)
                result["same_output"] = len(set(printed)) == 1
                few = [str(min(arguments.words, 1 << 22)), given[1]]
                command = [arguments.apex, "tune", "--verify", "--json", "--fast=queue", "-o", profile, "--", program, *few]
                result["verified"] = json.loads(run(command, 90, may_fail=True))
                print(line(result), flush=True)
            except (Failed, json.JSONDecodeError, KeyError, ZeroDivisionError) as error:
                result["failed"] = f"{type(error).__name__}: {error}"
                print(result["program"], result["failed"], flush=True)
            keep()
    wrong = [result["program"] for result in results["pairs"] if result.get("same_output") is False or (result.get("verified") or {}).get("first_difference")]
    return f"other results: {', '.join(wrong)}" if wrong else None


def line(result):
    """A row of the table."""
    if "failed" in result:
        return f"| {result['program']} | failed: {result['failed'].splitlines()[0]} |"
    before, after = (statistics.median(result["ms"][way]) for way in ("before", "after"))
    cells, traffic = [result["program"], f"{result['predicted_bytes'] / 1e6:.0f} MB"], result.get("traffic")
    if traffic:
        def saved(names, one="joined"):
            pair = sum(traffic[part][name] for part in ("first", "second") for name in names)
            return pair - sum(traffic[one][name] for name in names), pair

        for names in (["dram_read"], ["dram_read", "dram_write"]):
            less, _ = saved(names)
            cells.append(f"{less / 1e6:.0f} MB ({less / result['predicted_bytes'] - 1:+.1%})")
        for name in ("l1_sectors", "l2_sectors", "ns"):
            shares = [1 - saved([name], one)[0] / saved([name], one)[1] for one in ("joined", "without")]
            cells.append(f"{shares[0]:.0%} ({shares[1]:.0%})")
    else:
        cells += ["-"] * 5
    launched = result["launches"]["after"]
    pairs = sum(count for name, count in launched.items() if name.startswith("apex_fused"))
    asked = sum(result["launches"]["before"].values())
    # Where no joined launch was timed, the sum is that of the launches that were not joined.
    is_timed = after > 1.5 * before * (1 - 2 * pairs / asked)
    tuned = f"{after:.1f} ms ({after / before - 1:+.0%})" if is_timed else "not timed"
    cells += [f"{before:.1f} ms", tuned, f"{2 * pairs / asked:.0%}"]
    same = "same" if result["same_output"] and not result["verified"]["first_difference"] else "**OTHER**"
    counts = result["verified"]["same"]
    cells += [f"{same}: {counts['copies']} + {counts['allocations']}"]
    return f"| {' | '.join(cells)} |"


def show(arguments):
    """Prints the table of a file of raw figures."""
    results = read_results(arguments.file)
    print("| pair | predicted | fewer reads | less traffic | L1 sectors | L2 sectors | time | kernels | tuned | joined | results |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    print("\n".join(map(line, results["pairs"])))


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--apex", default=str(Path(os.environ.get("APEX_BIN", "target/release")) / "apex"))
    measuring.add_argument("--out", default=os.environ.get("OUT", "out"))
    measuring.add_argument("--words", type=int, default=64 << 20)
    measuring.add_argument("--counted-words", type=int, default=192 << 20, help="words of an array whose traffic is counted")
    measuring.add_argument("--rounds", type=int, default=300)
    measuring.set_defaults(work=measure)
    launching = commands.add_parser("launch")
    launching.add_argument("jobs")
    launching.set_defaults(work=launch)
    showing = commands.add_parser("table")
    showing.add_argument("file")
    showing.set_defaults(work=show)
    arguments = parser.parse_args()
    return arguments.work(arguments)


if __name__ == "__main__":
    sys.exit(main())
