#!/usr/bin/env python3
"""The bundled programs' kernels, on whose launches no model was trained: measured by Nsight Compute, and compared with `apex predict`.

    predict_check.py measure OUT      # on the GPU (needs CuPy and ncu): writes OUT/bundled-kernels.csv
    predict_check.py compare CSV      # anywhere (needs target/release/apex): a line for each kernel, and for all
    predict_check.py rough DATASET    # the same: durations of a data set's launches of which no arguments are known

Kernels are those of crates/device/device-code/demo, as PTX. Inputs are random. Each launch runs twice to warm up, then once under ncu, with
clocks and caches left alone.
"""

import csv
import io
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
KERNELS = os.path.join(HERE, "..", "..", "crates", "device", "device-code", "generated", "demo")
METRICS = {
    "duration_us": ("gpu__time_duration.sum", 1e-3),
    "achieved_occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", 1e-2),
    "registers": ("launch__registers_per_thread", 1),
    "static_shared_bytes": ("launch__shared_mem_per_block_static", 1),
}
COLUMNS = ["file", "kernel", "arguments", "grid_x", "grid_y", "block_x", "block_y", *METRICS]
SEED = 1


def launches():
    """File, kernel, arguments (p: a pointer; f: a float), grid and block of each launch."""
    draw = random.Random(SEED)
    for bits, threads in itertools.product((14, 18, 22, 26), (64, 256, 1000)):
        n = draw.randrange(1 << bits, 2 << bits)
        blocks = -(-n // threads)
        few = min(blocks, draw.choice((8, 132, 528, 2112)))
        yield "vector_add", "vector_add", ["p", "p", "p", n], (blocks, 1), (threads, 1)
        yield "saxpy", "saxpy", ["f2.5", "p", "p", n], (few, 1), (threads, 1)
        yield "pipeline", "smooth", ["p", "p", n], (blocks, 1), (threads, 1)
        yield "pipeline", "limit", ["p", "f0.5", n], (blocks, 1), (threads, 1)
        yield "bad", "scale", ["p", "f1.5", 0, n], (blocks, 1), (threads, 1)
        yield "histogram", "histogram", ["p", "p", n], (few, 1), (threads, 1)
        if threads % 32 == 0:
            yield "reduce", "reduce", ["p", "p", n], (few, 1), (threads, 1)
        if bits <= 18:
            yield "bad", "sum_in_one_block", ["p", "p", n], (1, 1), (threads, 1)
        rows = draw.randrange(64, 4000)
        columns = max(1, n // rows)
        yield "bad", "transpose_reading_columns", ["p", "p", rows, columns], (-(-rows * columns // threads), 1), (threads, 1)
    for size in (48, 200, 512, 1111, 2048):
        m, n, k = size, draw.randrange(size, 2 * size), draw.randrange(size // 2, size)
        yield "matmul", "matmul", ["p", "p", "p", m, n, k], (-(-n // 16), -(-m // 16)), (16, 16)


def child():
    """What ncu runs."""
    import cupy

    cupy.random.seed(SEED)
    size = 1 << 28
    pool = [cupy.random.random(size, dtype=cupy.float32) for _ in range(3)]
    modules = {}
    for file, name, arguments, grid, block in launches():
        if file not in modules:
            modules[file] = cupy.RawModule(path=os.path.join(KERNELS, file + ".ptx"))
        kernel = modules[file].get_function(name)
        pointers = iter(pool)
        value = lambda argument: (
            next(pointers)
            if argument == "p"
            else cupy.float32(argument[1:]) if isinstance(argument, str) else cupy.uint32(argument)
        )
        values = tuple(value(argument) for argument in arguments)
        for turn in range(3):
            if turn == 2:
                cupy.cuda.runtime.deviceSynchronize()
                cupy.cuda.profiler.start()
            kernel(grid, block, values)
        cupy.cuda.runtime.deviceSynchronize()
        cupy.cuda.profiler.stop()


def measure(out):
    metrics = ",".join(metric for metric, _ in METRICS.values())
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "ncu.log")
        command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none"]
        command += ["--metrics", metrics, "--csv", "--page", "raw", "--print-units", "base", "--log-file", log]
        command += [sys.executable, os.path.abspath(__file__), "child"]
        done = subprocess.run(command, env=dict(os.environ, LC_ALL="C", TMPDIR=folder), capture_output=True, text=True)
        text = open(log).read() if os.path.exists(log) else ""
    start = text.find('"ID",')
    if start < 0:
        sys.exit(f"predict_check: ncu printed no table:\n{text[-2000:]}{done.stdout[-2000:]}{done.stderr[-2000:]}")
    table = [row for row in csv.DictReader(io.StringIO(text[start:])) if row["ID"].isdigit()]
    made = list(launches())
    if [row["Kernel Name"] for row in table] != [launch[1] for launch in made]:
        sys.exit(f"predict_check: {len(made)} launches were made, ncu has {len(table)} or others")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "bundled-kernels.csv"), "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for (source, name, arguments, grid, block), row in zip(made, table):
            number = lambda metric, scale: f"{float(row[metric].replace(',', '')) * scale:.6g}"
            words = " ".join(str(argument) for argument in arguments)
            figures = [number(*metric) for metric in METRICS.values()]
            writer.writerow([source, name, words, *grid, *block, *figures])


def predicted(row):
    """What `apex predict` says of a launch of the table."""
    apex = os.environ.get("APEX_BIN", os.path.join(HERE, "..", "..", "target", "release"))
    command = [os.path.join(apex, "apex"), "predict", "--json", "--device", "h200"]
    command += ["--grid", f"{row['grid_x']},{row['grid_y']}", "--block", f"{row['block_x']},{row['block_y']}"]
    command += ["--registers", row["registers"], "--static-shared", row["static_shared_bytes"]]
    command += ["--ptx", os.path.join(KERNELS, row["file"] + ".ptx"), "--kernel", row["kernel"]]
    for argument in row["arguments"].split():
        command += ["--arg", {"p": "ptr", "f": "f32:" + argument[1:]}.get(argument[0], "u32:" + argument)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["predictions"][0]["prediction"]


def compare(path):
    rows = []
    for row in csv.DictReader(open(path)):
        said = predicted(row)
        duration, occupancy = said["duration_ns"], said["achieved_occupancy"]
        took, held = float(row["duration_us"]) * 1e3, float(row["achieved_occupancy"])
        rows.append(
            {
                "kernel": row["kernel"],
                "duration": 100 * abs(duration["value"] / took - 1),
                "duration_holds": duration["low"] <= took <= duration["high"],
                "occupancy": 100 * abs(occupancy["value"] - held),
                "occupancy_holds": occupancy["low"] <= held <= occupancy["high"],
                "pair": (occupancy["value"], held),
                "unfamiliar": bool(said["unfamiliar"]),
            }
        )
    print("| kernel | launches | unfamiliar | duration, median error, % | 90th percentile, % | its interval holds | occupancy, median error, points | 90th percentile, points | its interval holds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in [*dict.fromkeys(row["kernel"] for row in rows), "all"]:
        own = [row for row in rows if name in (row["kernel"], "all")]
        median = lambda what: statistics.median(row[what] for row in own)
        nine_of_ten = lambda what: statistics.quantiles([row[what] for row in own], n=10, method="inclusive")[8]
        errors = lambda what: f"{median(what):.1f} | {nine_of_ten(what):.1f}"
        share = lambda what: sum(row[what] for row in own) / len(own)
        print(
            f"| {name} | {len(own)} | {sum(row['unfamiliar'] for row in own)} | {errors('duration')} | {share('duration_holds'):.2f} "
            f"| {errors('occupancy')} | {share('occupancy_holds'):.2f} |"
        )
    print(f"\nCorrelation of predicted and measured achieved occupancy: {statistics.correlation(*zip(*[row['pair'] for row in rows])):.3f}.")


def rough(data_set):
    apex = os.environ.get("APEX_BIN", os.path.join(HERE, "..", "..", "target", "release"))
    text = subprocess.run([os.path.join(apex, "apex"), "predict", data_set, "--csv"], check=True, capture_output=True, text=True)
    rows = [row for row in csv.DictReader(io.StringIO(text.stdout)) if row["measured_duration_us"]]
    names = ["predicted_duration_us", "predicted_duration_low_us", "predicted_duration_high_us", "measured_duration_us"]
    figures = [[float(row[name]) for name in names] for row in rows]
    print(f"{len(rows)} launches")
    print(f"predicted over measured, median: {statistics.median(value / took for value, _, _, took in figures):.1f}")
    print(f"intervals hold: {sum(low <= took <= high for _, low, high, took in figures) / len(rows):.2f}")
    print(f"high end over low end, median: {statistics.median(high / low for _, low, high, _ in figures):.0f}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", out]:
            measure(out)
        case ["compare", path]:
            compare(path)
        case ["rough", data_set]:
            rough(data_set)
        case ["child"]:
            child()
        case _:
            sys.exit(__doc__)
