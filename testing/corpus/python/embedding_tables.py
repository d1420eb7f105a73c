"""A recommender with 64 categorical features, each looked up in a table of its own.

Cause: launch-bound loop over tables. Remedy: one table, whose rows begin at the feature's offset.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    features, rows, width, batch = 64, small(device, 10_000, 10), 32, small(device, 4096, 4)
    tables = [nn.Embedding(rows, width).to(device) for _ in range(1 if remedy else features)]
    if remedy:
        tables = [nn.Embedding(rows * features, width).to(device)]
    top = nn.Sequential(nn.Linear(features * width, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    indices = torch.randint(0, rows, (batch, features), device=device)
    offsets = torch.arange(features, device=device) * rows

    def step():
        with torch.no_grad():
            if remedy:
                found = tables[0](indices + offsets).view(batch, -1)
            else:
                found = torch.cat([table(indices[:, i]) for i, table in enumerate(tables)], dim=1)
            return top(found)

    return step


if __name__ == "__main__":
    main(build)
