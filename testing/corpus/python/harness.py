"""How the PyTorch programs of the corpus are run: as `pairs` says, on a device and, for the programs whose name begins with
`ddp`, in two processes:

    [python -m torch.distributed.run --nproc-per-node 2] PROGRAM.py …

A program calls `main(build)`. `build(remedy, device)` returns the step.
"""

import os
import time

import torch
import torch.distributed

import pairs


def agreed(step, synchronize, device, seconds, most):
    """Steps that all ranks take: as many as rank 0 needs for `seconds`."""
    began = time.perf_counter()
    for _ in range(pairs.WARM_UP_STEPS):
        step()
    synchronize()
    each = (time.perf_counter() - began) / pairs.WARM_UP_STEPS
    steps = torch.tensor(max(1, min(most, int(seconds / each))), device=device)
    torch.distributed.broadcast(steps, 0)
    return int(steps)


def main(build):
    a = pairs.arguments()
    torch.manual_seed(1)
    device = torch.device("cpu") if a.cpu else torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if not a.cpu:
        torch.cuda.set_device(device)
        torch.cuda.synchronize()
    pairs.pass_gate(a)
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo" if a.cpu else "nccl")

    def synchronize():
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def timed(step, synchronize, seconds, most):
        synchronize()
        if torch.distributed.is_initialized():
            most, seconds = agreed(step, synchronize, device, seconds, most), float("inf")
        return pairs.timed(step, synchronize, seconds, most)

    def report(*figures):
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            pairs.report(*figures)

    pairs.run(a, lambda remedy: build(remedy, device), synchronize, timed, report)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def small(device, size, tiny):
    """`size` on a GPU, `tiny` on a CPU."""
    return size if device.type == "cuda" else tiny
