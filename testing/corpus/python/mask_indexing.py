"""Detections are filtered by boolean masks, class by class.

Cause: each mask's size goes to the host, which waits. Remedy: masked values, whose sizes do not depend on data.
"""

import torch

from harness import main, small


def build(remedy, device):
    count, classes = small(device, 100_000, 100), small(device, 20, 2)
    boxes = torch.rand(count, 4, device=device)
    scores = torch.rand(count, device=device)
    labels = torch.randint(0, classes, (count,), device=device)

    def step():
        means = []
        for label in range(classes):
            mask = (labels == label) & (scores > 0.9)
            if remedy:
                means.append((boxes * mask[:, None]).sum(0) / mask.sum())
            else:
                chosen = boxes[mask]
                means.append(chosen.mean(0))
        return torch.stack(means)

    return step


if __name__ == "__main__":
    main(build)
