#!/usr/bin/env python3
"""Programs of others, run on the GPU and on the CPU device: the same verdicts, exit statuses and launches?

    suites.py run --apex BIN --suite FOLDER --out OUT [--jobs N] [--seconds S] [--programs N]
    suites.py record --apex BIN --suite FOLDER --out OUT [--jobs N] [--seconds S] [--programs N]
    suites.py table OUT/suites.json

FOLDER is the `src` folder of HeCBench (https://github.com/zjin-lcf/HeCBench) or a part of it: folders called NAME-cuda with a
Makefile each. Every program is built for sm_80 with its PTX, then run three times with the arguments of its own `make run`, in
which integers are made smaller (`smaller`): alone on the GPU, recorded on the GPU, recorded on the CPU device. A program that
does not build, fails or takes too long on the GPU says nothing about APEX and is counted apart.

`record` keeps a session of each program, OUT/PROGRAM, with code and with every launch timed, for predictions to be compared with
what was measured. N programs are built at a time, and they run one after the other, while others are built, on the arguments
of `make run`, for S seconds at most; one that launches nothing in that time runs again with smaller integers.
"""

import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import read_results

VERDICT = re.compile(r"pass|fail|success|mismatch|incorrect|correct", re.IGNORECASE)
INTEGER = re.compile(r"(?<![\w.])\d{3,}(?![\w.])")


def smaller(arguments):
    """Integers of three digits and more divided by 16, powers of two stay powers of two."""

    def divide(match):
        value = int(match[0])
        return str(max(value // 16, 32) if value & (value - 1) == 0 else max(value // 16, 10))

    return INTEGER.sub(divide, arguments)


def run(command, folder, seconds, environment=None):
    """Exit status (None: it took too long), standard output, standard error and seconds."""
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})}, start_new_session=True,
    )
    try:
        out, error = process.communicate(timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, error = process.communicate()
        status = None
    text = lambda data: data.decode(errors="replace")
    return status, text(out), text(error), time.monotonic() - started


def build(folder, architecture="sm_80"):
    """Why it could not be built, or None."""
    options = [f"ARCH={architecture}", "CC=nvcc", "LAUNCHER="]
    status, out, error, _ = run(["make", "-j2", *options], folder, 120)
    return None if status == 0 else (error or out).strip()[-300:]


def command_of(folder, shortened=smaller):
    """What `make run` would start, with `shortened` arguments."""
    status, out, _, _ = run(["make", "-n", "run", "ARCH=sm_80", "CC=nvcc", "LAUNCHER="], folder, 10)
    joined = out.replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines() if line.strip().startswith("./")]
    if status != 0 or not lines:
        return None
    words = shlex.split(shortened(lines[0]))
    return None if {"|", ">", "&&", ";", "2>&1"} & set(words) else words


def verdicts(text):
    """Lines that judge the result, without their numbers."""
    return sorted(re.sub(r"[-+\d.e]+", "#", line) for line in text.splitlines() if VERDICT.search(line))


def launches(apex, session):
    """How often each configuration was launched."""
    status, out, error, _ = run([apex, "report", "--json", session], session.parent, 60)
    if status != 0:
        raise RuntimeError(f"apex report: {error[-300:]}")
    counts = collections.Counter()
    for kernel in json.loads(out)["profile"]["kernels"]:
        counts[f"{kernel['symbol']} {kernel['grid']} {kernel['block']}"] += kernel["launches"]["calls"] + kernel["launches"]["by_graphs"]
    return dict(counts)


def judged(program, apex, seconds):
    """One program: what came of it, whatever happens to this script on the way."""
    try:
        return shortened(judge(program, apex, seconds))
    except Exception as error:
        return {"program": program.name, "outcome": "not tried", "detail": repr(error)}


def shortened(result):
    """The result as the file keeps it: the machine's paths left out of messages, launches that differ as sums."""
    for key, value in result.items():
        if key.endswith("seconds"):
            result[key] = round(value, 2)
    detail = result.get("detail")
    if isinstance(detail, str):
        result["detail"] = re.sub(r"/\S+", "…", detail)[:160]
    elif detail:
        gpu, cpu = detail["gpu"], detail["cpu"]
        result["detail"] = {
            "launches_on_gpu": sum(gpu.values()),
            "launches_on_cpu": sum(cpu.values()),
            "configurations_that_differ": sum(gpu.get(key) != cpu.get(key) for key in gpu | cpu),
        }
    return result


