#!/usr/bin/env python3
"""What `apex run --hub` costs beside `apex run`: processor time and memory of that process alone.

A program runs on the CPU device for some time, once without a hub and once with one on this machine (a message
every 30 s); it has to run longer than that. APEX=target/release/apex scripts/agent_cost.py SECONDS PROGRAM [ARGUMENT...]
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

APEX = os.path.realpath(os.environ.get("APEX", "target/release/apex"))
SECONDS = int(sys.argv[1])
PROGRAM = [os.path.realpath(sys.argv[2]), *sys.argv[3:]]
TICK = os.sysconf("SC_CLK_TCK")


def of_process(pid: int) -> tuple[float, int]:
    """Processor seconds of a process, and the most memory that it had, bytes."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    with open(f"/proc/{pid}/status") as file:
        [peak] = [int(line.split()[1]) for line in file if line.startswith("VmHWM:")]
    return (int(fields[11]) + int(fields[12])) / TICK, peak * 1024


def run(folder: str, options: list[str]) -> tuple[float, int]:
    """Processor seconds and memory of `apex run` while its program runs."""
    command = [APEX, "run", "--device", "cpu", "-q", "-o", "s", *options, "--", *PROGRAM]
    process = subprocess.Popen(command, cwd=folder, start_new_session=True)
    time.sleep(SECONDS)
    found = of_process(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
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
        alone = run(f"{folder}/without", [])
        sending = run(f"{folder}/with", ["--hub", url, "--spool", "spool"])
        served = of_process(hub.pid)
        hub.terminate()
    print(f"seconds {SECONDS}, {' '.join([os.path.basename(PROGRAM[0]), *PROGRAM[1:]])}")
    for name, (cpu, peak) in [("apex run", alone), ("apex run --hub", sending), ("apex hub", served)]:
        print(f"{name}: {cpu:.2f} s of processor time ({100 * cpu / SECONDS:.3f}% of a core), {peak / 1e6:.1f} MB")
    more = sending[0] - alone[0]
    print(f"what --hub adds: {100 * more / SECONDS:.3f}% of a core, {(sending[1] - alone[1]) / 1e6:.1f} MB")


main()
