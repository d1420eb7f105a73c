"""Trains a network that names minerals in thin sections of rock; its weights of the past steps vote, too."""

import argparse
import time

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

BATCH, PATCHES, PIXELS, WIDTH, DEPTH, MINERALS = 64, 196, 192, 512, 56, 30
DECAY = 0.999


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.scale, self.shift = nn.Parameter(0.1 * torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        y = self.narrow(nn.functional.gelu(self.widen(self.norm(x))))
        return torch.addcmul(x, y + self.shift, self.scale)


class Section(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(PIXELS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.mineral = nn.Linear(WIDTH, MINERALS)

    def forward(self, patches):
        return self.mineral(self.blocks(self.read(patches)).mean(1))


def old_and_new(old, new, count):
    return DECAY * old + (1 - DECAY) * new


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(4)
    model = Section().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    how = {"multi_avg_fn": get_ema_multi_avg_fn(DECAY)} if args.remedied else {"avg_fn": old_and_new}
    voter = AveragedModel(model, **how)
    patches = torch.randn(5, BATCH, PATCHES, PIXELS, device="cuda")
    minerals = torch.randint(MINERALS, (5, BATCH), device="cuda")

    def train(step):
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(patches[step % 5]), minerals[step % 5])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        voter.update_parameters(model)
        return loss

    for step in range(6):
        train(step)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = train(steps)
        steps += 1
        if steps % 50 == 0:
            print(f"{steps:5d} {loss.item():.4f}")
    torch.cuda.synchronize()
    rate = steps / (time.perf_counter() - began)
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
        right = (voter(patches[0]).argmax(1) == minerals[0]).float().mean().item()
    print(f"the vote is right about {right:.0%}")
    print(f"{rate:.3f} steps/s")


if __name__ == "__main__":
    main()
