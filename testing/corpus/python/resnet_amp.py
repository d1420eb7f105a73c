"""Training of ResNet-50 (torchvision) under autocast, with tensors in NCHW.

Cause: layout conversions around convolutions. Remedy: channels_last.
"""

import torch
import torchvision

from harness import main, small


def build(remedy, device):
    model = torchvision.models.resnet50().to(device)
    pictures = torch.randn(small(device, 128, 2), 3, small(device, 224, 64), small(device, 224, 64), device=device)
    if remedy:
        model, pictures = model.to(memory_format=torch.channels_last), pictures.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    labels = torch.randint(0, 1000, pictures.shape[:1], device=device)

    def step():
        with torch.autocast(device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
