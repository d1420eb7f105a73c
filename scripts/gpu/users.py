#!/usr/bin/env python3
"""The programs of testing/corpus/users on a GPU: a session of each, what APEX says of it, and what its remedy saves.

    users.py run --apex BIN --out OUT [--only NAME,…] [--deadline SECONDS]
    users.py unpack OUT FOLDER      # the sessions, one folder each
    users.py table RESULTS          # causes, savings, and first findings, as Markdown

Each program runs three times, in processes of its own and one after the other: bare, under `apex run`, and bare with its
remedy applied. Bare processes import their packages and make their context while the run before them lasts. Each program
prints the steps per second of its steady loop. Results are written as they come:

    OUT/results.json        steps per second, what report and advise printed, hardware, versions, date, command
    OUT/sessions.part-N     one tar file of a NAME.tar.xz for each session, cut into parts
"""

import argparse
import concurrent.futures
import datetime
import io
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

from corpus import first_finding, names_the_cause
from figures import read_results

USERS = Path(__file__).resolve().parents[2] / "testing/corpus/users"
PART_BYTES, PARTS = 15 << 20, 7
RECORDED_SECONDS, BARE_SECONDS, PATIENCE = 6, 3, 75
# What a program that is in time has taken, with those before it.
SECONDS_EACH, SECONDS_BEFORE = 24, 45
PACKAGES = {"jax": "import jax; jax.devices()", "cupy": "import cupy, cupyx.scipy.sparse; cupy.zeros(1)"}
TORCH = "import torch; torch.zeros(1, device='cuda')"
MORE = {"polite_letters": "import transformers", "sepsis_alarms": "import torchmetrics", "bird_calls": "import torchaudio",
        "citing_papers": "import torch_geometric", "cupy_road_cracks": TORCH}


def programs():
    return json.loads((USERS / "programs.json").read_text())


def warmth(program):
    """What a bare process does before its turn."""
    package = PACKAGES.get(program["name"].split("_")[0], TORCH)
    return "; ".join([package, MORE.get(program["name"], "pass")])


def source_of(program, how, work):
    """The program's file; with its remedy, where that is a patch (NAME.remedy) and no option."""
    file = USERS / f"{program['name']}{'.cu' if program['kind'] == 'cuda' else '.py'}"
    patch = file.with_suffix(".remedy")
    if how != "remedied" or not patch.exists():
        return file
    remedied = work / f"{program['name']}_remedied{file.suffix}"
    if not remedied.exists():
        subprocess.run(["patch", "-s", "-o", remedied, file, patch], check=True)
    return remedied


