"""Many small tensors are made on the host and copied one by one.

Cause: small host-to-device copies, each of which waits. Remedy: one copy of all of them.
"""

import torch

from harness import main, small


def build(remedy, device):
    rows = [[float(i + j) for j in range(8)] for i in range(small(device, 256, 4))]
    weight = torch.randn(8, 512, device=device)

    def one_by_one():
        return torch.stack([torch.tensor(row, device=device) for row in rows]) @ weight

    def at_once():
        return torch.tensor(rows, device=device) @ weight

    return at_once if remedy else one_by_one


if __name__ == "__main__":
    main(build)
