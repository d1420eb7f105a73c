"""A graph network adds messages to its nodes; the user asked for deterministic algorithms once, for a test.

Cause: the deterministic form of index_add_ sorts and adds serially. Remedy: deterministic algorithms off.
"""

import torch

from harness import main, small


def build(remedy, device):
    nodes, edges, width = small(device, 100_000, 16), small(device, 2_000_000, 64), 32
    source, target = torch.randint(nodes, (2, edges), device=device)
    weight = torch.randn(width, width, device=device) * 0.1

    def step():
        torch.use_deterministic_algorithms(not remedy)
        x = torch.ones(nodes, width, device=device)
        for _ in range(3):
            messages = (x @ weight)[source]
            x = torch.relu(torch.zeros_like(x).index_add_(0, target, messages)) * 0.01
        return x

    return step


if __name__ == "__main__":
    main(build)
