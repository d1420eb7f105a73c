"""The optimizer updates 200 parameters one by one, with ten kernels each.

Cause: unfused optimizer. Remedy: fused=True.
"""

import torch

from harness import main, small


def build(remedy, device):
    size = small(device, 1 << 20, 64)
    parameters = [torch.randn(size, device=device, requires_grad=True) for _ in range(small(device, 200, 4))]
    for p in parameters:
        p.grad = torch.randn_like(p)
    kind = {"fused": True} if remedy and device.type == "cuda" else {"foreach": False}
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, **kind)
    n = small(device, 2048, 64)
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16)

    def step():
        for _ in range(8):
            torch.mm(a, a)
        optimizer.step()

    return step


if __name__ == "__main__":
    main(build)
