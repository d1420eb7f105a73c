#!/usr/bin/env python3
"""Does a trace of another profiler lead to the advice and the accounts of a recording?

    traces.py record --apex FOLDER [--out OUT] [--deadline SECONDS]    # on a GPU: each program under `apex run`, and under torch.profiler
    traces.py compare OUT --apex FOLDER                                # anywhere: imports the traces and compares

`record` runs each program of `testing/corpus` twice, as it is. Results are written as they come:

    OUT/traces.tar        for each program: the session NAME/ as tar, and NAME.json.gz, PyTorch's trace (Kineto)
    OUT/traces.json       hardware, driver, versions, date, command; what failed, and how

`compare` prints a Markdown table: the first finding of both, the shares of the accounts, and the busy time of the raw
trace, which this script computes with its own few lines.
"""

import argparse
import datetime
import gzip
import json
import os
import runpy
import subprocess
import sys
import tarfile
import tempfile
import time
from decimal import Decimal
from pathlib import Path

from figures import table

CORPUS = Path(__file__).resolve().parents[2] / "testing/corpus/python"
# Programs of one process, with options that keep a trace below 16 MiB.
PROGRAMS = {
    "eager_decode": "--steps 40",
    "eager_training": "--steps 30",
    "item_each_step": "--steps 30",
    "sleep_between": "--steps 40",
    "fp32_matmul": "--steps 60",
    "pageable_input": "--steps 60",
    "unfused_norm": "--steps 60",
    "small_copies": "--steps 20",
    "nchw_convs": "--steps 30",
    "unfused_attention": "--steps 40",
    "slow_loader": "--steps 30",
    "small_batch": "--steps 60",
}
PATIENCE = 60


def profile(program, options, trace):
    """Runs a program under torch.profiler, in this process."""
    import torch

    os.chdir(CORPUS)
    sys.path.insert(0, str(CORPUS))
    sys.argv = [program, *options]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profiler:
        runpy.run_path(program, run_name="__main__")
    profiler.export_chrome_trace(trace)


def run(command, folder):
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "4"}
    done = subprocess.run(command, cwd=folder, env=environment, input=b"\n", capture_output=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr.decode(errors='replace')[-600:]}")
    return done.stdout.decode(errors="replace")


def record(a):
    began, results = time.monotonic(), {"command": " ".join(sys.argv), "date": datetime.date.today().isoformat(), "programs": {}}
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    results["hardware"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    results["torch"] = run([sys.executable, "-c", "import torch; print(torch.__version__)"], CORPUS).strip()
    a.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, tarfile.open(a.out / "traces.tar", "w") as tar:
        for name, options in PROGRAMS.items():
            entry = results["programs"].setdefault(name, {"options": options})
            if time.monotonic() - began > a.deadline:
                entry["failed"] = "the deadline came first"
                continue
            session, trace, program = Path(work) / name, Path(work) / f"{name}.json.gz", f"{name}.py"
            try:
                run([a.apex / "apex", "run", "--quiet", "-o", session, "--", sys.executable, program, *options.split()], CORPUS)
                run([sys.executable, Path(__file__).resolve(), "profile", program, str(trace), *options.split()], CORPUS)
                tar.add(session, arcname=name)
                tar.add(trace, arcname=trace.name)
                entry["trace_bytes"] = trace.stat().st_size
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                entry["failed"] = str(error)
            print(name, f"{time.monotonic() - began:.0f} s", entry, flush=True)
            (a.out / "traces.json").write_text(json.dumps(results, indent=1) + "\n")


def union(intervals):
    """The time that at least one interval covers."""
    covered, reached = 0, None
    for start, end in sorted(intervals):
        start = start if reached is None else max(start, reached)
        covered += max(0, end - start)
        reached = end if reached is None else max(reached, end)
    return covered


def busy_of_trace(trace):
    """Nanoseconds in which the trace's device does something, from the raw events."""
    raw = json.loads(gzip.decompress(trace.read_bytes()), parse_float=Decimal)
    device = [e for e in raw["traceEvents"] if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    ns = lambda value: int(Decimal(value) * 1000)
    return union((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in device), len(device)


def report(apex, session):
    return json.loads(subprocess.run([apex / "apex", "report", "--json", session], capture_output=True, check=True).stdout)


def accounts(document):
    """Shares of the steady state (of the whole run, if there is none): kernels, copies, idle."""
    activity = max(document["profile"]["activities"], key=lambda activity: activity["launches"])
    phases = {phase["kind"]: phase for phase in activity["phases"]}
    of = phases.get("steady", activity)["accounts"]
    share = lambda ns: ns / of["span_ns"] if of["span_ns"] else 0
    idle = sum(figure["value"] for figure in of["idle"].values())
    return {"kernels": share(of["kernels"]["value"]), "copies": share(of["copies"]["value"]), "idle": share(idle),
            "step_us": ((activity["iterations"] or {}).get("step_ns") or {}).get("value", 0) / 1e3,
            "busy_ns": activity["accounts"]["kernels"]["value"] + activity["accounts"]["copies"]["value"]}


def first_finding(document):
    findings = document["advice"]["findings"]
    return findings[0]["rule"] if findings else "none"


def compare(a):
    results = json.loads((a.out / "traces.json").read_text())
    rows, same, told = [], 0, 0
    with tempfile.TemporaryDirectory() as work:
        with tarfile.open(a.out / "traces.tar") as tar:
            tar.extractall(work, filter="data")
        for name, entry in results["programs"].items():
            if "failed" in entry:
                print(f"{name}: {entry['failed']}", file=sys.stderr)
                continue
            trace, imported = Path(work) / f"{name}.json.gz", Path(work) / f"{name}.imported"
            subprocess.run([a.apex / "apex", "import", trace, "-o", imported], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            recorded, imported = report(a.apex, Path(work) / name), report(a.apex, imported)
            (busy, events), ours = busy_of_trace(trace), accounts(imported)
            one, other = first_finding(recorded), first_finding(imported)
            told, same = told + 1, same + (one == other)
            of = accounts(recorded)
            rows.append([name, one, other, *(f"{of[key]:.1%} / {ours[key]:.1%}" for key in ("kernels", "copies", "idle")),
                         f"{of['step_us']:.0f} / {ours['step_us']:.0f}", events, f"{ours['busy_ns'] / busy - 1:+.3%}"])
    print(table(["program", "first finding: recorded", "imported", "kernels (recorded / imported)", "copies", "idle", "step, µs",
                 "events on the GPU", "busy time against the raw trace"], rows))
    print(f"The first finding is the same in {same} of {told} programs.")


def main():
    if sys.argv[1:2] == ["profile"]:
        profile(sys.argv[2], sys.argv[4:], sys.argv[3])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    for name, do in (("record", record), ("compare", compare)):
        command = commands.add_parser(name)
        command.set_defaults(do=do)
        command.add_argument("--apex", type=Path, required=True, help="folder of apex and its libraries")
        if name == "record":
            command.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
            command.add_argument("--deadline", type=float, default=270)
        else:
            command.add_argument("out", type=Path)
    a = parser.parse_args()
    a.apex = a.apex.resolve()
    a.do(a)


if __name__ == "__main__":
    main()
