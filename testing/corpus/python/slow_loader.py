"""The data loader prepares each batch in the training process: the device waits for it.

Cause: the data loader starves the device. Remedy: eight workers and pinned memory.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import main, small


class Pictures(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        picture = torch.rand(3, 256, 256, generator=generator)
        return (picture.flip(2).sqrt() - 0.5).clamp(-1, 1)[:, 16:240, 16:240].contiguous()


def build(remedy, device):
    torch.set_num_threads(1)
    workers = small(device, 8, 1) if remedy else 0
    loader = DataLoader(
        Pictures(), batch_size=small(device, 32, 2), num_workers=workers, pin_memory=remedy and device.type == "cuda"
    )
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.Conv2d(64, 64, 3, 2), nn.ReLU()).to(device)
    batches = iter(loader)

    def step():
        with torch.no_grad():
            model(next(batches).to(device, non_blocking=remedy))

    return step


if __name__ == "__main__":
    main(build)
