"""A diffusion model's training step draws its noise and its time steps with a generator of the CPU.

Cause: random numbers are drawn on the CPU and copied. Remedy: they are drawn on the device.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    batch, side = small(device, 64, 2), small(device, 64, 8)
    net = nn.Sequential(nn.Conv2d(4, 128, 3, padding=1), nn.SiLU(), nn.Conv2d(128, 4, 3, padding=1))
    net = net.to(device, torch.bfloat16, memory_format=torch.channels_last)
    clean = torch.randn(batch, 4, side, side, device=device)
    steps = torch.linspace(0.999, 0.01, 1000, device=device)
    where = device if remedy else "cpu"

    def step():
        noise = torch.randn(clean.shape, device=where).to(device)
        t = torch.randint(1000, (batch,), device=where).to(device)
        a = steps[t][:, None, None, None]
        noisy = (a.sqrt() * clean + (1 - a).sqrt() * noise).to(torch.bfloat16, memory_format=torch.channels_last)
        loss = (net(noisy).float() - noise).square().mean()
        loss.backward()
        net.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