def judge(program, apex, seconds):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / program.name
        shutil.copytree(program, folder)
        result = {"program": program.name}
        if failure := build(folder):
            return {**result, "outcome": "not built", "detail": failure}
        command = command_of(folder)
        if command is None:
            return {**result, "outcome": "not built", "detail": "no command in its Makefile"}
        result["command"] = " ".join(command)
        alone = run(command, folder, seconds)
        result["gpu_seconds"] = alone[3]
        if alone[0] != 0:
            how = "too long" if alone[0] is None else f"exit status {alone[0]}"
            return {**result, "outcome": "fails on the GPU", "detail": f"{how}: {(alone[2] or alone[1])[-300:]}"}
        sessions = {}
        for device in ("gpu", "cpu"):
            session = Path(place) / device
            recorded = run([apex, "run", "--device", device, "-o", str(session), "--", *command], folder, 3 * seconds)
            result[f"{device}_recorded_seconds"] = recorded[3]
            if recorded[0] is None:
                return {**result, "outcome": f"too long on the {device}"}
            if recorded[0] != 0:
                return {**result, "outcome": f"exit status {recorded[0]} on the {device}", "detail": (recorded[2] or recorded[1])[-1500:]}
            if verdicts(recorded[1]) != verdicts(alone[1]):
                apart = set(verdicts(recorded[1])) ^ set(verdicts(alone[1]))
                return {**result, "outcome": f"another verdict on the {device}", "detail": "\n".join(sorted(apart))[:1500]}
            sessions[device] = launches(apex, session)
        if sessions["gpu"] != sessions["cpu"]:
            return {**result, "outcome": "other launches", "detail": sessions}
        return {**result, "outcome": "same", "launches": sum(sessions["gpu"].values())}


def programs_of(arguments):
    """The folders of the programs that are asked for."""
    programs = sorted(path for path in Path(arguments.suite).iterdir() if (path / "Makefile").exists())
    return programs[:: max(1, len(programs) // arguments.programs)] if arguments.programs else programs


def judge_all(arguments):
    apex = str(Path(arguments.apex).resolve())
    out = Path(arguments.out) / "suites.json"
    results = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for job in concurrent.futures.as_completed([pool.submit(judged, program, apex, arguments.seconds) for program in programs_of(arguments)]):
            results.append(job.result())
            command = " ".join(["scripts/gpu/suites.py", *sys.argv[1:]])
            ordered = sorted(results, key=lambda result: result["program"])
            document = {"date": str(datetime.date.today()), "machine": machine(), "command": command, "results": ordered}
            out.write_text(json.dumps(document, indent=1) + "\n")
    table(out)


def record(apex, folder, session, seconds):
    """What came of recording the program that is built in `folder`."""
    for shortened in (lambda arguments: arguments, smaller):
        command = command_of(folder, shortened)
        if command is None:
            return "no command in its Makefile"
        shutil.rmtree(session, ignore_errors=True)
        options = ["--device", "gpu", "--timing", "all", "--code=32M", "--max-size", "3M", "--quiet", "-o", str(session)]
        status, _, error, _ = run([apex, "run", *options, "--", *command], folder, seconds)
        found = launches(apex, session) if session.exists() else {}
        if found:
            return f"{sum(found.values())} launches" + (", ended early" if status is None else "")
    return f"no launches: {error.strip()[-200:]}"


def record_all(arguments):
    apex, out = str(Path(arguments.apex).resolve()), Path(arguments.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        folders = {}
        for program in programs_of(arguments):
            folders[program.name] = Path(place) / program.name
            shutil.copytree(program, folders[program.name])
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            failures = pool.map(lambda folder: build(folder, arguments.arch), folders.values())
            for (name, folder), failure in zip(folders.items(), failures):
                if failure:
                    print(f"{name}: not built", flush=True)
                    continue
                try:
                    print(f"{name}: {record(apex, folder, out / name, arguments.seconds)}", flush=True)
                except (RuntimeError, OSError) as error:
                    print(f"{name}: {error}", flush=True)


def machine():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no GPU"


def table(path):
    results = read_results(path)["results"]
    print("| outcome | programs |\n| --- | ---: |")
    for outcome, count in collections.Counter(result["outcome"] for result in results).most_common():
        print(f"| {outcome} | {count} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    for name, act, seconds in (("run", judge_all, 20), ("record", record_all, 4)):
        part = parts.add_parser(name)
        part.add_argument("--apex", required=True)
        part.add_argument("--suite", required=True)
        part.add_argument("--out", required=True)
        part.add_argument("--jobs", type=int, default=14)
        part.add_argument("--seconds", type=float, default=seconds)
        part.add_argument("--programs", type=int, help="about so many of them, evenly chosen")
        if name == "record":
            part.add_argument("--arch", default="sm_90", help="what nvcc builds machine code and PTX for")
        part.set_defaults(act=act)
    part = parts.add_parser("table")
    part.add_argument("file")
    part.set_defaults(act=lambda arguments: table(arguments.file))
    arguments = parser.parse_args()
    arguments.act(arguments)
