"""A convolutional network is trained by a script in which CUDA_LAUNCH_BLOCKING=1 was left after a search for a fault.

Cause: each launch waits for its kernel. Remedy: the variable is not set.
"""

import environment


def build(remedy, device):
    import torch
    from torch import nn

    width = 64
    convs = [layer for _ in range(10) for layer in (nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())]
    model = nn.Sequential(*convs).to(device, torch.bfloat16, memory_format=torch.channels_last)
    x = torch.randn(16, width, 32, 32, device=device, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step():
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    environment.main(build, {"CUDA_LAUNCH_BLOCKING": "1"})
