"""Follows mean and spread of each channel of a radio telescope, and says how unusual each new reading is."""

import argparse
import time

import torch

STATIONS, CHANNELS = 4096, 131072


def follow(reading, mean, spread, rate):
    apart = reading - mean
    mean.add_(rate * apart)
    spread.copy_((1 - rate) * (spread + rate * apart * apart))
    return apart * torch.rsqrt(spread + 1e-6)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true", help="the same")
    args = parser.parse_args()
    torch.manual_seed(7)
    watch = torch.compile(follow)
    readings = [torch.randn(STATIONS, CHANNELS, device="cuda") for _ in range(4)]
    mean = torch.zeros(STATIONS, CHANNELS, device="cuda")
    spread = torch.ones(STATIONS, CHANNELS, device="cuda")
    with torch.inference_mode():
        for step in range(5):
            unusual = watch(readings[step % 4], mean, spread, 0.02)
        torch.cuda.synchronize()
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < args.seconds:
            unusual = watch(readings[steps % 4], mean, spread, 0.02)
            steps += 1
            if steps % 250 == 0:
                print(f"{steps}: station 0 is off by {unusual[0].abs().max().item():.2f}")
        torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
