"""A transformer's training step with PYTORCH_NO_CUDA_MEMORY_CACHING=1, left after a search for a leak.

Cause: each tensor is allocated and freed by the driver. Remedy: the variable is not set.
"""

import environment


def build(remedy, device):
    import torch
    from torch import nn

    layers = nn.Sequential(*[nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0) for _ in range(4)])
    layers = layers.to(device, torch.bfloat16)
    x = torch.randn(16, 256, 512, device=device, dtype=torch.bfloat16)

    def step():
        layers(x).float().square().mean().backward()
        layers.zero_grad()

    return step


if __name__ == "__main__":
    environment.main(build, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
