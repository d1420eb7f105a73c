"""A long record of eight sensors on an engine: moving means and spreads of three lengths go into a small network.

Cause: torch.cumsum along the first dimension has one thread for each sensor. Remedy: each sensor's record lies in one piece.
"""

import torch
from torch import nn

from harness import main, small

SENSORS, SPANS = 8, (64, 512, 4096)


def sums_so_far(record, by_sensor):
    """For each moment, the sum of all rows up to it."""
    if by_sensor:
        return torch.stack([row.cumsum(0) for row in record.T.contiguous()], 1)
    return record.cumsum(0)


def moving(record, by_sensor):
    """Means and spreads over each span, for the moments from the longest span on."""
    sums, squares = sums_so_far(record, by_sensor), sums_so_far(record * record, by_sensor)
    features = []
    for span in SPANS:
        mean = (sums[max(SPANS) :] - sums[max(SPANS) - span : -span]) / span
        square = (squares[max(SPANS) :] - squares[max(SPANS) - span : -span]) / span
        features += [mean, (square - mean * mean).clamp_(min=0).sqrt()]
    return torch.cat(features, 1)


def build(remedy, device):
    moments = small(device, 1 << 17, 1 << 13)
    records = torch.randn(4, moments, SENSORS, device=device)
    model = nn.Sequential(nn.Linear(2 * len(SPANS) * SENSORS, 64), nn.GELU(), nn.Linear(64, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device.type == "cuda")
    states = torch.randint(0, 3, (moments - max(SPANS),), device=device)
    count = {"record": 0}

    def step():
        count["record"] += 1
        features = moving(records[count["record"] % 4], remedy)
        nn.functional.cross_entropy(model(features), states).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
