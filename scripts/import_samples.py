#!/usr/bin/env python3
"""Imports public traces of other profilers and compares the result with the raw events.

    scripts/import_samples.py FOLDER --apex target/release/apex    # prints a Markdown table

Traces that are missing in FOLDER are taken from the repositories that publish them, at pinned commits, by download or from
clones (`--clones FOLDER`, each in OWNER+NAME/repo); none is committed here. The busy time of each device is computed here,
from the raw events, as the time that intervals cover.
"""

import argparse
import gzip
import json
import sqlite3
import subprocess
import time
import urllib.request
from decimal import Decimal
from pathlib import Path

HTA = "facebookresearch/HolisticTraceAnalysis/f4d0062c382f42bd8a74838bcdad1916c7d5d2da/tests/data/"
LENS = "AMD-AGI/TraceLens/171dd74721ca1ec45709e5805b68ae1f65e27811/tests/traces/"
NSYS = "GindaChen/nsys-ai/ab196ea237d90e8df5270293d14cff1a95032500/tests/fixtures/"
KINETO = "pytorch/kineto/{}/tb_plugin/samples/"
PIPIT = "hpcgroup/pipit/{}/pipit/tests/data/"
SAMPLES = {
    "kineto-2021-03.json.gz": KINETO.format("229f2b87f69b3448c6d9876efc0147c4b4edde0e")
    + "resnet50_autograd_api_num_workers_0/worker0.pt.trace.json.gz",
    "kineto-2021-06.json.gz": KINETO.format("be239c044d2f4b62982e1ff64144097acd69f59a")
    + "resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "hta-cupti.json.gz": HTA + "cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz",
    "hta-triton.json.gz": HTA + "triton_example/triton_example.json.gz",
    "hta-alexnet.json.gz": HTA + "critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz",
    "hta-df.json.gz": HTA + "df_index_resolver/df_index_resolver.json.gz",
    "hta-diff.json.gz": HTA + "trace_diff/test/test.json.gz",
    "hta-mtia.json.gz": HTA + "mtia_inference_trace/mtia_inference_rank_0.json.gz",
    "hta-nccl.json.gz": HTA + "nccl_parser_config/nccl_data.json.gz",
    "hta-queue.json.gz": HTA + "negative_queue_length_values_check/rank0.json.gz",
    "hta-no-gpu.json.gz": HTA + "rank_non_gpu/rank_non_gpu.json.gz",
    "hta-ns.json.gz": HTA + "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "hta-rank0.json.gz": HTA + "timeline_analysis/sampled_rank-0.json.gz",
    "hta-rank1.json.gz": HTA + "trace_filter/sampled_rank-1.json.gz",
    "lens-b200.json.gz": LENS + "b200/eager_trace.json.gz",
    "lens-h100-owl.json.gz": LENS + "h100/google_owlv2-large-patch14-ensemble__1016001.json.gz",
    "lens-h100-qwen.json.gz": LENS + "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "lens-h100-bert.json.gz": LENS + "h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "hta-mi250.json.gz": HTA + "amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "lens-mi300.json.gz": LENS + "mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "lens-jax-mi300.xplane.pb": LENS + "mi300/jax_conv_minimal_08/tw003.xplane.pb",
    "pipit-saxpy.sqlite": PIPIT.format("46d41f2a6681112c86f3a090f9241ad05226ed43") + "saxpy-mpi-cuda_nsys_perlmutter0.sqlite",
    "pipit-cloverleaf.sqlite": PIPIT.format("ad30bc8498bdd16cc93b4eb8397d5d5bbae3e33b")
    + "cloverleaf-nsys/perlmutter-cloverleaf-cuda.sqlite",
    "nsys-h100.sqlite": NSYS + "h100_2gpu_1s.sqlite",
    "nsys-mfu.sqlite": NSYS + "mfu_2gpu_after.sqlite",
    "nsys-3080.sqlite": NSYS + "mock.sqlite",
}


def obtain(source, path, clones):
    """Writes a sample to a path."""
    owner, name, commit, file = source.split("/", 3)
    if clones is None:
        urllib.request.urlretrieve("https://raw.githubusercontent.com/" + source, path)
        return
    git = ["git", f"--git-dir={clones / f'{owner}+{name}' / 'repo'}", "show", f"{commit}:{file}"]
    path.write_bytes(subprocess.run(git, capture_output=True, check=True).stdout)


def union(intervals):
    covered, reached = 0, None
    for start, end in sorted(intervals):
        begin = start if reached is None else max(start, reached)
        covered += max(0, end - begin)
        reached = end if reached is None else max(reached, end)
    return covered


def of_json(path):
    """Events, kernels, and the busy time of each (process, device)."""
    raw = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    events = raw["traceEvents"]
    ns = lambda value: int(Decimal(value) * 1000)
    devices, kernels = {}, 0
    for event in events:
        # Until 2022 the categories had other names, and devices none of their own.
        if event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"):
            kernels += event["cat"] in ("kernel", "Kernel")
            device = event["args"].get("device", event["pid"])
            devices.setdefault((None, device), []).append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])))
    return len(events), kernels, {key: union(intervals) for key, intervals in devices.items()}


def of_sqlite(path):
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    devices, events, kernels = {}, 0, 0
    for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"):
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        if table in tables:
            for start, end, device, process in database.execute(f"SELECT start, end, deviceId, globalPid FROM {table}"):
                devices.setdefault((process >> 24 & 0xFFFFFF, device), []).append((start, end))
                events, kernels = events + 1, kernels + (kind == "KERNEL")
    return events, kernels, {key: union(intervals) for key, intervals in devices.items()}


def busy_of(document):
    """The same of a report: by process and ordinal."""
    profile = document["profile"]
    parts = ("kernels", "collectives", "waiting", "copies")
    return {(profile["processes"][a["process"]]["pid"], a["ordinal"]): sum(a["accounts"][part]["value"] for part in parts) for a in profile["activities"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--apex", type=Path, default=Path("target/release/apex"))
    parser.add_argument("--clones", type=Path, help="folder of clones, each in OWNER+NAME/repo")
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    print("| trace | profiler and version | events | kernels | import, ms | busy time against the raw events |\n| --- | --- | ---: | ---: | ---: | --- |")
    for name, source in SAMPLES.items():
        path, session = a.folder / name, a.folder / f"{name}.session"
        if not path.exists():
            obtain(source, path, a.clones)
        subprocess.run(["rm", "-rf", session], check=True)
        began = time.perf_counter()
        done = subprocess.run([a.apex, "import", path, "-o", session, "--json"], capture_output=True, text=True, check=False)
        ms = (time.perf_counter() - began) * 1e3
        if done.returncode:
            print(f"| {name} | refused: {done.stderr.strip().rsplit('/', 1)[-1].split(': ', 1)[-1]} | | | | |")
            continue
        imported = json.loads(done.stdout)
        events, kernels, raw = (of_sqlite if path.suffix == ".sqlite" else of_json)(path)
        report = json.loads(subprocess.run([a.apex, "report", "--json", session], capture_output=True, check=True).stdout)
        found = busy_of(report)
        compared = [f"{found[key] / (raw.get(key) or raw[None, key[1]]) - 1:+.3%}" for key in sorted(found)]
        assert kernels == imported["kernels"], (kernels, imported)
        print(f"| {name} | {imported['sources'][0]} | {events:,} | {kernels:,} | {ms:.0f} | {', '.join(compared)} |")


if __name__ == "__main__":
    main()
