"""Computes vectors of patents with a deep tower of wide layers, to be searched later."""

import argparse
import time

import torch
from torch import nn

WIDTH, DEPTH, BATCH = 8192, 8, 16384


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true", help="the same")
    args = parser.parse_args()
    torch.manual_seed(6)
    layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH)]
    tower = nn.Sequential(*layers).cuda().to(torch.bfloat16).eval()
    patents = torch.randn(2, BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)
    vectors = torch.empty(2, BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)
    with torch.inference_mode():
        for step in range(3):
            vectors[step % 2].copy_(tower(patents[step % 2]))
        torch.cuda.synchronize()
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < args.seconds:
            vectors[steps % 2].copy_(tower(patents[steps % 2]))
            steps += 1
            if steps % 40 == 0:
                torch.cuda.synchronize()
                print(f"{steps * BATCH} patents")
        torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
