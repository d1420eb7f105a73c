"""torch.compile of a model whose layers look at their own values.

Cause: .item() in every layer breaks the graph and waits. Remedy: torch.where decides on the device.
"""

import torch
from torch import nn

from harness import main, small


class Layer(nn.Module):
    def __init__(self, width, remedy):
        super().__init__()
        self.linear, self.remedy = nn.Linear(width, width), remedy

    def forward(self, x):
        y = torch.relu(self.linear(x))
        largest = y.abs().max()
        if self.remedy:
            return torch.where(largest > 6, y * (6 / largest), y)
        if largest.item() > 6:
            y = y * (6 / largest)
        return y


def build(remedy, device):
    width = small(device, 1024, 16)
    model = nn.Sequential(*[Layer(width, remedy) for _ in range(12)]).to(device, torch.bfloat16)
    x = torch.randn(256, width, device=device, dtype=torch.bfloat16)
    compiled = torch.compile(model) if device.type == "cuda" else model

    def step():
        with torch.no_grad():
            compiled(x)

    return step


if __name__ == "__main__":
    main(build)
