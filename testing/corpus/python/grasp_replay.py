"""A robot's network learns to value grasps. What was tried lies on the GPU, a million tries; each step draws 256 different ones.

Cause: np.random.choice without replacement puts the whole million into a random order. Remedy: Generator.choice, which does not.
"""

import numpy as np
import torch
from torch import nn

from harness import main, small


class Tries:
    def __init__(self, room, device, generator):
        self.poses = torch.randn(room, 48, device=device)
        self.moves = torch.randn(room, 8, device=device)
        self.gains = torch.rand(room, device=device)
        self.generator = generator

    def draw_rows(self, size):
        chosen = self.generator.choice(len(self.gains), size, replace=False)
        rows = torch.from_numpy(chosen).to(self.gains.device)
        return self.poses[rows], self.moves[rows], self.gains[rows]


def value_network(width):
    return nn.Sequential(nn.Linear(56, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def build(remedy, device):
    room, size, width = small(device, 1_000_000, 500), small(device, 256, 8), small(device, 512, 16)
    tries = Tries(room, device, np.random.default_rng(1) if remedy else np.random)
    first, second = value_network(width).to(device), value_network(width).to(device)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=3e-4, fused=device.type == "cuda")

    def step():
        poses, moves, gains = tries.draw_rows(size)
        x = torch.cat([poses, moves], 1)
        loss = sum(nn.functional.mse_loss(network(x)[:, 0], gains) for network in (first, second))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
