"""A policy chooses one of several actions for each of twelve joints; its update needs their log-probabilities and entropies.

Cause: each Categorical checks its arguments, and waits for the device's answer. Remedy: validate_args=False.
"""

import torch
from torch import nn
from torch.distributions import Categorical

from harness import main, small

JOINTS, CHOICES = 12, 11


class Policy(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.logits, self.value = nn.Linear(width, JOINTS * CHOICES), nn.Linear(width, 1)

    def forward(self, seen):
        hidden = self.trunk(seen)
        return self.logits(hidden).split(CHOICES, dim=1), self.value(hidden)[:, 0]


def build(remedy, device):
    rows, inputs = small(device, 2048, 8), small(device, 96, 8)
    policy = Policy(inputs, small(device, 256, 16)).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, fused=device.type == "cuda")
    seen = torch.randn(rows, inputs, device=device)
    actions = torch.randint(0, CHOICES, (JOINTS, rows), device=device)
    before = torch.full((rows,), -2.4 * JOINTS, device=device)
    advantage, returns = torch.randn(2, rows, device=device)
    checks = False if remedy else None

    def step():
        logits, values = policy(seen)
        heads = [Categorical(logits=part, validate_args=checks) for part in logits]
        chance = sum(head.log_prob(action) for head, action in zip(heads, actions))
        entropy = sum(head.entropy() for head in heads).mean()
        ratio = (chance - before).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = nn.functional.mse_loss(values, returns) - gain - 0.01 * entropy
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
