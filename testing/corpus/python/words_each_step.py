"""A classifier of texts splits its batch into words with regular expressions before every step.

Cause: the main thread tokenises in Python. Remedy: the texts are tokenised before training.
"""

import re

import torch
from torch import nn

from harness import main, small

WORD = re.compile(r"\w+|[^\w\s]")
TEXT = "It's a truth universally acknowledged, that a single man in possession of a good fortune must be in want of a wife. " * 8


def word_numbers(text, vocabulary):
    return [vocabulary.setdefault(word.lower(), len(vocabulary)) for word in WORD.findall(text)]


def build(remedy, device):
    batch = small(device, 256, 2)
    model = nn.Sequential(nn.EmbeddingBag(50_000, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    vocabulary = {}

    def batch_of(i):
        rows = [word_numbers(TEXT[(i + k) % 50 :][:900], vocabulary) for k in range(batch)]
        shortest = min(map(len, rows))
        return torch.tensor([row[:shortest] for row in rows])

    ready = [batch_of(i) for i in range(4)]
    counter = iter(range(10**9))

    def step():
        i = next(counter)
        tokens = ready[i % 4] if remedy else batch_of(i)
        model(tokens.to(device)).square().mean().backward()
        model.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
