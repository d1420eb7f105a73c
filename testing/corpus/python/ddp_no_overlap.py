"""All gradients are reduced after the whole backward pass, while nothing else runs.

Cause: collectives that are not overlapped. Remedy: DistributedDataParallel, which reduces each bucket during the backward pass.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness import main, small


def build(remedy, device):
    width = small(device, 8192, 32)
    layers = [m for _ in range(6) for m in (nn.Linear(width, width, bias=False), nn.ReLU())]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    trained = DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=128) if remedy else model
    x = torch.randn(small(device, 2048, 4), width, device=device, dtype=torch.bfloat16)

    def step():
        trained(x).float().square().mean().backward()
        if not remedy:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        for parameter in model.parameters():
            parameter.grad.zero_()

    return step


if __name__ == "__main__":
    main(build)
