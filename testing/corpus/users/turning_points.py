"""Points that a spinning scanner saw are put where they were: each point has a turn of its own, which is smoothed and applied."""

import argparse
import time

import torch

POINTS, SPEED = 4_000_000, 0.002


def turns(rates, at):
    """Rodrigues' turns, a small one for each point."""
    x, y, z = (rates * at[:, None]).unbind(1)
    none = torch.zeros_like(x)
    skew = torch.stack([none, -z, y, z, none, -x, -y, x, none], dim=1).view(-1, 3, 3)
    return torch.eye(3, device=rates.device) + skew


def moved(turn, points):
    return torch.bmm(turn, points[:, :, None])[:, :, 0]


class Scanner:
    def __init__(self, device):
        self.points = torch.randn(POINTS, 3, device=device)
        self.rates = SPEED * torch.randn(POINTS, 3, device=device)
        self.at = torch.linspace(0, 1, POINTS, device=device)
        self.turn = turns(self.rates, self.at)
        self.shift = torch.zeros(3, device=device)

    def settle(self):
        """Four turns of all points, and a shift that keeps their middle where it is."""
        points = self.points
        for _ in range(4):
            points = moved(self.turn, points)
        self.shift = 0.9 * self.shift + 0.1 * (self.points.mean(0) - points.mean(0))
        points += self.shift
        self.points = points

    def spread(self):
        return self.points.std().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(11)
    scanner = Scanner(torch.device("cuda"))
    with torch.inference_mode():
        for _ in range(5):
            scanner.settle()
        torch.cuda.synchronize()
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < args.seconds:
            scanner.settle()
            steps += 1
            if steps % 20 == 0:
                torch.cuda.synchronize()
            if steps % 200 == 0:
                print(f"{steps} turns: spread {scanner.spread():.4f}")
        torch.cuda.synchronize()
        print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
