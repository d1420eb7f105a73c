"""A retrieval that sorts all scores of each query to take the best ten.

Cause: a sort of everything. Remedy: topk.
"""

import torch

from harness import main, small


def build(remedy, device):
    queries, documents, width = small(device, 256, 4), small(device, 200_000, 50), small(device, 128, 8)
    kind = {"device": device, "dtype": torch.bfloat16}
    query, document = torch.randn(queries, width, **kind), torch.randn(documents, width, **kind)

    def step():
        scores = (query @ document.t()).float()
        return scores.topk(10, dim=1).indices if remedy else scores.argsort(dim=1, descending=True)[:, :10]

    return step


if __name__ == "__main__":
    main(build)
