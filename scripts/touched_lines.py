"""How many cache lines and pages a launch touches: bare, recorded, and handed over to the launch queue.

    touched_lines.py [BIN]    # BIN: folder of apex, its libraries and libfake_driver.so (default: target/release)

Valgrind's lackey lists each access of touched_lines.c, a program that launches 50 configurations in turn on the fake driver of the tests, which does nothing.
What is counted is what lies between two writes of the program to a mark; the commonest figures of 40 launches are printed. Lines and pages
of the fake driver's own code and data, and of the stack, are left out: a real driver has others, and the stack is warm.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

WARM, LAUNCHES = 3000, 40
WAYS = {
    "bare": ({"APEX_DISABLE": "1"}, []),
    "recorded": ({}, ["--timing", "off"]),
    "handed over": ({"APEX_FAST_ALWAYS": "1"}, ["--timing", "off", "--fast"]),
}
ACCESS = re.compile(r"(I | L| S| M)\s+([0-9a-f]+),")
MAP = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+\s*(.*)")


def accesses(folder, binaries, program, environment, options):
    """For each launch the (kind, address) of its accesses; and what lies where."""
    command = [binaries / "apex", "run", "--quiet", *options, "-o", folder / "session", "--", "valgrind", "--tool=lackey", "--trace-mem=yes"]
    command += [f"--log-file={folder}/trace", program, str(WARM), str(LAUNCHES)]
    environment = os.environ | {"APEX_DRIVER": str(binaries / "libfake_driver.so")} | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    mark, *maps = done.stdout.splitlines()
    mark = int(mark, 16)
    launches, of_launch = [], None
    for line in (folder / "trace").open():
        if found := ACCESS.match(line):
            kind, address = found[1].strip(), int(found[2], 16)
            if kind == "S" and address == mark:
                of_launch = [] if of_launch is None else launches.append(of_launch)
            elif of_launch is not None:
                of_launch.append((kind, address))
    return launches, [MAP.match(line).groups() for line in maps if MAP.match(line)]


def figures(of_launch, places):
    """Instructions, lines and pages of code, lines and pages of data."""
    kept = [(kind, address) for kind, address in of_launch if not is_left_out(address, places)]
    code, data = ({address for kind, address in kept if (kind == "I") == is_code} for is_code in (True, False))
    units = [len({address >> shift for address in addresses}) for addresses in (code, data) for shift in (6, 12)]
    return (sum(kind == "I" for kind, _ in kept), *units)


def is_left_out(address, places):
    name = next((name for begin, end, name in places if int(begin, 16) <= address < int(end, 16)), "")
    return "fake_driver" in name or address > 0x1F_0000_0000


def main():
    binaries = Path(sys.argv[1] if len(sys.argv) > 1 else "target/release").resolve()
    print("launch: instructions, code lines, code pages, data lines, data pages")
    for way, (environment, options) in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            subprocess.run(["gcc", "-O1", "-o", program, Path(__file__).with_suffix(".c"), "-ldl"], check=True)
            launches, places = accesses(Path(folder), binaries, program, environment, options)
        (common, _), = collections.Counter(figures(launch, places) for launch in launches).most_common(1)
        print(f"{way}: {', '.join(map(str, common))}", flush=True)


main()
