"""A small network predicts the next code of a voice. Recordings are turned into 256 codes, as old telephones did.

Cause: np.vectorize calls a Python function for each sample of a recording. Remedy: one expression over the whole array.
"""

import math

import numpy as np
import torch
from torch import nn

from harness import main, small

CODES = 256


def code_of(level):
    """The code of one sample between -1 and 1: quiet sounds get more codes than loud ones."""
    size = math.log1p((CODES - 1) * abs(level)) / math.log(CODES)
    return int((math.copysign(size, level) + 1) / 2 * (CODES - 1) + 0.5)


def codes_of(levels):
    size = np.log1p((CODES - 1) * np.abs(levels)) / math.log(CODES)
    return ((np.copysign(size, levels) + 1) / 2 * (CODES - 1) + 0.5).astype(np.int64)


class Voice(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.codes = nn.Embedding(CODES, width)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 2, dilation=1 << i) for i in range(layers))
        self.head = nn.Conv1d(width, CODES, 1)

    def forward(self, codes):
        x = self.codes(codes).transpose(1, 2)
        for layer in self.layers:
            x = x + torch.relu(layer(nn.functional.pad(x, (layer.dilation[0], 0))))
        return self.head(x)


def build(remedy, device):
    length, count = small(device, 8192, 64), small(device, 8, 2)
    quantize = codes_of if remedy else np.vectorize(code_of)
    recordings = np.tanh(np.random.default_rng(1).standard_normal((64, length + 1)) * 0.4)
    model = Voice(small(device, 64, 8), 6).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    state = {"at": 0}

    def step():
        state["at"] = (state["at"] + count) % len(recordings)
        codes = torch.from_numpy(quantize(recordings[state["at"] : state["at"] + count])).to(device)
        nn.functional.cross_entropy(model(codes[:, :-1]), codes[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
