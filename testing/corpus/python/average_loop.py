"""An exponential moving average of 400 parameters, kept by a loop over them in every step.

Cause: launch-bound loop over parameters. Remedy: torch._foreach_lerp_ takes them all.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 256, 8)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(200)]).to(device)
    average = [p.detach().clone() for p in model.parameters()]
    parameters = [p.detach() for p in model.parameters()]

    def step():
        with torch.no_grad():
            if remedy:
                torch._foreach_lerp_(average, parameters, 0.01)
            else:
                for kept, now in zip(average, parameters):
                    kept.mul_(0.99).add_(now, alpha=0.01)

    return step


if __name__ == "__main__":
    main(build)
