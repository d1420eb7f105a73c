"""A compiled training step gets the number of the step, for its warm-up of the learning rate.

Cause: the step is compiled anew for each number. Remedy: the number is a tensor.
"""

import itertools

import torch
import torch._dynamo

from harness import main, small

numbers = itertools.count(1000)


def build(remedy, device):
    torch._dynamo.config.recompile_limit = 100_000
    torch._dynamo.config.accumulated_recompile_limit = 100_000
    width = small(device, 1024, 16)
    weight = torch.randn(width, width, device=device) * 0.03
    x = torch.randn(small(device, 4096, 4), width, device=device)

    def update(weight, number):
        rate = 1e-3 * min(1.0, number / 5000) if isinstance(number, float) else 1e-3 * (number / 5000).clamp(max=1.0)
        y = torch.nn.functional.gelu(x @ weight)
        return weight - rate * (x.T @ y) / len(x)

    compiled = torch.compile(update, dynamic=False)

    def step():
        number = float(next(numbers))
        return compiled(weight, torch.tensor(number, device=device) if remedy else number)

    return step


if __name__ == "__main__":
    main(build)
