"""Folk tales are read by a large network whose weights are kept as numbers of four bits, two in a byte."""

import argparse
import time

import torch
import triton
import triton.language as tl

WORDS, WIDTH, LAYERS, GROUP = 8192, 4096, 6, 64


@triton.jit
def multiply(words, packed, scales, out, WIDTH: tl.constexpr, GROUP: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr):
    down = tl.program_id(1) * TALL + tl.arange(0, TALL)
    across = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    inner = tl.arange(0, GROUP)
    half: tl.constexpr = WIDTH // 2
    total = tl.zeros([TALL, WIDE], tl.float32)
    for first in range(0, half, GROUP):
        at = first + inner
        both = tl.load(packed + at[:, None] * WIDTH + across[None, :])
        scale = tl.load(scales + (first // GROUP) * WIDTH + across)
        low = ((both & 15).to(tl.float16) - 8.0) * scale[None, :]
        word = tl.load(words + down[:, None] * WIDTH + at[None, :])
        total += tl.dot(word, low.to(tl.float16))
        scale = tl.load(scales + ((first + half) // GROUP) * WIDTH + across)
        high = ((both >> 4).to(tl.float16) - 8.0) * scale[None, :]
        word = tl.load(words + down[:, None] * WIDTH + at[None, :] + half)
        total += tl.dot(word, high.to(tl.float16))
    tl.store(out + down[:, None] * WIDTH + across[None, :], total.to(tl.float16))


class Layer:
    """A matrix of numbers from 0 to 15, and what to scale each group of 64 of them by."""

    def __init__(self):
        numbers = torch.randint(0, 16, (WIDTH, WIDTH), device="cuda", dtype=torch.uint8)
        self.packed = numbers[: WIDTH // 2] | (numbers[WIDTH // 2 :] << 4)
        self.scales = (0.5 + torch.rand(WIDTH // GROUP, WIDTH, device="cuda")).half() / (5 * WIDTH**0.5)

    def __call__(self, words):
        out = torch.empty_like(words)
        grid = (WIDTH // 128, WORDS // 128)
        multiply[grid](words, self.packed, self.scales, out, WIDTH, GROUP, 128, 128, num_warps=8, num_stages=3)
        return out


class Reader:
    def __init__(self):
        self.layers = [Layer() for _ in range(LAYERS)]

    def read(self, words):
        for layer in self.layers:
            words = torch.nn.functional.rms_norm(words + torch.tanh(layer(words)), (WIDTH,))
        return words


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(12)
    reader = Reader()
    tales = torch.randn(4, WORDS, WIDTH, device="cuda", dtype=torch.float16)
    for tale in tales[:3]:
        read = reader.read(tale)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        read = reader.read(tales[steps % len(tales)])
        steps += 1
        if steps % 20 == 0:
            torch.cuda.synchronize()
        if steps % 200 == 0:
            print(f"{steps} tales: {read.float().abs().mean().item():.4f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
