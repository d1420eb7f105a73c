"""Minutes of a parliament, whole days at once: layers of attention over all words that were said so far."""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DAYS, WORDS, HEADS, SIZE = 2, 16_384, 16, 128
WIDTH = HEADS * SIZE


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.back = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, words):
        parts = self.parts(words).view(DAYS, WORDS, 3, HEADS, SIZE)
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.back(seen.transpose(1, 2).reshape(DAYS, WORDS, WIDTH))


class Minutes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Attention() for _ in range(2))

    def forward(self, words):
        for layer in self.layers:
            words = layer(words)
        return words


@torch.inference_mode()
def read(minutes, words):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return minutes(words)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(12)
    device = torch.device("cuda")
    minutes = Minutes().to(device, torch.bfloat16).eval()
    days = torch.randn(8, DAYS, WORDS, WIDTH, device=device, dtype=torch.bfloat16)
    for number in range(3):
        seen = read(minutes, days[number])
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        seen = read(minutes, days[steps % len(days)])
        steps += 1
        if steps % 20 == 0:
            torch.cuda.synchronize()
        if steps % 200 == 0:
            print(f"{steps * DAYS} days: {seen.float().std().item():.4f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
