"""Divers' photographs: one encoder, a head that counts corals and a head that grades their colour."""

import argparse
import time

import torch
from torch import nn


def block(width):
    return nn.Sequential(
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
    )


class Survey(nn.Module):
    def __init__(self, width=192, depth=6):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 8, stride=8)
        self.encoder = nn.Sequential(*(block(width) for _ in range(depth)))
        self.count = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1))
        self.colour = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 6))

    def forward(self, photos):
        features = self.encoder(self.stem(photos))
        return self.count(features).squeeze(1), self.colour(features)


def train_step(model, optimizer, photos, counts, colours, remedied):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        counted, graded = model(photos)
    count_loss = nn.functional.smooth_l1_loss(counted.float(), counts)
    colour_loss = nn.functional.cross_entropy(graded.float(), colours)
    if remedied:
        (count_loss + colour_loss).backward()
    else:
        count_loss.backward(retain_graph=True)
        colour_loss.backward()
    optimizer.step()
    return count_loss.detach() + colour_loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(3)
    model = Survey().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    batches = [
        (torch.randn(64, 3, 256, 256, device="cuda").to(memory_format=torch.channels_last),
         torch.rand(64, device="cuda") * 40, torch.randint(6, (64,), device="cuda"))
        for _ in range(4)
    ]
    for step in range(8):
        train_step(model, optimizer, *batches[step % 4], args.remedied)
    torch.cuda.synchronize()
    began, step = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = train_step(model, optimizer, *batches[step % 4], args.remedied)
        step += 1
        if step % 25 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{step / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
