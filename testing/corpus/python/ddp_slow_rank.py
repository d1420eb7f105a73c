"""Data-parallel training in which rank 1 gets 2.2 times the rows of rank 0.

Cause: rank 0 waits for rank 1 in the all-reduce. Remedy: both ranks get the same number of rows.
"""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness import main, small


def build(remedy, device):
    width, unit = small(device, 4096, 32), small(device, 2560, 5)
    rows = unit * 8 // 5 if remedy else (unit, unit * 11 // 5)[torch.distributed.get_rank()]
    layers = [m for _ in range(4) for m in (nn.Linear(width, width), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device, torch.bfloat16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)

    def step():
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
