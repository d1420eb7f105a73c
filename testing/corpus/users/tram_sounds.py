"""Listens to trams at their stops: each recording begins when a tram comes and ends when it has left."""

import argparse
import random
import time

import torch
from torch import nn

RATE = 16000
FAULTS = ("flat wheel", "door", "compressor", "none")


class Listener(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.ear = nn.Sequential(
            nn.Conv1d(1, width, 16, stride=8), nn.GELU(),
            nn.Conv1d(width, 2 * width, 8, stride=4), nn.GELU(),
            nn.Conv1d(2 * width, 4 * width, 7, stride=2, padding=3), nn.GELU(),
            nn.Conv1d(4 * width, 4 * width, 5, padding=2), nn.GELU(),
        )
        self.verdict = nn.Linear(4 * width, len(FAULTS))

    def forward(self, sound):
        return self.verdict(self.ear(sound).mean(-1))


class Stop:
    """A tape of a whole day, of which each tram takes a part."""

    def __init__(self, seed):
        self.tape = torch.randn(1, 1, 40 * RATE, device="cuda", dtype=torch.float16)
        self.dice = random.Random(seed)

    def tram(self):
        stays = self.dice.randrange(6 * RATE, 14 * RATE)
        began = self.dice.randrange(0, self.tape.shape[-1] - stays)
        return self.tape[..., began : began + stays].clone()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = not args.remedied
    listener = Listener().cuda().half().eval()
    stop = Stop(5)
    found = torch.zeros(len(FAULTS), device="cuda")
    with torch.inference_mode():
        for _ in range(5):
            found += listener(stop.tram())[0].softmax(-1)
        torch.cuda.synchronize()
        began, trams = time.perf_counter(), 0
        while time.perf_counter() - began < args.seconds:
            found += listener(stop.tram())[0].softmax(-1)
            trams += 1
            if trams % 50 == 0:
                print(f"{trams} trams, mostly: {FAULTS[found.argmax().item()]}")
        torch.cuda.synchronize()
    print(f"{trams / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
