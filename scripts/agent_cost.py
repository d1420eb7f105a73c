#!/usr/bin/env python3
"""What `apex run --hub` costs beside `apex run`: processor time and memory of that process alone.

A program launches kernels on the CPU device for some minutes, at a steady rate, once without a hub and once
with one on this machine (a message every 30 s). APEX=target/release/apex scripts/agent_cost.py [SECONDS] [LAUNCHES]
"""

import os
import subprocess
import sys
import tempfile
import time

APEX = os.path.realpath(os.environ.get("APEX", "target/release/apex"))
SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 240
LAUNCHES = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
TICK = os.sysconf("SC_CLK_TCK")


def of_process(pid: int) -> tuple[float, int]:
    """Processor seconds of a process, and the most memory that it had, bytes."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    with open(f"/proc/{pid}/status") as file:
        [peak] = [int(line.split()[1]) for line in file if line.startswith("VmHWM:")]
    return (int(fields[11]) + int(fields[12])) / TICK, peak * 1024


def run(folder: str, options: list[str]) -> tuple[float, int]:
    """Processor seconds and memory of `apex run` shortly before its program ends."""
    # A program that launches much, then pauses, again and again.
    script = f"until [ -e end ]; do {APEX} demo --bare bad >/dev/null; sleep {2070 * 60 / LAUNCHES:.2f}; done"
    command = [APEX, "run", "--device", "cpu", "-q", *options, "--", "sh", "-c", script]
    process = subprocess.Popen(command, cwd=folder)
    time.sleep(SECONDS)
    found = of_process(process.pid)
    open(f"{folder}/end", "w").close()
    process.wait()
    return found


def main() -> None:
    """Prints both runs and their difference."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/without")
        os.mkdir(f"{folder}/with")
        hub = subprocess.Popen(
            [APEX, "hub", "--listen", "127.0.0.1:0", "--database", "hub.db"],
            cwd=folder, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert hub.stdout
        url = hub.stdout.readline().strip().rstrip("/")
        alone = run(f"{folder}/without", ["-o", "s"])
        sending = run(f"{folder}/with", ["-o", "s", "--hub", url, "--spool", "spool"])
        served = of_process(hub.pid)
        hub.terminate()
    print(f"seconds {SECONDS}, launches a minute {LAUNCHES}")
    for name, (cpu, peak) in [("apex run", alone), ("apex run --hub", sending), ("apex hub", served)]:
        print(f"{name}: {cpu:.2f} s of processor time ({100 * cpu / SECONDS:.3f}% of a core), {peak / 1e6:.1f} MB")
    more = sending[0] - alone[0]
    print(f"of the hub's part: {100 * more / SECONDS:.3f}% of a core, {(sending[1] - alone[1]) / 1e6:.1f} MB")


main()
