"""Pictures are made floats and normalised by the host, then copied to the device, four bytes for each value.

Cause: the host's own code and its copies. Remedy: bytes are copied, and the device normalises.
"""

import torch
import torchvision

from harness import main, small


def build(remedy, device):
    torch.set_num_threads(4)
    model = torchvision.models.resnet18().to(device, memory_format=torch.channels_last).to(torch.bfloat16).eval()
    side = small(device, 224, 32)
    pictures = torch.randint(0, 256, (small(device, 128, 2), 3, side, side), dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    if remedy and device.type == "cuda":
        pictures = pictures.pin_memory()
    mean, std = (t.to(device) if remedy else t for t in (mean, std))

    def step():
        x = pictures.to(device, non_blocking=True) if remedy else pictures
        x = ((x.float() / 255 - mean) / std).to(device)
        with torch.no_grad():
            return model(x.to(torch.bfloat16, memory_format=torch.channels_last))

    return step


if __name__ == "__main__":
    main(build)
