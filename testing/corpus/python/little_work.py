"""A simulation on the CPU that asks the GPU for a sum now and then.

Cause: the program's own code: the GPU has next to nothing to do. Remedy: the whole simulation runs on the GPU.
"""

import numpy as np
import torch

from harness import main, small


def build(remedy, device):
    walkers = small(device, 200_000, 100)
    generator = np.random.default_rng(1)
    host = np.zeros((walkers, 3))
    own = torch.zeros(walkers, 3, device=device)

    def step():
        if remedy:
            own.add_(torch.randn_like(own))
            return own.square().sum(1).mean()
        host[:] += generator.normal(size=host.shape)
        return torch.from_numpy(host).to(device).square().sum(1).mean()

    return step


if __name__ == "__main__":
    main(build)
