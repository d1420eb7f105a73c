#!/usr/bin/env python3
"""Launches of real PyTorch models under Nsight Compute, as a data set of APEX: for evaluation only, never for training.

    pytorch_rows.py OUT [--models mlp,cnn,transformer,lstm,generator] [--rows N] [--ncu FILE]

Each model runs once to warm up and once more under `ncu`, which profiles at most N kernels of it with the metrics of
`apex collect`; models take turns on the GPUs that there are. OUT gets manifest.json, kernels.csv and launches.csv as
docs/dataset.md has them: `family` is the model, names are the kernels' own, there is no PTX and no time without the
profiler. Needs PyTorch with a GPU, and `ncu`.
"""

import argparse
import concurrent.futures
import csv
import ctypes
import datetime
import io
import json
import os
import re
import subprocess
import sys
import tempfile

# The metrics of crates/predict/collect/src/ncu.rs, and the columns that they become.
COLUMNS = {
    "profiled_time_us": ("gpu__time_duration.sum", 1e-3),
    "achieved_occupancy_percent": ("sm__warps_active.avg.pct_of_peak_sustained_active", 1),
    "sm_active_cycles": ("sm__cycles_active.avg", 1),
    "sm_elapsed_cycles": ("sm__cycles_elapsed.avg", 1),
    "instructions": ("smsp__inst_executed.sum", 1),
    "threads_per_instruction": ("smsp__thread_inst_executed_per_inst_executed.ratio", 1),
    "sm_issue_percent": ("sm__inst_issued.avg.pct_of_peak_sustained_elapsed", 1),
    "sm_throughput_percent": (None, 1),
    "memory_throughput_percent": (None, 1),
    "dram_read_bytes": ("dram__bytes_read.sum", 1),
    "dram_write_bytes": ("dram__bytes_write.sum", 1),
}
LAUNCH = {
    "registers": "launch__registers_per_thread",
    "static": "launch__shared_mem_per_block_static",
    "dynamic": "launch__shared_mem_per_block_dynamic",
    "theoretical": "sm__maximum_warps_per_active_cycle_pct",
}
METRICS = [metric for metric, _ in COLUMNS.values() if metric] + list(LAUNCH.values())
CLASSES = (
    "single double half integer special tensor global_load global_store shared_load shared_store local read_only "
    "async_copy atomic barrier warp compare control convert other"
).split()
PTX = (
    [f"ptx_{name}" for name in CLASSES]
    + [f"ptx_{name}_in_loops" for name in CLASSES]
    + [
        f"ptx_{name}"
        for name in (
            "loops predicated global_load_bytes global_store_bytes shared_bytes local_bytes global_bytes_in_loops".split()
        )
    ]
)
KERNELS = (
    "kernel family registers static_shared_bytes local_bytes constant_bytes max_threads_per_block".split() + PTX
)
LAUNCHES = (
    "row kernel n m grid_x grid_y grid_z block_x block_y block_z dynamic_shared_bytes algorithm_bytes "
    "algorithm_operations blocks_per_sm theoretical_occupancy_percent device time_us time_spread time_samples"
).split() + [*COLUMNS, "missing"]


def models(torch):
    """Name and a function that does one step, for each model."""
    nn, device = torch.nn, "cuda"
    torch.manual_seed(1)

    def training(model, *inputs, dtype=torch.float32):
        model = model.to(device, dtype)
        inputs = [tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device) for tensor in inputs]
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

        def step():
            result = model(*inputs)
            result = result[0] if isinstance(result, tuple) else result
            result.float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    def layers(*sizes):
        pairs = zip(sizes, sizes[1:])
        return nn.Sequential(*[part for pair in pairs for part in (nn.Linear(*pair), nn.LayerNorm(pair[1]), nn.GELU())])

    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(8000, 512)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 2)
            self.head = nn.Linear(512, 8000)

        def forward(self, tokens):
            return torch.log_softmax(self.head(self.encoder(self.embedding(tokens))), -1)

    cnn = nn.Sequential(
        *[
            part
            for pair in zip((3, 32, 64, 128), (32, 64, 128, 256))
            for part in (nn.Conv2d(*pair, 3, padding=1), nn.BatchNorm2d(pair[1]), nn.ReLU(), nn.MaxPool2d(2))
        ],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, 100),
    )
    generator = nn.Sequential(
        nn.ConvTranspose2d(128, 128, 4, 2, 1), nn.GroupNorm(8, 128), nn.SiLU(),
        nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.InstanceNorm2d(64), nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.Conv2d(64, 3, 3), nn.Tanh(),
    )
    return {
        "mlp": lambda: training(layers(1000, 4096, 1024, 333), torch.randn(512, 1000)),
        "cnn": lambda: training(cnn, torch.randn(64, 3, 96, 96)),
        "transformer": lambda: training(Sequence(), torch.randint(8000, (16, 256)), dtype=torch.bfloat16),
        "lstm": lambda: training(nn.LSTM(256, 512, 2, batch_first=True), torch.randn(32, 20, 256)),
        "generator": lambda: training(generator, torch.randn(16, 128, 16, 16), dtype=torch.float16),
    }


