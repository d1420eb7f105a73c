"""A network learns how much a customer will spend. What is known of each visit lies in a table of pandas.

Cause: each sample is a row that DataFrame.iloc makes. Remedy: the columns are arrays, made once.
"""

import numpy as np
import pandas
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import main, small

NUMBERS = [f"measure_{i}" for i in range(24)]


def visits(count):
    draw = np.random.default_rng(1)
    table = pandas.DataFrame(draw.standard_normal((count, len(NUMBERS))).astype(np.float32), columns=NUMBERS)
    table["shop"] = draw.integers(0, 500, count)
    table["spent"] = draw.gamma(2.0, 20.0, count).astype(np.float32)
    return table


class Rows(Dataset):
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def __getitem__(self, i):
        row = self.table.iloc[i]
        return row[NUMBERS].to_numpy(np.float32), int(row["shop"]), np.float32(row["spent"])


class Arrays(Dataset):
    def __init__(self, table):
        self.numbers, self.shop = table[NUMBERS].to_numpy(np.float32), table["shop"].to_numpy()
        self.spent = table["spent"].to_numpy()

    def __len__(self):
        return len(self.spent)

    def __getitem__(self, i):
        return self.numbers[i], self.shop[i], self.spent[i]


class Spending(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.shops = nn.Embedding(500, 16)
        self.layers = nn.Sequential(nn.Linear(16 + len(NUMBERS), width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, numbers, shop):
        return self.layers(torch.cat([numbers, self.shops(shop)], 1))[:, 0]


def endless(loader):
    while True:
        yield from loader


def build(remedy, device):
    table = visits(small(device, 200_000, 64))
    data = Arrays(table) if remedy else Rows(table)
    workers = small(device, 4, 0)
    batches = endless(DataLoader(data, small(device, 512, 8), shuffle=True, drop_last=True, num_workers=workers, pin_memory=workers > 0))
    model = Spending(small(device, 1024, 16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device.type == "cuda")

    def step():
        numbers, shop, spent = (part.to(device, non_blocking=True) for part in next(batches))
        nn.functional.huber_loss(model(numbers, shop), spent).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
