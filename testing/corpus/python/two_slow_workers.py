"""Two worker processes decode and augment pictures in NumPy, each for longer than a training step takes.

Cause: the loader's workers are the bottleneck. Remedy: pictures are decoded once, before training.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import main, small


class Pictures(Dataset):
    def __init__(self, ready):
        self.ready = torch.randn(64, 3, 128, 128) if ready else None

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        if self.ready is not None:
            return self.ready[i % len(self.ready)]
        generator = np.random.default_rng(i)
        picture = generator.normal(size=(3, 128, 128))
        for _ in range(4):
            picture = np.roll(picture, 3, axis=1) * 0.7 + np.sort(picture, axis=2) * 0.3
        return torch.from_numpy(picture.astype(np.float32))


def build(remedy, device):
    model = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(100))
    model = model.to(device)
    batches = iter(DataLoader(Pictures(remedy), batch_size=small(device, 32, 2), num_workers=2, pin_memory=device.type == "cuda"))

    def step():
        loss = model(next(batches).to(device, non_blocking=True)).square().mean()
        loss.backward()
        model.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
