"""An embedding written as a product of one-hot rows with the table.

Cause: one-hot tensors of tokens times vocabulary. Remedy: torch.nn.functional.embedding.
"""

import torch
from torch.nn import functional as F

from harness import main, small


def build(remedy, device):
    vocabulary, width = small(device, 16_000, 32), small(device, 512, 8)
    table = torch.randn(vocabulary, width, device=device, requires_grad=True)
    tokens = torch.randint(vocabulary, (small(device, 16, 2), small(device, 512, 8)), device=device)

    def step():
        x = F.embedding(tokens, table) if remedy else F.one_hot(tokens, vocabulary).float() @ table
        x.square().mean().backward()
        table.grad = None

    return step


if __name__ == "__main__":
    main(build)
