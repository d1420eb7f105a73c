"""A segmentation model trains on patches from one file of NumPy arrays, which stays open; each batch picks its patches by number.

Cause: `archive["pictures"]` of an open .npz reads the whole array at every access. Remedy: both arrays are read once.
"""

import tempfile

import numpy as np
import torch
from torch import nn

from harness import main, small


class Patches:
    def __init__(self, count, side, kept):
        generator = np.random.default_rng(1)
        self.file = tempfile.NamedTemporaryFile(suffix=".npz")
        pictures = generator.integers(0, 256, (count, 3, side, side), dtype=np.uint8)
        np.savez(self.file.name, pictures=pictures, masks=pictures[:, 0] > 128)
        self.archive = np.load(self.file.name)
        if kept:
            self.archive = {name: self.archive[name] for name in self.archive.files}
        self.order, self.count = generator, count

    def batch_of(self, size):
        numbers = self.order.integers(0, self.count, size)
        return torch.from_numpy(self.archive["pictures"][numbers]), torch.from_numpy(self.archive["masks"][numbers])


def block(inside, outside, stride=1):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1), nn.BatchNorm2d(outside), nn.ReLU())


def build(remedy, device):
    side = small(device, 64, 16)
    patches = Patches(small(device, 512, 16), side, remedy)
    model = nn.Sequential(block(3, 32), block(32, 64, 2), block(64, 64), nn.Upsample(scale_factor=2), nn.Conv2d(64, 1, 1))
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    loss_of = nn.BCEWithLogitsLoss()

    def step():
        pictures, masks = patches.batch_of(small(device, 32, 2))
        pictures, masks = pictures.to(device).float().div_(255), masks.to(device).float()
        loss = loss_of(model(pictures)[:, 0], masks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
