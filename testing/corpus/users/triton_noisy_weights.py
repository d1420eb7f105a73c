"""Trains a controller of analogue hardware: weights get fresh noise in each step."""

import argparse
import random
import time

import torch
import triton
import triton.language as tl

WIDTH, BATCH = 2048, 512


@triton.jit
def add_noise(weights, noisy, size, strength, stream, seed: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    values = tl.load(weights + places, mask=inside)
    noise = tl.randn(stream + seed, places)
    tl.store(noisy + places, values * (1.0 + strength * noise), mask=inside)


@triton.jit
def add_noise_seeded(weights, noisy, size, strength, stream, seed, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    values = tl.load(weights + places, mask=inside)
    noise = tl.randn(stream + seed, places)
    tl.store(noisy + places, values * (1.0 + strength * noise), mask=inside)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(3)
    kernel = add_noise_seeded if args.remedied else add_noise
    layers = [torch.randn(WIDTH, WIDTH, device="cuda") / WIDTH ** 0.5 for _ in range(2)]
    inputs = torch.randn(8, BATCH, WIDTH, device="cuda")
    wanted = torch.tanh(inputs.flip(-1))
    grid = (triton.cdiv(WIDTH * WIDTH, 1024),)

    def noisy(weights, stream):
        out = torch.empty_like(weights)
        kernel[grid](weights, out, weights.numel(), 0.03, stream, random.randrange(10**9), 1024)
        return out

    def train(step):
        first, second = (noisy(weights, 2 + layer).requires_grad_() for layer, weights in enumerate(layers))
        loss = ((torch.tanh(inputs[step % 8] @ first) @ second - wanted[step % 8]) ** 2).mean()
        slopes = torch.autograd.grad(loss, (first, second))
        for weights, slope in zip(layers, slopes):
            weights.sub_(slope, alpha=0.5)
        return loss

    for step in range(3):
        train(step)
    torch.cuda.synchronize()
    began, step = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = train(step)
        step += 1
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{step / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
