"""A recurrent network reads sequences. Its recurrent weights stay orthogonal, so that gradients keep their size.

Cause: the orthogonal matrix is computed anew for each of the 64 places of a sequence. Remedy: parametrize.cached().
"""

import contextlib

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from harness import main, small


class Reader(nn.Module):
    def __init__(self, inside, width, out):
        super().__init__()
        self.input = nn.Linear(inside, width)
        self.recurrent = parametrizations.orthogonal(nn.Linear(width, width, bias=False))
        self.head = nn.Linear(width, out)

    def forward(self, sequence):
        state = torch.zeros(len(sequence), self.recurrent.out_features, device=sequence.device)
        for x in self.input(sequence).unbind(1):
            state = torch.tanh(x + self.recurrent(state))
        return self.head(state)


def build(remedy, device):
    inside, width, out = 16, small(device, 192, 8), 10
    model = Reader(inside, width, out).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    count, length = small(device, 256, 4), small(device, 64, 4)
    sequences = torch.randn(4, count, length, inside, device=device)
    names = torch.randint(0, out, (count,), device=device)
    state = {"batch": 0}

    def step():
        state["batch"] += 1
        with parametrize.cached() if remedy else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(model(sequences[state["batch"] % 4]), names)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
