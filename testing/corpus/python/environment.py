"""Programs whose cause is a variable of the environment that is set before CUDA starts: a pair is two processes.

`main(build, plain)` sets the variables `plain` unless `--remedy` is given; otherwise as `harness.main`.
"""

import os
import subprocess
import sys


def main(build, plain):
    if "--pairs" in sys.argv:
        return run_pairs()
    if "--remedy" not in sys.argv:
        os.environ.update(plain)
    import harness

    harness.main(build)


def run_pairs():
    """Each run is a process of its own that prints its line."""
    at = sys.argv.index("--pairs")
    rest = [argument for argument in sys.argv[1:at] + sys.argv[at + 2 :] if argument != "--gate"]
    if "--gate" in sys.argv:
        sys.stdin.readline()
    for _ in range(int(sys.argv[at + 1])):
        for remedy in ([], ["--remedy"]):
            subprocess.run([sys.executable, sys.argv[0], *rest, *remedy], check=True)
