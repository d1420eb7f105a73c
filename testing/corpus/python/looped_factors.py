"""Small covariance matrices are factored one after the other.

Cause: a Cholesky factorisation for each matrix, thousands of small launches. Remedy: torch.linalg.cholesky of the batch.
"""

import torch

from harness import main, small


def build(remedy, device):
    count, side = small(device, 512, 4), small(device, 32, 4)
    root = torch.randn(count, side, side, device=device)
    covariance = root @ root.mT + torch.eye(side, device=device)

    def step():
        if remedy:
            return torch.linalg.cholesky(covariance).diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return torch.stack([torch.linalg.cholesky(one).diagonal().log().sum() for one in covariance])

    return step


if __name__ == "__main__":
    main(build)
