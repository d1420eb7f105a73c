"""The loss of a language model, written as one-hot targets times the logarithm of a softmax.

Cause: several tensors of tokens times vocabulary. Remedy: torch.nn.functional.cross_entropy.
"""

import torch
from torch.nn import functional as F

from harness import main, small


def build(remedy, device):
    tokens, vocabulary = small(device, 8192, 16), small(device, 32_000, 64)
    logits = torch.randn(tokens, vocabulary, device=device, requires_grad=True)
    targets = torch.randint(vocabulary, (tokens,), device=device)

    def loss():
        if remedy:
            return F.cross_entropy(logits, targets)
        probabilities = torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True)
        return -(F.one_hot(targets, vocabulary) * torch.log(probabilities + 1e-9)).sum(-1).mean()

    def step():
        loss().backward()
        logits.grad = None

    return step


if __name__ == "__main__":
    main(build)
