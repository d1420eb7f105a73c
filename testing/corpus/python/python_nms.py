"""Non-maximum suppression written in Python: it takes boxes one by one until none is left.

Cause: a synchronisation for each box. Remedy: torchvision.ops.nms.
"""

import torch
import torchvision

from harness import main, small


def build(remedy, device):
    many = small(device, 2000, 20)
    corners = torch.rand(many, 2, device=device) * 512
    boxes = torch.cat([corners, corners + 40 + torch.rand(many, 2, device=device) * 40], dim=1)
    scores = torch.rand(many, device=device)

    def suppressed():
        left, kept = scores.argsort(descending=True), []
        while left.numel() > 0:
            best = left[0]
            kept.append(best)
            overlaps = torchvision.ops.box_iou(boxes[best][None], boxes[left])[0]
            left = left[overlaps <= 0.5]
        return torch.stack(kept)

    def step():
        return torchvision.ops.nms(boxes, scores, 0.5) if remedy else suppressed()

    return step


if __name__ == "__main__":
    main(build)
