"""Gradients of each of 32 samples, for private training, one backward pass after the other.

Cause: launch-bound loop over samples. Remedy: torch.func.vmap.
"""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from harness import main, small


def build(remedy, device):
    width = small(device, 256, 8)
    model = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    x = torch.randn(small(device, 32, 4), width, device=device)
    labels = torch.randint(0, 10, (len(x),), device=device)

    def loss(weights, x, label):
        return nn.functional.cross_entropy(functional_call(model, weights, (x[None],)), label[None])

    def step():
        if remedy:
            gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, labels)
            norms = sum(g.flatten(1).square().sum(1) for g in gradients.values()).sqrt()
            return [torch.einsum("b...,b->...", g, (1 / norms).clamp(max=1)) for g in gradients.values()]
        total = [torch.zeros_like(p) for p in model.parameters()]
        for i in range(len(x)):
            model.zero_grad()
            nn.functional.cross_entropy(model(x[i : i + 1]), labels[i : i + 1]).backward()
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            for sum_, p in zip(total, model.parameters()):
                sum_ += p.grad * (1 / norm).clamp(max=1)
        return total

    return step


if __name__ == "__main__":
    main(build)
