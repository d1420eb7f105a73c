"""Forecasts rain for the next hours from radar frames with a mixer of pixels."""

import argparse
import time

import torch
from torch import nn


class Snake(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x + torch.sin(self.alpha * x) ** 2 / (self.alpha + 1e-6)


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Parameter(torch.full((width,), 0.3))
        self.shift = nn.Parameter(torch.zeros(width))
        self.snake = Snake(width)
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        y = self.snake(self.norm(x) * (1 + self.gate) + self.shift)
        y = torch.tanh(y) * torch.sigmoid(self.gate * y)
        return x + self.mix(y) * self.gate.abs()


class Nowcast(nn.Module):
    def __init__(self, width=128, depth=8):
        super().__init__()
        self.read = nn.Linear(12, width)
        self.mixers = nn.ModuleList(Mixer(width) for _ in range(depth))
        self.write = nn.Linear(width, 18)

    def forward(self, frames):
        x = self.read(frames)
        for mixer in self.mixers:
            x = mixer(x)
        return nn.functional.softplus(self.write(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(2)
    model = Nowcast().cuda().to(torch.bfloat16).eval()
    forecast = torch.compile(model) if args.remedied else torch.compile(model, backend="aot_eager")
    frames = torch.rand(6, 256 * 256 * 4, 12, device="cuda", dtype=torch.bfloat16)
    with torch.inference_mode():
        for step in range(5):
            rain = forecast(frames[step % 6])
        torch.cuda.synchronize()
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < args.seconds:
            rain = forecast(frames[steps % 6])
            steps += 1
            if steps % 50 == 0:
                print(f"{steps:5d}: heaviest {rain.max().item():.2f} mm/h")
        torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
