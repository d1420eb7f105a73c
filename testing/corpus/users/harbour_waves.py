"""Waves in a harbour: sources along its walls answer to swell from 32 directions, one moment after the other."""

import argparse
import math
import time

import torch

PANELS, DIRECTIONS = 4096, 32


def wall(panels, device):
    along = torch.linspace(0, 2 * math.pi, panels + 1, device=device)[:-1]
    radius = 400 + 60 * torch.sin(3 * along) + 25 * torch.cos(7 * along)
    return torch.stack((radius * torch.cos(along), radius * torch.sin(along)), 1)


def influence(points, depth=12.0):
    apart = torch.cdist(points, points)
    matrix = torch.exp(-apart / 80) / (apart + depth)
    matrix /= matrix.sum(1, keepdim=True)
    return 1.5 * torch.eye(len(points), device=points.device) - matrix


class Harbour:
    def __init__(self, remedied):
        self.points = wall(PANELS, "cuda")
        self.system = influence(self.points)
        self.headings = torch.linspace(0, math.pi, DIRECTIONS, device="cuda")
        self.across = self.points @ torch.stack((torch.cos(self.headings), torch.sin(self.headings)))
        self.strengths = torch.zeros(PANELS, DIRECTIONS, device="cuda")
        self.kept = torch.linalg.lu_factor(self.system) if remedied else None

    def swell(self, moment):
        return torch.sin(self.across / 35 - 0.8 * moment)

    def advance(self, moment):
        incoming = self.swell(moment) + 0.2 * self.strengths
        if self.kept:
            self.strengths = torch.linalg.lu_solve(*self.kept, incoming)
        else:
            self.strengths = torch.linalg.solve(self.system, incoming)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    harbour = Harbour(args.remedied)
    for step in range(5):
        harbour.advance(0.1 * step)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        harbour.advance(0.1 * steps)
        steps += 1
        if steps % 100 == 0:
            worst = harbour.strengths.abs().amax(0).argmax().item()
            print(f"moment {steps}: roughest from {math.degrees(harbour.headings[worst].item()):.0f} degrees")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
