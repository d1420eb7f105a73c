"""How every Python program of the corpus is run: once for a session, or in pairs for the saving of its remedy.

    PROGRAM.py [--remedy] [--seconds S] [--steps N]    runs the step for S seconds or N steps, prints one time
    PROGRAM.py --pairs N [--seconds S]                 N times: S seconds without the remedy, then S seconds with it
    … --gate                                           waits for a line on stdin before the first launch

A program in PyTorch calls `harness.main(build)`, one without it `pairs.main(build, synchronize)`. `build(remedy)` returns the
step: a function without arguments that queues the work of one iteration. The harness never synchronises inside a measured run,
so that the program's own behaviour stays what it is. Each line that it prints is JSON:
`{"remedy": false, "steps": 812, "step_ms": 3.69}`.
"""

import argparse
import json
import sys
import time

WARM_UP_STEPS = 5


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--remedy", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--gate", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="try the program without a GPU: tiny sizes, no figures")
    return parser.parse_args()


def pass_gate(a):
    if a.gate:
        sys.stdin.readline()


def timed(step, synchronize, seconds, most):
    """Runs steps until the time is over; (steps, milliseconds a step). The queue may hold a few steps when the clock is read, so
    the last synchronisation belongs to the time."""
    synchronize()
    began = time.perf_counter()
    steps = 0
    while steps < most and time.perf_counter() - began < seconds:
        step()
        steps += 1
    synchronize()
    return steps, (time.perf_counter() - began) * 1e3 / steps


def report(remedy, steps, step_ms):
    print(json.dumps({"remedy": remedy, "steps": steps, "step_ms": round(step_ms, 5)}), flush=True)


def warm(build, synchronize, remedy):
    step = build(remedy)
    for _ in range(WARM_UP_STEPS):
        step()
    synchronize()
    return step


def run(a, build, synchronize, timed=timed, report=report):
    """One run, or pairs of them, as the arguments `a` say."""
    if not a.pairs:
        return report(a.remedy, *timed(warm(build, synchronize, a.remedy), synchronize, a.seconds, a.steps))
    both = {remedy: warm(build, synchronize, remedy) for remedy in (False, True)}
    for _ in range(a.pairs):
        for remedy, step in both.items():
            report(remedy, *timed(step, synchronize, a.seconds, a.steps))


def main(build, synchronize):
    a = arguments()
    pass_gate(a)
    run(a, build, synchronize)
