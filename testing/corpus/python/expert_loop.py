"""A mixture of 64 experts, one after the other, each with the tokens that chose it.

Cause: torch.where waits for the device, once for each expert. Remedy: each expert takes the same number of tokens, in one product.
"""

import torch

from harness import main, small


def build(remedy, device):
    experts, tokens, width = small(device, 64, 4), small(device, 8192, 32), small(device, 512, 8)
    weights = torch.randn(experts, width, width, device=device, dtype=torch.bfloat16)
    router = torch.randn(width, experts, device=device, dtype=torch.bfloat16)
    x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
    capacity = tokens // experts

    def step():
        scores = x @ router
        out = torch.zeros_like(x)
        if remedy:
            rows = scores.topk(capacity, dim=0).indices.t()
            return out.index_add_(0, rows.reshape(-1), torch.bmm(x[rows], weights).view(-1, width))
        chosen = scores.argmax(-1)
        for expert in range(experts):
            (rows,) = torch.where(chosen == expert)
            if len(rows):
                out[rows] = x[rows] @ weights[expert]
        return out

    return step


if __name__ == "__main__":
    main(build)
