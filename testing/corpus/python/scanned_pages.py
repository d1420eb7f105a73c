"""A network sorts scanned pages. Its author once switched a library off because of an error, and never on again.

Cause: torch.backends.cudnn.enabled = False, so that each convolution is a loop over pictures. Remedy: cuDNN is enabled.
"""

import timm
import torch
from torch import nn

from harness import main, small


class Sorter(nn.Module):
    """Features of a picture, and the page's kind and rotation."""

    def __init__(self, kinds):
        super().__init__()
        self.features = timm.create_model("resnet18", pretrained=False, num_classes=0, in_chans=1)
        self.kind, self.rotation = nn.Linear(512, kinds), nn.Linear(512, 4)

    def forward(self, pages):
        features = self.features(pages)
        return self.kind(features), self.rotation(features)


def build(remedy, device):
    count, side = small(device, 16, 1), small(device, 224, 64)
    model = Sorter(12).to(device, torch.bfloat16).eval()
    scans = torch.randint(0, 256, (4, count, 1, side, side), device=device, dtype=torch.uint8)
    totals = {"pages": 0, "kinds": torch.zeros(12, device=device)}

    @torch.inference_mode()
    def step():
        torch.backends.cudnn.enabled = remedy
        pages = scans[totals["pages"] // count % 4]
        pages = (pages.to(torch.bfloat16) - 128) / 64
        kinds, rotations = model(pages)
        totals["pages"] += count
        totals["kinds"] += torch.nn.functional.one_hot(kinds.argmax(1), 12).sum(0)
        return rotations.argmax(1)

    return step


if __name__ == "__main__":
    main(build)
