"""A graph network multiplies by its adjacency matrix, which it makes from the list of edges in each layer.

Cause: a sparse matrix in coordinates is sorted in each product. Remedy: one matrix in compressed rows.
"""

import torch

from harness import main, small


def build(remedy, device):
    nodes, edges = small(device, 50_000, 50), small(device, 1_000_000, 100)
    ends = torch.randint(nodes, (2, edges), device=device)
    weights = torch.rand(edges, device=device)
    features = torch.randn(nodes, 16, device=device)
    rows = torch.sparse_coo_tensor(ends, weights, (nodes, nodes)).coalesce().to_sparse_csr()

    @torch.no_grad()
    def step():
        x = features
        for _ in range(3):
            matrix = rows if remedy else torch.sparse_coo_tensor(ends, weights, (nodes, nodes))
            x = torch.relu(torch.sparse.mm(matrix, x))
        return x

    return step


if __name__ == "__main__":
    main(build)
