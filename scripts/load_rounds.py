#!/usr/bin/env python3
"""Runs the tests that start processes, again and again beside busy loops, and counts failures by test.

    scripts/load_rounds.py [--rounds N] [--loops N] [--target REGEX] [--log FOLDER]

A test that depends on how fast the machine is passes alone and fails sometimes beside other work. This
script builds the tests of interpose, live, host-stacks, dashboard, and the end-to-end tests of cli, and runs
each test binary once in a round, beside as many processes that compute without an end as there are
processors (two at least). It prints a line for each binary and a table at the end; its status is 1 if a
test failed. What a binary printed that failed is in the folder that `--log` names.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

PACKAGES = ("apex-interpose", "apex-live", "apex-host-stacks", "apex-dashboard", "apex-cli")
# A binary that takes longer hangs: each process that a test starts has a limit of ten minutes.
LIMIT_S = 7200
BUSY = "while :; do :; done"
FAILED = re.compile(r"^test (\S+) \.\.\. FAILED$", re.MULTILINE)
Outcome = collections.namedtuple("Outcome", "name failed seconds text")


def binaries(target):
    """Name, folder and path of each test binary, which cargo builds where it is not built yet."""
    command = ["cargo", "test", "--workspace", "--locked", "--no-run", "--message-format=json"]
    built = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if not message.get("executable") or not message["profile"]["test"]:
            continue
        folder = Path(message["manifest_path"]).parent
        package = re.search(r'^name = "(.*)"', (folder / "Cargo.toml").read_text(), re.MULTILINE)
        name = f"{package[1]}::{message['target']['name']}"
        if package[1] in PACKAGES and re.search(target, name):
            yield name, folder, message["executable"]


def run(name, folder, binary):
    """Runs a test binary to its end."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            [binary], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S
        )
        text, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        text, status = (late.stdout or b"").decode(errors="replace"), None
    failed = FAILED.findall(text)
    if status != 0 and not failed:
        failed = ["(hung)" if status is None else f"(ended with {status})"]
    return Outcome(name, failed, time.monotonic() - started, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--loops", type=int, default=max(2, os.cpu_count() or 2))
    parser.add_argument("--target", default="", help="only binaries PACKAGE::TARGET that match")
    parser.add_argument("--log", type=Path, default=Path("target/load-rounds"))
    wanted = parser.parse_args()
    tests = list(binaries(wanted.target))
    wanted.log.mkdir(parents=True, exist_ok=True)
    runs, failures = collections.Counter(), collections.Counter()
    loops = [subprocess.Popen(["sh", "-c", BUSY]) for _ in range(wanted.loops)]
    try:
        for number in range(1, wanted.rounds + 1):
            for name, folder, binary in tests:
                outcome = run(name, folder, binary)
                runs[name] += 1
                failures.update((name, test) for test in outcome.failed)
                verdict = ", ".join(outcome.failed) or "passed"
                load = os.getloadavg()[0]
                print(f"round {number}: {name}: {verdict} ({outcome.seconds:.0f} s, load {load:.1f})", flush=True)
                if outcome.failed:
                    (wanted.log / f"{number}-{name}.txt").write_text(outcome.text)
    finally:
        for loop in loops:
            loop.kill()
    print(f"\n{sum(runs.values())} runs of {len(runs)} binaries beside {wanted.loops} busy loops")
    for (name, test), count in failures.most_common():
        print(f"{count} of {runs[name]} failed: {name} {test}")
    sys.exit(1 if failures else 0)


main()
