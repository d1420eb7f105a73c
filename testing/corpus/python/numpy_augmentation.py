"""Each batch is augmented with NumPy in the training loop, then copied to the device.

Cause: the host's own code between steps. Remedy: the device augments.
"""

import numpy as np
import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    batch = small(device, 64, 2)
    pictures = np.random.default_rng(1).integers(0, 256, (batch, 3, 128, 128), dtype=np.uint8)
    kept = torch.from_numpy(pictures).to(device)
    noise = np.random.default_rng(2)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.Conv2d(64, 128, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(128, 10),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    labels = torch.randint(0, 10, (batch,), device=device)

    def host():
        x = pictures.astype(np.float32) / 255
        x = (x - x.mean((2, 3), keepdims=True)) / x.std((2, 3), keepdims=True)
        x = x[:, :, :, ::-1] + noise.normal(0, 0.1, x.shape).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(x)).to(device)

    def own():
        x = kept.float() / 255
        x = (x - x.mean((2, 3), keepdim=True)) / x.std((2, 3), keepdim=True)
        return x.flip(3) + 0.1 * torch.randn_like(x)

    def step():
        loss = nn.functional.cross_entropy(model(own() if remedy else host()), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