class Run:
    """One process: bare, remedied, or recorded."""

    def __init__(self, runner, program, how):
        self.program, self.how = program, how
        name, folder = program["name"], runner.work
        self.gated = how != "recorded" and program["kind"] != "cuda"
        file = source_of(program, how, folder)
        if program["kind"] == "cuda":
            command = [str(folder / file.stem)]
        elif self.gated:
            gate = "import sys, runpy; sys.argv.pop(0); sys.stdin.readline(); runpy.run_path(sys.argv[0], run_name='__main__')"
            command = [sys.executable, "-c", f"{warmth(program)}; {gate}", str(file)]
        else:
            command = [sys.executable, file.name]
        command += ["--seconds", str(runner.recorded_seconds() if how == "recorded" else BARE_SECONDS)]
        if how == "remedied" and file.parent == USERS:
            command.append("--remedied")
        if how == "recorded":
            self.session = folder / f"{program['kind']}-{name}"
            command = [str(runner.a.apex / "apex"), "run", "-o", str(self.session), "--", *command]
        self.command, self.process = command, None

    def start(self):
        if self.process is None:
            environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "4"}
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
            self.process = subprocess.Popen(self.command, cwd=USERS, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, start_new_session=True)

    def end(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def finish(self):
        """Lets it go on, waits, and returns its steps per second and all that it printed."""
        self.start()
        try:
            out, error = self.process.communicate(b"\n", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.end()
            out, error = self.process.communicate()
            raise RuntimeError(f"it took more than {PATIENCE} s: {error.decode(errors='replace')[-900:]}") from None
        out, error = out.decode(errors="replace"), error.decode(errors="replace")
        rate = re.findall(r"([\d.]+) steps/s", out)
        if self.process.returncode or not rate:
            raise RuntimeError(f"exit status {self.process.returncode}: {error[-1500:]}")
        return float(rate[-1]), out + error


class Runner:
    def __init__(self, arguments):
        self.a, self.began, self.number = arguments, time.monotonic(), 0
        self.work = Path(os.environ.get("TMPDIR", "/tmp")) / f"apex-users-{os.getpid()}"
        self.work.mkdir(parents=True)
        self.results = {"command": " ".join(sys.argv), "date": datetime.date.today().isoformat(), "programs": {}}
        self.lock, self.pool = threading.Lock(), concurrent.futures.ThreadPoolExecutor(3)

    def recorded_seconds(self):
        late = time.monotonic() - self.began - SECONDS_BEFORE - SECONDS_EACH * self.number
        return RECORDED_SECONDS if late < 0 else RECORDED_SECONDS - 2.5

    def hardware(self):
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        self.results["hardware"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
        packages = ["torch", "torchaudio", "torchmetrics", "torch_geometric", "transformers", "triton", "jax", "cupy-cuda13x"]
        line = f"from importlib.metadata import version as v; print({{p: v(p) for p in {packages}}})"
        found = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=False)
        self.results["versions"] = found.stdout.strip() or found.stderr[-300:]

    def prepare(self, order):
        """Builds the programs in CUDA C++, and runs once, with and without its remedy, what compiles for long."""
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        started = [
            subprocess.Popen([nvcc, "-std=c++17", "-O2", "-lineinfo", "-arch=sm_90", "-o", self.work / file.stem, file])
            for p in order if p["kind"] == "cuda" for file in {source_of(p, how, self.work) for how in ("bare", "remedied")}
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": USERS}
        for p in order:
            if p["kind"] != "cuda" and "torch.compile(" in (USERS / f"{p['name']}.py").read_text():
                started += [subprocess.Popen([sys.executable, f"{p['name']}.py", "--seconds", "0.1", *more], **quiet) for more in ([], ["--remedied"])]
        started += [subprocess.Popen([sys.executable, "-c", f"{line}"], **quiet) for line in (*PACKAGES.values(), *MORE.values())]
        for process in started:
            process.wait(timeout=120)

    def save(self):
        with self.lock:
            (self.a.out / "results.json").write_text(json.dumps(self.results, indent=1) + "\n")
            data = io.BytesIO()
            with tarfile.open(fileobj=data, mode="w") as tar:
                for file in sorted(self.work.glob("*.tar.xz"), key=lambda file: file.stat().st_size):
                    if data.tell() + file.stat().st_size < PART_BYTES * PARTS:
                        tar.add(file, arcname=file.name)
            whole = data.getvalue()
            for number, at in enumerate(range(0, len(whole), PART_BYTES)):
                (self.a.out / f"sessions.part-{number}").write_bytes(whole[at : at + PART_BYTES])

    def keep(self, run):
        """A recording's session in a small file, and what APEX says of it."""
        apex, entry = str(self.a.apex / "apex"), self.results["programs"][run.session.name]
        for what in (["advise"], ["advise", "--json"], ["report"], ["report", "--json"]):
            done = subprocess.run(["nice", apex, *what, run.session], capture_output=True, text=True, check=False, timeout=100)
            if done.returncode:
                entry[" ".join(what) + " failed"] = done.stderr[-500:]
            if what == ["report", "--json"]:
                (run.session / "report.json").write_text(done.stdout)
            else:
                entry["advice" if what == ["advise"] else " ".join(what)] = json.loads(done.stdout) if "--json" in what and done.stdout else done.stdout.splitlines()
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            tar.add(run.session, arcname=run.session.name)
        packed = self.work / f"{run.session.name}.partial"
        packed.write_bytes(lzma.compress(data.getvalue(), preset=3 if data.tell() > 40 << 20 else 6))
        entry["session_bytes"] = packed.stat().st_size
        packed.rename(packed.with_suffix(".tar.xz"))
        self.save()

    def run(self, order):
        runs = [Run(self, p, how) for p in order for how in (("bare", "recorded", "remedied") if p["remedy"] != "none" else ("bare", "recorded"))]
        pending = []
        for at, run in enumerate(runs):
            if time.monotonic() - self.began > self.a.deadline:
                self.results["cut_short"] = f"the deadline came before {run.program['name']}, {run.how}"
                break
            self.number = order.index(run.program)
            if run.how == "recorded":
                run = Run(self, run.program, run.how)
            run.start()
            for following in runs[at + 1 : at + 3]:
                if following.gated:
                    following.start()
            started = time.monotonic()
            entry = self.results["programs"].setdefault(f"{run.program['kind']}-{run.program['name']}", {})
            try:
                entry[run.how], said = run.finish()
                if run.how == "recorded":
                    entry["command"], entry["printed"] = run.command[5:], said[-3000:]
                    pending.append(self.pool.submit(self.keep, run))
            except Exception as error:
                entry[f"{run.how} failed"] = str(error)
                print(f"{run.program['name']} {run.how}: {error}", flush=True)
            print(f"{run.program['name']} {run.how}: {entry.get(run.how)} steps/s, {time.monotonic() - started:.1f} s, at {time.monotonic() - self.began:.0f} s", flush=True)
            self.save()
        for run in runs:
            run.end()
        for future in pending:
            try:
                future.result(timeout=max(1, self.a.deadline + 30 - (time.monotonic() - self.began)))
            except Exception as error:
                print(f"a session was not kept: {error!r}", flush=True)
        self.save()


def unpack(out, folder):
    whole = b"".join(part.read_bytes() for part in sorted(out.glob("sessions.part-*")))
    with tarfile.open(fileobj=io.BytesIO(whole)) as outer:
        for member in outer:
            with tarfile.open(fileobj=outer.extractfile(member), mode="r:xz") as session:
                session.extractall(folder, filter="data")


def print_table(file):
    results = read_results(file)["programs"]
    times = json.loads((file.parent / "times.json").read_text())["programs"]
    print("| program | cause | first finding | right | remedy saves |")
    print("| --- | --- | --- | --- | --- |")
    for program in programs():
        name = f"{program['kind']}-{program['name']}"
        if name not in results:
            continue
        entry = results[name]
        rule, title, text = first_finding(entry["advice"] if isinstance(entry, dict) else entry)
        right = "" if program["remedy"] == "none" else "yes" if names_the_cause(program, rule, text) else "**no**"
        remedied = times.get(name, {}).get("remedied_steps_per_s")
        saves = f"{1 - times[name]['bare_steps_per_s'] / remedied:.0%}" if remedied else "-"
        print(f"| `{program['name']}` | {program['cause']} | {f'{rule}: {title}' if rule else 'none'} | {right} | {saves} |")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="what", required=True)
    run = commands.add_parser("run")
    run.add_argument("--apex", type=lambda p: Path(p).absolute(), required=True)
    run.add_argument("--out", type=lambda p: Path(p).absolute(), required=True)
    run.add_argument("--only")
    run.add_argument("--deadline", type=float, default=540)
    unpacking = commands.add_parser("unpack")
    unpacking.add_argument("out", type=Path)
    unpacking.add_argument("folder", type=Path)
    table = commands.add_parser("table")
    table.add_argument("results", type=Path)
    a = parser.parse_args()
    if a.what == "unpack":
        return unpack(a.out, a.folder)
    if a.what == "table":
        return print_table(a.results)
    a.out.mkdir(parents=True, exist_ok=True)
    runner = Runner(a)
    order = [p for p in programs() if not a.only or p["name"] in a.only.split(",")]
    runner.hardware()
    runner.prepare(order)
    print(f"prepared after {time.monotonic() - runner.began:.0f} s", flush=True)
    runner.run(order)


if __name__ == "__main__":
    main()
