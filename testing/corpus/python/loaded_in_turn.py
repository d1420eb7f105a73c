"""Compressed samples are unpacked by the training process itself: the loader has no workers.

Cause: zlib in the dataset's __getitem__, in the main thread. Remedy: eight workers.
"""

import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import main, small


class Archive(Dataset):
    def __init__(self):
        noise = np.random.default_rng(1).integers(0, 40, (3, 160, 160), dtype=np.uint8)
        self.packed = zlib.compress(noise.tobytes(), 6)

    def __len__(self):
        return 10_000_000

    def __getitem__(self, i):
        pixels = np.frombuffer(zlib.decompress(self.packed), np.uint8).reshape(3, 160, 160)
        return torch.from_numpy(pixels.astype(np.float32) / 255)


def build(remedy, device):
    model = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(100))
    model = model.to(device)
    loader = DataLoader(Archive(), batch_size=small(device, 64, 2), num_workers=8 if remedy else 0)
    batches = iter(loader)

    def step():
        model(next(batches).to(device)).square().mean().backward()
        model.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
