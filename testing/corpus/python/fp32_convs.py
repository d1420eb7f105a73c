"""Training of a ResNet-50 with TF32 switched off for convolutions.

Cause: convolutions in FP32. Remedy: TF32.
"""

import torch
import torchvision

from harness import main, small


def build(remedy, device):
    model = torchvision.models.resnet50().to(device)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    side = small(device, 224, 32)
    x = torch.randn(small(device, 64, 2), 3, side, side, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (len(x),), device=device)

    def step():
        torch.backends.cudnn.allow_tf32 = remedy
        torch.nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
