"""Eight large layers answer short requests. A small correction of each layer was learned as two thin matrices.

Cause: the thin matrices are multiplied into a matrix of the layer's size, and added to it, in every call. Remedy: the request is
multiplied by one thin matrix, then by the other.
"""

import torch
from torch import nn

from harness import main, small

RANK, SCALE = 16, 2.0


class Adapted(nn.Module):
    def __init__(self, width, in_turn):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(width, RANK) * 0.01)
        self.down = nn.Parameter(torch.randn(RANK, width) / width**0.5)
        self.in_turn = in_turn

    def forward(self, x):
        if self.in_turn:
            return nn.functional.linear(x, self.weight) + SCALE * nn.functional.linear(nn.functional.linear(x, self.down), self.up)
        return nn.functional.linear(x, self.weight + SCALE * (self.up @ self.down))


def build(remedy, device):
    width = small(device, 6144, 32)
    layers = nn.ModuleList(Adapted(width, remedy) for _ in range(8)).to(device, torch.bfloat16)
    requests = torch.randn(4, 128, width, device=device, dtype=torch.bfloat16)
    state = {"request": 0}

    @torch.inference_mode()
    def step():
        state["request"] += 1
        x = requests[state["request"] % 4]
        for layer in layers:
            x = nn.functional.gelu(layer(x)) + x
        return x

    return step


if __name__ == "__main__":
    main(build)
