#!/usr/bin/env python3
"""Recorded programs that fork, become other programs, end in random ways, or are killed at random moments.

    endings.py [--bin FOLDER] [--rounds 1000] [--first 0] [--jobs 2] [--read-every 1] [--out FILE]

FOLDER has apex, its libraries and the tests' program (cargo build --workspace --bins --locked). Each round draws from its
number what the program does: it forks children that launch, launches from threads, becomes itself by exec, and ends by exit
or by a signal; every fourth round the program, apex, or both are killed at a random moment instead. A round fails if
the program or apex does not end within five minutes, if the program ends otherwise than without APEX, if its session does not open,
or if a launch that had returned is missing; with --read-every N, one session in N is opened. FILE gets the result as JSON. The CPU
device runs the kernels.
"""

import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

LIMIT = 300
KILLS = ("program", "apex", "both")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV)


class Failure(Exception):
    """What was wrong with a round."""


def life(draw):
    """Words of the program, the launches that it makes, and the status that it ends with."""
    words, launches = [], 0

    def launch(word, most):
        nonlocal launches
        count = 1 + draw.randrange(most)
        words.extend([*word, str(count)])
        launches += count * len(word)

    for _ in range(draw.randrange(3)):
        launch(["fork"], 40)
    for _ in range(1 + draw.randrange(4)):
        kind = draw.randrange(4)
        if kind == 1:
            words.append("exec")
        else:
            launch(["threads", "2"] if kind == 0 else ["launch"], 40 if kind == 0 else 200)
    if draw.randrange(2):
        status = draw.randrange(120)
        return [*words, "exit", str(status)], launches, status
    status = draw.choice(SIGNALS)
    return [*words, "raise", str(int(status))], launches, -status


def started(a, folder, words):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("APEX_", "CUDA_", "LD_PRELOAD"))}
    command = [a.bin / "apex", "run", "--quiet", "--device", "cpu", "-o", folder / "s", "--", a.bin / "cuda-program", *words]
    return subprocess.Popen(command, env=environment | {"HOME": str(folder)}, cwd=folder, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def finished(process):
    """Its output, once all who hold it have ended; kills them after the limit."""
    try:
        return process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise Failure(f"not ended after {LIMIT} s") from None


def recorded(a, folder):
    """Launches in the session; it must open."""
    report = subprocess.run([a.bin / "apex", "report", "--json", folder / "s"], capture_output=True, text=True, timeout=LIMIT, check=False)
    if report.returncode:
        raise Failure(f"the session does not open: {report.stderr.strip()[-300:]}")
    return json.loads(report.stdout)["profile"]["totals"]["launches"]


def ends(a, draw, folder, is_read):
    words, launches, status = life(draw)
    process = started(a, folder, words)
    finished(process)
    if process.returncode != status:
        raise Failure(f"status {process.returncode} in place of {status}: {' '.join(words)}")
    if launches and is_read and (found := recorded(a, folder)) != launches:
        raise Failure(f"{found} of {launches} launches were recorded: {' '.join(words)}")


def is_killed(a, draw, folder, is_read, victim):
    words = ["launch", "500"] * 3 if victim == "apex" else ["forever"]
    process = started(a, folder, words)
    said = process.stdout.readline()
    time.sleep(draw.random() * 0.03)
    if victim == "program":
        pid = program_of(process.pid)
        os.kill(pid, signal.SIGKILL)
    elif victim == "apex":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    out, _ = finished(process)
    lines = [line for line in [said, *out.splitlines(True)] if line.startswith("launched ") and line.endswith("\n")]
    least = max(int(line.split()[1]) for line in lines)
    if not is_read:
        return
    found = recorded(a, folder)
    if found < least or victim == "apex" and found != 1500:
        raise Failure(f"{found} launches were recorded, {least} had returned ({victim} killed)")


def program_of(apex):
    """The process that apex started."""
    children = Path(f"/proc/{apex}/task").glob("*/children")
    return next(int(pid) for file in children for pid in file.read_text().split())


def run(a, number):
    """What a round did, and what was wrong with it; None if nothing was."""
    draw, folder = random.Random(number), Path(tempfile.mkdtemp(prefix="apex-endings-"))
    victim = KILLS[number // 4 % 3] if number % 4 == 0 else None
    kind = f"{victim} killed" if victim else "ended by itself"
    try:
        is_read = number % a.read_every == 0
        is_killed(a, draw, folder, is_read, victim) if victim else ends(a, draw, folder, is_read)
        return kind, None
    except (Failure, subprocess.TimeoutExpired, OSError, StopIteration) as wrong:
        return kind, f"round {number}: {wrong!r}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=lambda p: Path(p).absolute(), default=Path("target/debug").absolute())
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--read-every", type=int, default=1, metavar="N")
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()
    began, kinds, wrong = time.monotonic(), collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for kind, failure in pool.map(lambda number: run(a, number), range(a.first, a.first + a.rounds)):
            kinds[kind] += 1
            if failure:
                wrong.append(failure)
                print(failure, flush=True)
    result = {"date": datetime.date.today().isoformat(), "rounds": a.rounds, "sessions read": f"one in {a.read_every}", "jobs": a.jobs,
              "seconds": round(time.monotonic() - began), "load": [round(load, 1) for load in os.getloadavg()], "by kind": dict(sorted(kinds.items())), "wrong": wrong}
    print(json.dumps(result))
    if a.out:
        a.out.write_text(json.dumps(result, indent=1) + "\n")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
