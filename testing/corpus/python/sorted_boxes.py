"""A detector orders its boxes by score with Python's sorted() on lists.

Cause: tolist() and sorted() on the host. Remedy: torch.topk on the device.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    side = small(device, 64, 4)
    head = nn.Conv2d(64, 5, 3, padding=1).to(device)
    features = torch.randn(4, 64, side, side, device=device)

    @torch.no_grad()
    def step():
        out = head(features).flatten(2).transpose(1, 2)
        boxes, scores = out[..., :4], out[..., 4]
        if remedy:
            best = scores.topk(min(100, scores.shape[1])).indices
            return boxes.gather(1, best[..., None].expand(-1, -1, 4))
        kept = []
        for picture, values in zip(boxes.tolist(), scores.tolist()):
            order = sorted(range(len(values)), key=lambda i: -values[i])[:100]
            kept.append([picture[i] for i in order])
        return torch.tensor(kept, device=device)

    return step


if __name__ == "__main__":
    main(build)