def child(name):
    """What ncu runs: one step to warm up, one that is profiled."""
    import torch

    step = models(torch)[name]()
    step()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    step()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def profile(ncu, name, rows, gpu):
    """ncu's table for a model on one of the GPUs, as dictionaries."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "ncu.log")
        command = [ncu, "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none"]
        command += ["--metrics", ",".join(METRICS), "--csv", "--page", "raw", "--print-units", "base"]
        command += ["--launch-count", str(rows), "--log-file", log]
        command += [sys.executable, os.path.abspath(__file__), "--child", name]
        environment = dict(os.environ, LC_ALL="C", TMPDIR=folder, CUDA_VISIBLE_DEVICES=str(gpu))
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        text = open(log).read() if os.path.exists(log) else ""
        start = text.find('"ID",')
        if start < 0:
            sys.exit(f"pytorch_rows: ncu printed no table for {name}:\n{text[-2000:]}{done.stderr[-2000:]}")
        table = csv.DictReader(io.StringIO(text[start:]))
        return [row for row in table if row["ID"].isdigit()]


def number(row, metric, scale=1):
    """A metric's value, or nothing where there is none."""
    try:
        return repr(float(row[metric].replace(",", "")) * scale)
    except (KeyError, ValueError, AttributeError):
        return ""


def whole(row, metric):
    value = number(row, metric)
    return int(float(value)) if value else 0


def sides(text):
    return [int(side) for side in re.findall(r"\d+", text)]


def without_folders(word):
    """Of an absolute path only the file's name: the folders say something of one machine alone."""
    return os.path.basename(word) if os.path.isabs(word) else word


def attributes():
    """What the driver says of the first GPU: numbers of CUdevice_attribute and values, those of `apex collect`."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    value = ctypes.c_int()
    known = [*range(1, 11), 12, 13, 16, 32, *range(36, 41), 75, 76, 81, 82, 87, 97, 106, 108, 111, 120]
    return {str(id): value.value for id in known if driver.cuDeviceGetAttribute(ctypes.byref(value), id, 0) == 0}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", nargs="?", default="out")
    arguments.add_argument("--models", default="mlp,cnn,transformer,lstm,generator")
    arguments.add_argument("--rows", type=int, default=200, help="kernels of each model, at most")
    arguments.add_argument("--ncu", default="ncu")
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.child:
        return child(options.child)

    import torch

    started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    kernels, launches, passes = {}, [], 0
    families, gpus = options.models.split(","), torch.cuda.device_count()

    def turns(gpu):
        return [(model, profile(options.ncu, model, options.rows, gpu)) for model in families[gpu::gpus]]

    with concurrent.futures.ThreadPoolExecutor(gpus) as pool:
        tables = [table for of_gpu in pool.map(turns, range(gpus)) for table in of_gpu]
    for model, table in tables:
        for row in table:
            passes = max(passes, whole(row, "profiler__replayer_passes"))
            # Templates share a name; what they need tells their instances apart.
            registers, static = whole(row, LAUNCH["registers"]), whole(row, LAUNCH["static"])
            name = row["Kernel Name"]
            kernel = f"{model}/{name}/{registers}/{static}"
            kernels.setdefault(kernel, [kernel, model, registers, static, "", "", ""] + [""] * len(PTX))
            launches.append(
                [len(launches), kernel, "", "", *sides(row["Grid Size"]), *sides(row["Block Size"])]
                + [whole(row, LAUNCH["dynamic"]), "", "", "", number(row, LAUNCH["theoretical"]), 0, "", "", ""]
                + [number(row, metric, scale) if metric else "" for metric, scale in COLUMNS.values()]
                + ["no time without the profiler"]
            )
        print(f"{model}: {len(launches)} launches so far", file=sys.stderr)

    device = torch.cuda.get_device_properties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
    )
    version = subprocess.run([options.ncu, "--version"], capture_output=True, text=True).stdout.splitlines()
    manifest = {
        "format": "apex.dataset",
        "version": 1,
        "apex_version": "",
        "device_kind": "gpu",
        "device_name": device.name,
        "devices": gpus,
        "device_memory_bytes": device.total_memory,
        "device_attributes": attributes(),
        "cuda_version": 0,
        "suite": {"name": f"pytorch {torch.__version__}", "version": 1, "ptx_hash": ""},
        "seed": 1,
        "planned_rows": len(launches),
        "families": families,
        "command": " ".join(map(without_folders, sys.argv)) + f" (driver {', '.join(sorted(set(driver.stdout.split())))})",
        "started": started,
        "written": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S"),
        "complete": True,
        "counts": {"rows": len(launches), "timed": 0, "counted": sum(bool(row[20]) for row in launches)},
        "empty_kernel_us": [],
        "clocks": [],
        "counters": {"tool": "Nsight Compute " + (version[-1].removeprefix("Version ") if version else ""), "metrics": METRICS, "passes": passes},
    }
    os.makedirs(options.out, exist_ok=True)
    for file, header, rows in (("kernels.csv", KERNELS, kernels.values()), ("launches.csv", LAUNCHES, launches)):
        with open(os.path.join(options.out, file), "w", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows([header, *rows])
    with open(os.path.join(options.out, "manifest.json"), "w") as out:
        json.dump(manifest, out, indent=2)
        out.write("\n")


if __name__ == "__main__":
    main()
