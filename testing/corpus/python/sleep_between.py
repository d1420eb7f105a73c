"""After each step the host writes a log line to a slow place, and waits until it is written.

Cause: the device is idle while the host's own code runs. Remedy: threads write while the device computes.
"""

import concurrent.futures
import time

import torch

from harness import main, small


def write(_loss):
    time.sleep(0.02)


def build(remedy, device):
    n = small(device, 4096, 64)
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16)
    pool = concurrent.futures.ThreadPoolExecutor(8)

    def step():
        for _ in range(40):
            loss = torch.mm(a, a)[0, 0]
        if remedy:
            pool.submit(write, loss.item())
        else:
            write(loss.item())

    return step


if __name__ == "__main__":
    main(build)
