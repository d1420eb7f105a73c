"""A vocoder turns chunks of a spectrogram into sound, as a server of speech does.

Cause: weight_norm computes each convolution's weight anew in every call. Remedy: remove_parametrizations after loading.
"""

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from harness import main, small


class Residual(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        convs = [nn.Conv1d(width, width, size, padding=size // 2 * reach, dilation=reach) for reach in (1, 3, 5)]
        self.wide = nn.ModuleList(map(weight_norm, convs))
        self.narrow = nn.ModuleList(weight_norm(nn.Conv1d(width, width, size, padding=size // 2)) for _ in range(3))

    def forward(self, x):
        for wide, narrow in zip(self.wide, self.narrow):
            x = x + narrow(nn.functional.leaky_relu(wide(nn.functional.leaky_relu(x, 0.1)), 0.1))
        return x


class Vocoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = weight_norm(nn.Conv1d(80, width, 7, padding=3))
        widths = [width >> level for level in range(4)]
        self.up = nn.ModuleList(weight_norm(nn.ConvTranspose1d(wide, wide // 2, 8, 4, 2)) for wide in widths[:3])
        self.residual = nn.ModuleList(nn.ModuleList(Residual(wide, size) for size in (3, 7, 11)) for wide in widths[1:])
        self.last = weight_norm(nn.Conv1d(widths[3], 1, 7, padding=3))

    def forward(self, x):
        x = self.first(x)
        for up, blocks in zip(self.up, self.residual):
            x = up(nn.functional.leaky_relu(x, 0.1))
            x = sum(block(x) for block in blocks) / len(blocks)
        return torch.tanh(self.last(nn.functional.leaky_relu(x)))


def build(remedy, device):
    vocoder = Vocoder(small(device, 256, 16)).to(device).eval()
    if remedy:
        for module in vocoder.modules():
            if parametrize.is_parametrized(module):
                parametrize.remove_parametrizations(module, "weight")
    chunks = torch.randn(64, 1, 80, small(device, 24, 4), device=device)
    state = {"chunk": 0}

    @torch.inference_mode()
    def step():
        state["chunk"] += 1
        return vocoder(chunks[state["chunk"] % len(chunks)])

    return step


if __name__ == "__main__":
    main(build)
