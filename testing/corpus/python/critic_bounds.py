"""A critic learns to tell real rows from made ones. After each update its layers are scaled, so that none stretches its input.

Cause: the norm of each layer comes from a singular value decomposition. Remedy: a few power iterations from a kept vector.
"""

import torch
from torch import nn

from harness import main, small


class Bounded:
    """Scales the weights of a network's layers to a norm of one at most."""

    def __init__(self, network, iterates):
        self.weights = [module.weight for module in network if isinstance(module, nn.Linear) and module.out_features > 1]
        self.kept = [torch.randn(weight.shape[1], device=weight.device) for weight in self.weights]
        self.iterates = iterates

    def norm(self, weight, kept):
        if not self.iterates:
            return torch.linalg.matrix_norm(weight, 2)
        for _ in range(5):
            image = weight @ kept
            kept.copy_(nn.functional.normalize(weight.T @ image, dim=0))
        return torch.linalg.vector_norm(weight @ kept)

    @torch.no_grad()
    def apply(self):
        for weight, kept in zip(self.weights, self.kept):
            weight.div_(self.norm(weight, kept).clamp(min=1))


def build(remedy, device):
    width, rows = small(device, 384, 16), small(device, 4096, 8)
    critic = nn.Sequential(nn.Linear(64, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
                           nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)).to(device)
    bounded = Bounded(critic, remedy)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.5, 0.9), fused=device.type == "cuda")
    real = torch.randn(16, rows, 64, device=device) * 0.5 + 0.2
    state = {"step": 0}

    def step():
        state["step"] += 1
        made = torch.randn(rows, 64, device=device)
        loss = critic(made).mean() - critic(real[state["step"] % 16]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        bounded.apply()

    return step


if __name__ == "__main__":
    main(build)
