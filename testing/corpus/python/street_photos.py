"""A network learns from photos of streets. They come from a camera in full size and are made small for the network.

Cause: each JPEG is decoded in full size before it is made small. Remedy: Image.draft, which decodes at an eighth or a half of it.
"""

import io

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import main, small

SIDE = 224


def photo(seed, size):
    """A JPEG of a random scene, as bytes."""
    coarse = np.random.default_rng(seed).integers(0, 255, (48, 64, 3), dtype=np.uint8)
    packed = io.BytesIO()
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(packed, "JPEG", quality=92)
    return packed.getvalue()


class Photos(Dataset):
    def __init__(self, files, draft):
        self.files, self.draft = files, draft

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        picture = Image.open(io.BytesIO(self.files[i % len(self.files)]))
        if self.draft:
            picture.draft("RGB", (SIDE, SIDE))
        picture = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1), i % 10


def build(remedy, device):
    files = [photo(seed, small(device, (2592, 1944), (256, 192))) for seed in range(small(device, 24, 2))]
    workers = small(device, 6, 0)
    batches = iter(DataLoader(Photos(files, remedy), small(device, 32, 2), num_workers=workers, pin_memory=workers > 0))
    model = torchvision.models.resnet18(num_classes=10).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)

    def step():
        pictures, kinds = (part.to(device, non_blocking=True) for part in next(batches))
        pictures = (pictures.float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(pictures), kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
