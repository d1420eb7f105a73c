"""All rows are added to four places: the atomic additions of millions of threads meet at the same addresses.

Cause: contended atomics. Remedy: a reduction for each place.
"""

import torch

from harness import main, small


def build(remedy, device):
    rows = small(device, 1 << 22, 64)
    values = torch.randn(rows, device=device)
    place = torch.arange(rows, device=device) * 4 // rows
    sums = torch.zeros(4, device=device)

    def contended():
        sums.index_add_(0, place, values)

    def reduced():
        sums.add_(values.view(4, -1).sum(dim=1))

    return reduced if remedy else contended


if __name__ == "__main__":
    main(build)
