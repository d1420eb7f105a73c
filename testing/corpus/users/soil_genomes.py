"""Tells the phylum of reads from soil: words of seven letters of DNA, a few mixing layers, a class for each read."""

import argparse
import time

import torch
from torch import nn

LETTERS, WORD, PHYLA = 4, 7, 64
WORDS = LETTERS**WORD
READS, LENGTH, WIDTH = 64, 512, 384


def words_of(reads):
    """The number of each word of a read, from the numbers 0 to 3 of its letters."""
    powers = LETTERS ** torch.arange(WORD, device=reads.device)
    return (reads.unfold(1, WORD, 1) * powers).sum(-1)


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm(x))))


class Reader(nn.Module):
    def __init__(self, remedied):
        super().__init__()
        self.table = nn.Parameter(0.05 * torch.randn(WORDS, WIDTH))
        self.mixing = nn.Sequential(*(Mixing() for _ in range(4)))
        self.phylum = nn.Linear(WIDTH, PHYLA)
        self.remedied = remedied

    def vectors(self, words):
        if self.remedied:
            return nn.functional.embedding(words, self.table).to(torch.bfloat16)
        return nn.functional.one_hot(words, WORDS).to(torch.bfloat16) @ self.table

    def forward(self, words):
        return self.phylum(self.mixing(self.vectors(words)).mean(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(9)
    model = Reader(args.remedied).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    reads = torch.randint(LETTERS, (6, READS, LENGTH + WORD - 1), device="cuda")
    phyla = torch.randint(PHYLA, (6, READS), device="cuda")

    def train(step):
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(words_of(reads[step % 6]))
            loss = nn.functional.cross_entropy(scores, phyla[step % 6])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for step in range(6):
        train(step)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = train(steps)
        steps += 1
        if steps % 100 == 0:
            print(f"{steps * READS} reads: {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
