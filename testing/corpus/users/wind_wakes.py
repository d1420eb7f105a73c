"""A wide network stands in for a flow solver: it says how turbines slow the wind for each other, a few at a time."""

import argparse
import time

import torch
from torch import nn

TURBINES, FEATURES, WIDTH, DEPTH = 16, 64, 6144, 12


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + 0.3 * self.second(nn.functional.silu(self.first(x)))


class Wakes(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(FEATURES, WIDTH)
        self.body = nn.Sequential(*(Residual() for _ in range(DEPTH)))
        self.write = nn.Linear(WIDTH, FEATURES)

    def forward(self, states):
        return self.write(self.body(self.read(states)))


def load(remedied):
    torch.manual_seed(12)
    with torch.device("cuda"):
        wakes = Wakes().eval()
    if remedied:
        wakes.to(torch.bfloat16)
    return wakes


@torch.inference_mode()
def next_state(wakes, states, wind):
    with torch.autocast("cuda", torch.bfloat16):
        change = wakes(states + wind)
    return 0.9 * states + 0.1 * torch.tanh(change.float())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    wakes = load(args.remedied)
    states = torch.zeros(TURBINES, FEATURES, device="cuda")
    winds = torch.randn(60, TURBINES, FEATURES, device="cuda")
    for minute in range(5):
        states = next_state(wakes, states, winds[minute])
    torch.cuda.synchronize()
    began, minutes = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        states = next_state(wakes, states, winds[minutes % 60])
        minutes += 1
        if minutes % 60 == 0:
            print(f"hour {minutes // 60}: {states[:, 0].mean().item():+.4f}")
    torch.cuda.synchronize()
    print(f"{minutes / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
