"""A recommender whose table has four million rows; a batch touches a few thousand of them.

Cause: dense gradients: the whole table is filled, read and written in every step. Remedy: sparse gradients.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    rows = small(device, 4_000_000, 1000)
    table = nn.EmbeddingBag(rows, 128, mode="sum", sparse=remedy).to(device)
    top = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
    optimizers = [torch.optim.SGD(table.parameters(), lr=0.1), torch.optim.SGD(top.parameters(), lr=0.1)]
    indices = torch.randint(0, rows, (small(device, 2048, 4), 20), device=device)

    def step():
        loss = top(table(indices)).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
