"""Frost in vineyards: a small transformer learns from the evening's weather when buds will freeze at night."""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

NIGHTS, HOURS, SEEN, WIDTH, HEADS, BLOCKS = 64, 48, 12, 128, 4, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.parts, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.back = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        nights, hours, _ = x.shape
        q, k, v = self.parts(self.before(x)).view(nights, hours, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v)
        x = x + self.join(seen.transpose(1, 2).reshape(nights, hours, WIDTH))
        return x + self.back(F.gelu(self.wide(self.after(x))))


class Frost(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(SEEN, WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(HOURS, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, weather):
        return self.out(self.blocks(self.into(weather) + self.place).mean(1))[:, 0]


class Season:
    def __init__(self, device):
        self.model = Frost().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=device.type == "cuda")
        self.weather = torch.randn(32, NIGHTS, HOURS, SEEN, device=device)
        self.froze = (self.weather[..., 0].mean(2) < 0).float()
        self.work = 0

    def learn(self, number):
        weather, froze = self.weather[number % 32], self.froze[number % 32]
        counter = FlopCounterMode(display=False)
        with counter:
            loss = F.binary_cross_entropy_with_logits(self.model(weather), froze)
            loss.backward()
        self.work += counter.get_total_flops()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(11)
    season = Season(torch.device("cuda"))
    for number in range(5):
        loss = season.learn(number)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = season.learn(steps)
        steps += 1
        if steps % 50 == 0:
            print(f"step {steps}: loss {loss.item():.4f}, {season.work / 1e12:.2f} TFLOP so far")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
