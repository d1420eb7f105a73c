"""A small U-Net denoises one picture, as diffusion models draw samples: a hundred short kernels for each of many steps.

Cause: launch-bound. Remedy: the network is captured into a CUDA graph.
"""

import torch
from torch import nn
from torch.nn.functional import interpolate, silu

from harness import main, small


class Block(nn.Module):
    def __init__(self, inputs, outputs, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.skip = nn.Linear(time, outputs), nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, t):
        h = self.conv1(silu(self.norm1(x))) + self.time(silu(t))[:, :, None, None]
        return self.conv2(silu(self.norm2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.down = nn.ModuleList(Block(width, width, width) for _ in range(3))
        self.middle = Block(width, width, width)
        self.up = nn.ModuleList(Block(2 * width, width, width) for _ in range(3))

    def forward(self, x, t):
        t, x, kept = self.time(t), self.first(x), []
        for block in self.down:
            x = block(x, t)
            kept.append(x)
            x = nn.functional.avg_pool2d(x, 2)
        x = self.middle(x, t)
        for block in self.up:
            x = block(torch.cat([interpolate(x, scale_factor=2), kept.pop()], 1), t)
        return self.last(x)


def build(remedy, device):
    model = UNet(small(device, 64, 8)).to(device, torch.bfloat16).eval()
    sample = torch.randn(1, 3, 64, 64, device=device, dtype=torch.bfloat16)
    times = torch.linspace(1, 0, 10, device=device, dtype=torch.bfloat16)[:, None, None]
    time = times[0].clone()

    def denoise():
        with torch.no_grad():
            noise = model(sample, time)
            sample.mul_(1.01).sub_(0.01 * noise).clamp_(-3, 3)

    call = denoise
    if remedy and device.type == "cuda":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                denoise()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            denoise()
        call = graph.replay

    def step():
        for now in times:
            time.copy_(now)
            call()

    return step


if __name__ == "__main__":
    main(build)
