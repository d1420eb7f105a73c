"""The last layer and the loss of a language model whose vocabulary has 50,257 entries.

Cause: a size that misses tensor cores. Remedy: the vocabulary is padded to a multiple of 64.
"""

import torch
import torch.nn.functional as F

from harness import main, small


def build(remedy, device):
    vocabulary = small(device, 50304, 128) if remedy else small(device, 50257, 101)
    width, tokens = small(device, 2048, 16), small(device, 4096, 8)
    head = torch.nn.Linear(width, vocabulary, bias=False, device=device, dtype=torch.bfloat16)
    hidden = torch.randn(tokens, width, device=device, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(0, small(device, 50257, 101), (tokens,), device=device)

    def step():
        F.cross_entropy(head(hidden), labels).backward()
        head.weight.grad = hidden.grad = None

    return step


if __name__ == "__main__":
    main(build)
