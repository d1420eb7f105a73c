"""k-means: the distance of each point to each centre, by a difference of two broadcast tensors.

Cause: a tensor of points, centres and dimensions is written and read several times. Remedy: torch.cdist.
"""

import torch

from harness import main, small


def build(remedy, device):
    points = torch.randn(small(device, 20_000, 64), 64, device=device)
    centres = torch.randn(small(device, 256, 8), 64, device=device)

    def distances(centres):
        if remedy:
            return torch.cdist(points, centres)
        return ((points[:, None, :] - centres[None, :, :]) ** 2).sum(-1).sqrt()

    def step():
        nearest = distances(centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        counts = torch.bincount(nearest, minlength=len(centres)).clamp(min=1)
        return sums / counts[:, None]

    return step


if __name__ == "__main__":
    main(build)
