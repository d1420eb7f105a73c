"""Cracks in roads: pictures from a van are levelled, a network marks the cracks, and their length is measured."""

import argparse
import time

import cupy as cp
import torch
from cupyx.scipy import ndimage
from torch import nn

PICTURES, ROWS, COLUMNS = 4, 2048, 2048


class Levelled:
    """Takes away the light and shade of the road itself."""

    def __call__(self, pictures):
        ground = ndimage.uniform_filter(pictures, size=(1, 15, 15), mode="nearest")
        apart = pictures - ground
        return apart / (cp.abs(apart).mean(axis=(1, 2), keepdims=True) + cp.float32(1e-6))


class Cracks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
            nn.Conv2d(8, 1, 3, padding=1), nn.Upsample(scale_factor=2)
        )

    @torch.no_grad()
    def forward(self, pictures):
        return torch.sigmoid(self.layers(pictures[:, None])[:, 0])


class Van:
    def __init__(self):
        self.levelled = Levelled()
        self.cracks = Cracks().cuda().eval()

    def look(self, pictures):
        even = self.levelled(pictures)
        marks = self.cracks(torch.from_numpy(cp.asnumpy(even)).cuda())
        marks = cp.asarray(marks.cpu().numpy())
        edges = cp.abs(cp.diff(marks, axis=1)).sum(axis=(1, 2)) + cp.abs(cp.diff(marks, axis=2)).sum(axis=(1, 2))
        return edges / 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(12)
    van = Van()
    cp.random.seed(12)
    roads = [cp.random.standard_normal((PICTURES, ROWS, COLUMNS), dtype=cp.float32).cumsum(axis=2) / 40 for _ in range(4)]
    for road in roads[:3]:
        lengths = van.look(road)
    cp.cuda.Device().synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        lengths = van.look(roads[steps % len(roads)])
        steps += 1
        if steps % 20 == 0:
            print(f"{steps * PICTURES} pictures: {float(lengths.mean()):.1f} points of cracks")
    cp.cuda.Device().synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
