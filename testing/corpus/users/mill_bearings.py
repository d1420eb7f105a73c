"""Bearings of a paper mill are listened to: what is usual for each sensor is taken away, and knocks that stand out are counted."""

import argparse
import time

import torch

SENSORS, SAMPLES, RECORDINGS = 6, 4_000_000, 3
KNOCK = 6.0


def middle(values):
    return values.median(dim=1, keepdim=True).values


def knocks(recording):
    """How often each sensor hears what is far from its own middle, in units of its own usual distance."""
    apart = (recording - middle(recording)).abs_()
    usual = middle(apart)
    return (apart > KNOCK * usual).sum(dim=1), usual[:, 0]


class Mill:
    def __init__(self, device):
        self.recordings = []
        for number in range(RECORDINGS):
            sound = torch.randn(SENSORS, SAMPLES, device=device).mul_(0.2 + 0.05 * number)
            beat = torch.linspace(0, 900 + 100 * number, SAMPLES, device=device).sin_()
            sound += 0.5 * beat
            sound[:, :: 50_000] += 8
            self.recordings.append(sound)
        self.heard = torch.zeros(SENSORS, dtype=torch.int64, device=device)
        self.usual = torch.zeros(SENSORS, device=device)

    def listen(self, hour):
        heard, usual = knocks(self.recordings[hour % RECORDINGS])
        self.heard += heard
        self.usual = 0.95 * self.usual + 0.05 * usual

    def report(self, hour):
        worst = self.heard.argmax().item()
        print(f"hour {hour}: sensor {worst} heard {self.heard[worst].item()} knocks, usual {self.usual[worst].item():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(11)
    mill = Mill(torch.device("cuda"))
    for hour in range(3):
        mill.listen(hour)
    torch.cuda.synchronize()
    began, hours = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        mill.listen(hours)
        hours += 1
        if hours % 10 == 0:
            torch.cuda.synchronize()
        if hours % 100 == 0:
            mill.report(hours)
    torch.cuda.synchronize()
    print(f"{hours / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
