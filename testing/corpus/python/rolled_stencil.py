"""A reaction and diffusion of two substances on a grid, written with torch.roll.

Cause: an expression of many kernels. Remedy: torch.compile.
"""

import torch

from harness import main, small


def laplace(a):
    return a.roll(1, 0) + a.roll(-1, 0) + a.roll(1, 1) + a.roll(-1, 1) - 4 * a


def advance(u, v):
    reaction = u * v * v
    return u + 0.16 * laplace(u) - reaction + 0.06 * (1 - u), v + 0.08 * laplace(v) + reaction - 0.122 * v


def build(remedy, device):
    side = small(device, 4096, 16)
    state = [torch.rand(side, side, device=device), torch.rand(side, side, device=device) * 0.3]
    call = torch.compile(advance) if remedy and device.type == "cuda" else advance

    def step():
        state[:] = call(*state)

    return step


if __name__ == "__main__":
    main(build)
