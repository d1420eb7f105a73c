"""A graph network learns groups of users. A tenth of all edges is left out in each step, so that its matrix is scaled anew.

Cause: rows and columns are scaled by products with dense diagonal matrices. Remedy: products with a row and a column of numbers.
"""

import torch
from torch import nn

from harness import main, small


def scaled(edges, broadcasts):
    """The matrix of edges with each entry divided by the roots of both users' degrees."""
    root = edges.sum(1).clamp(min=1).rsqrt()
    if broadcasts:
        return root[:, None] * edges * root[None]
    return torch.diag(root) @ edges @ torch.diag(root)


class Groups(nn.Module):
    def __init__(self, features, width, groups):
        super().__init__()
        self.first, self.second = nn.Linear(features, width), nn.Linear(width, groups)

    def forward(self, matrix, x):
        x = torch.relu(matrix @ self.first(x))
        return matrix @ self.second(x)


def build(remedy, device):
    torch.set_float32_matmul_precision("high")
    users = small(device, 8192, 32)
    edges = (torch.rand(users, users, device=device) < 0.01).float()
    edges = torch.maximum(edges, edges.T).fill_diagonal_(1)
    x, y = torch.randn(users, 64, device=device), torch.randint(0, 8, (users,), device=device)
    model = Groups(64, 64, 8).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=device.type == "cuda")

    def step():
        kept = nn.functional.dropout(edges, 0.1) * 0.9
        nn.functional.cross_entropy(model(scaled(kept, remedy), x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
