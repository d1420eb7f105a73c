"""A reverberation: audio is convolved with a response of 8,001 samples by conv1d.

Cause: a direct convolution with a long kernel. Remedy: a product of Fourier transforms.
"""

import torch
from torch.nn import functional as F

from harness import main, small


def build(remedy, device):
    samples, taps = small(device, 96_000, 512), small(device, 8_001, 33)
    audio, response = torch.randn(small(device, 8, 1), 1, samples, device=device), torch.randn(1, 1, taps, device=device)
    size = 1 << (samples + taps - 1).bit_length()

    def step():
        with torch.no_grad():
            if remedy:
                spectrum = torch.fft.rfft(audio, size) * torch.fft.rfft(response.flip(-1), size)
                return torch.fft.irfft(spectrum, size)[..., taps - 1 : samples]
            return F.conv1d(audio, response)

    return step


if __name__ == "__main__":
    main(build)
