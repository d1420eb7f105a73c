"""A model learns from windows of a sensor's record. The record is short, so that an epoch has only sixteen batches.

Cause: the loader starts its workers anew for each epoch. Remedy: persistent_workers=True.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import main, small

LENGTH = 1024


class Windows(Dataset):
    def __init__(self, count):
        self.count = count
        self.record = np.random.default_rng(1).standard_normal((8, count + LENGTH)).astype(np.float32)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        window = self.record[:, i : i + LENGTH]
        return torch.from_numpy(window - window.mean(1, keepdims=True)), i % 10


def layer(inside, outside):
    return nn.Sequential(nn.Conv1d(inside, outside, 9, 2, 4), nn.BatchNorm1d(outside), nn.GELU())


def build(remedy, device):
    size = small(device, 64, 2)
    windows = Windows(16 * size)
    loader = DataLoader(windows, size, shuffle=True, num_workers=small(device, 4, 1), pin_memory=device.type == "cuda",
                        persistent_workers=remedy)
    model = nn.Sequential(layer(8, 64), layer(64, 128), layer(128, 256), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(256, 10))
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device.type == "cuda")
    state = {"epoch": iter(()), "seen": 0}

    def next_batch():
        for batch in state["epoch"]:
            return batch
        state["epoch"] = iter(loader)
        return next(state["epoch"])

    def step():
        x, y = (tensor.to(device, non_blocking=True) for tensor in next_batch())
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        state["seen"] += len(y)

    return step


if __name__ == "__main__":
    main(build)
