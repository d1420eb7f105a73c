"""How every PyTorch program of the corpus is run: once for a session, or in pairs for the saving of its remedy.

    [python -m torch.distributed.run --nproc-per-node 2]    in front, for the programs whose name begins with `ddp`

    PROGRAM.py [--remedy] [--seconds S] [--steps N]    runs the step for S seconds or N steps, prints one time
    PROGRAM.py --pairs N [--seconds S]                 N times: S seconds without the remedy, then S seconds with it
    … --gate                                           waits for a line on stdin between imports and the first CUDA call

A program calls `main(build)`. `build(remedy, device)` returns the step: a function without arguments that queues the work of
one iteration. The harness never synchronises inside a measured run, so that the program's own behaviour stays what it is. Each
line that it prints is JSON: `{"remedy": false, "steps": 812, "step_ms": 3.69}`.
"""

import argparse
import json
import os
import sys
import time

import torch
import torch.distributed

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


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def agreed(step, device, seconds, most):
    """Steps that all ranks take: as many as rank 0 needs for `seconds`."""
    began = time.perf_counter()
    for _ in range(WARM_UP_STEPS):
        step()
    synchronize(device)
    each = (time.perf_counter() - began) / WARM_UP_STEPS
    steps = torch.tensor(max(1, min(most, int(seconds / each))), device=device)
    torch.distributed.broadcast(steps, 0)
    return int(steps)


def timed(step, device, seconds, most):
    """Runs steps until the time is over; (steps, milliseconds a step). The queue may hold a few steps when the clock is read, so
    the last synchronisation belongs to the time."""
    synchronize(device)
    if torch.distributed.is_initialized():
        most, seconds = agreed(step, device, seconds, most), float("inf")
    began = time.perf_counter()
    steps = 0
    while steps < most and time.perf_counter() - began < seconds:
        step()
        steps += 1
    synchronize(device)
    return steps, (time.perf_counter() - began) * 1e3 / steps


def report(remedy, steps, step_ms):
    if torch.distributed.is_initialized() and torch.distributed.get_rank() > 0:
        return
    print(json.dumps({"remedy": remedy, "steps": steps, "step_ms": round(step_ms, 5)}), flush=True)


def warm(build, remedy, device):
    step = build(remedy, device)
    for _ in range(WARM_UP_STEPS):
        step()
    synchronize(device)
    return step


def main(build):
    a = arguments()
    if a.gate:
        sys.stdin.readline()
    torch.manual_seed(1)
    device = torch.device("cpu") if a.cpu else torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if not a.cpu:
        torch.cuda.set_device(device)
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo" if a.cpu else "nccl")
    if a.pairs:
        both = {remedy: warm(build, remedy, device) for remedy in (False, True)}
        for _ in range(a.pairs):
            for remedy, step in both.items():
                report(remedy, *timed(step, device, a.seconds, a.steps))
    else:
        report(a.remedy, *timed(warm(build, a.remedy, device), device, a.seconds, a.steps))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def small(device, size, tiny):
    """`size` on a GPU, `tiny` on a CPU."""
    return size if device.type == "cuda" else tiny
