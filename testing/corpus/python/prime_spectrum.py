"""Spectra of signals whose length is a prime number.

Cause: cuFFT computes transforms of prime length by Bluestein's method. Remedy: signals are padded to a length of small factors.
"""

import torch

from harness import main, small


def build(remedy, device):
    signals = torch.randn(small(device, 2048, 2), 16_381, device=device)

    def step():
        return torch.fft.rfft(signals, n=16_384 if remedy else None).abs()

    return step


if __name__ == "__main__":
    main(build)
