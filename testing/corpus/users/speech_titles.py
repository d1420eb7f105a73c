"""Speeches get a title: a model of language reads each of them, and gives the word that its title is to begin with."""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

SPEECHES, WORDS, WIDTH, HEADS, LAYERS, KNOWN = 8, 1024, 1024, 16, 4, 131_072


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.parts = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.back = nn.Linear(WIDTH, WIDTH, bias=False)
        self.second = nn.LayerNorm(WIDTH)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        parts = self.parts(self.norm(x)).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.back(seen.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(KNOWN, WIDTH)
        self.place = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, KNOWN, bias=False)

    def forward(self, words):
        x = self.word(words) + self.place.weight[: words.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).float()


@torch.inference_mode()
def first_words(reader, speeches):
    scores = reader(speeches)[:, -1]
    scores[:, 0] = float("-inf")
    return scores.argmax(dim=-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(12)
    device = torch.device("cuda")
    with device:
        reader = Reader().to(torch.bfloat16).eval()
        speeches = torch.randint(1, KNOWN, (16, SPEECHES, WORDS))
    for part in range(3):
        chosen = first_words(reader, speeches[part])
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        chosen = first_words(reader, speeches[steps % len(speeches)])
        steps += 1
        if steps % 20 == 0:
            print(f"{steps * SPEECHES} speeches: the last begins with word {chosen[-1].item()}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
