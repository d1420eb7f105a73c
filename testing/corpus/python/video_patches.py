"""A model looks at videos: two frames of 14 by 14 pixels become one vector, and attention follows.

Cause: the patches do not overlap, yet a convolution over three dimensions makes the vectors. Remedy: the same weights as a
linear layer over each patch's numbers.
"""

import torch
from torch import nn

from harness import main, small

CHANNELS, FRAMES, SIDE = 3, 2, 14


class Patches(nn.Module):
    def __init__(self, width, linear):
        super().__init__()
        shape = (FRAMES, SIDE, SIDE)
        self.proj = nn.Conv3d(CHANNELS, width, kernel_size=shape, stride=shape, bias=False)
        self.linear = linear

    def forward(self, pixels):
        if self.linear:
            return nn.functional.linear(pixels, self.proj.weight.flatten(1))
        pixels = pixels.view(-1, CHANNELS, FRAMES, SIDE, SIDE)
        return self.proj(pixels).view(len(pixels), -1)


def build(remedy, device):
    width, heads, count = small(device, 1280, 32), small(device, 16, 2), small(device, 1024, 16)
    patches = Patches(width, remedy)
    layers = nn.ModuleList(nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(4))
    model = nn.ModuleList([patches, layers]).to(device, torch.bfloat16).eval()
    videos = torch.randn(4, count, CHANNELS * FRAMES * SIDE * SIDE, device=device, dtype=torch.bfloat16)
    state = {"video": 0}

    @torch.inference_mode()
    def step():
        state["video"] += 1
        x = model[0](videos[state["video"] % 4])[None]
        for layer in model[1]:
            x = layer(x)
        return x

    return step


if __name__ == "__main__":
    main(build)
