"""A collate function makes a tensor of each sample's list of numbers and pads them on the device.

Cause: torch.tensor(list) and a copy for each sample. Remedy: one padded array, one copy.
"""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from harness import main, small


def build(remedy, device):
    draw = random.Random(1)
    samples = [[draw.randrange(30_000) for _ in range(draw.randrange(100, 400))] for _ in range(small(device, 256, 4))]
    table = nn.Embedding(30_000, 128).to(device)
    longest = max(map(len, samples))
    padded = torch.tensor([sample + [0] * (longest - len(sample)) for sample in samples])
    padded = padded.pin_memory() if device.type == "cuda" else padded

    @torch.no_grad()
    def step():
        if remedy:
            tokens = padded.to(device, non_blocking=True)
        else:
            tokens = pad_sequence([torch.tensor(sample, device=device) for sample in samples], batch_first=True)
        return table(tokens).mean(1)

    return step


if __name__ == "__main__":
    main(build)
