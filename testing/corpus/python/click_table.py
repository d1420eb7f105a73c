"""A network learns which offers are clicked. The table of all offers shown is small, so it lies on the GPU from the start.

Cause: a DataLoader takes the rows of each batch one by one and stacks them. Remedy: a batch is one indexing of the table.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import main, small


class Offers(Dataset):
    def __init__(self, rows, clicked):
        self.rows, self.clicked = rows, clicked

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.clicked[i]


def shuffled(rows, clicked, size):
    order = torch.randperm(len(rows), device=rows.device)
    for some in order[: len(order) // size * size].split(size):
        yield rows[some], clicked[some]


def build(remedy, device):
    count, size, width = small(device, 400_000, 64), small(device, 1024, 8), small(device, 512, 16)
    rows = torch.randn(count, 40, device=device)
    clicked = (torch.rand(count, device=device) < 0.1).float()
    loader = DataLoader(Offers(rows, clicked), size, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(40, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    state = {"epoch": iter(())}

    def next_batch():
        for batch in state["epoch"]:
            return batch
        state["epoch"] = shuffled(rows, clicked, size) if remedy else iter(loader)
        return next(state["epoch"])

    def step():
        x, y = next_batch()
        nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
