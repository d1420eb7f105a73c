"""256 small systems of linear equations, solved one after the other.

Cause: launch-bound loop over small systems. Remedy: one batched solve.
"""

import torch

from harness import main, small


def build(remedy, device):
    many, n = small(device, 256, 4), 32
    a = torch.randn(many, n, n, device=device) + 8 * torch.eye(n, device=device)
    b = torch.randn(many, n, 1, device=device)

    def step():
        if remedy:
            return torch.linalg.solve_ex(a, b).result
        return torch.stack([torch.linalg.solve(a[i], b[i]) for i in range(many)])

    return step


if __name__ == "__main__":
    main(build)
