"""Violins by their sound: recordings become short lists of numbers, by which a workshop finds instruments that are alike."""

import argparse
import time

import torch
from torch import nn

RECORDINGS, SAMPLES, BANDS, LAYERS = 64, 65_536, 16, 4


class Timbre(nn.Module):
    """Learned together with a decoder; for a search only the encoder is of use."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(0.5 + torch.rand(BANDS))
        self.shift = nn.Parameter(0.1 * torch.randn(BANDS))
        self.rate = nn.Parameter(0.5 + torch.rand(LAYERS, BANDS))
        self.decoder = nn.Sequential(nn.Linear(BANDS, 256), nn.ReLU(), nn.Linear(256, SAMPLES))

    def encode(self, sound):
        bands = sound[:, None, :] * self.gain[:, None] + self.shift[:, None]
        for rate in self.rate:
            rate = rate[:, None]
            bands = bands + torch.sin(rate * bands) ** 2 / rate
        loud = torch.log1p(bands.abs())
        return (torch.tanh(bands) * loud).mean(dim=-1) / (1e-3 + loud.mean(dim=-1))

    def forward(self, sound):
        return self.decoder(self.encode(sound))


class Workshop:
    def __init__(self, device):
        self.timbre = torch.compile(Timbre().to(device).eval())
        self.known = torch.randn(100_000, BANDS, device=device)

    @torch.inference_mode()
    def alike(self, sound):
        found = self.timbre.encode(sound)
        return torch.cdist(found, self.known).topk(5, largest=False).indices


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(12)
    device = torch.device("cuda")
    workshop = Workshop(device)
    sounds = torch.randn(8, RECORDINGS, SAMPLES, device=device)
    for number in range(3):
        nearest = workshop.alike(sounds[number])
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        nearest = workshop.alike(sounds[steps % len(sounds)])
        steps += 1
        if steps % 20 == 0:
            print(f"{steps * RECORDINGS} recordings: the last is most like violin {nearest[-1, 0].item()}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
