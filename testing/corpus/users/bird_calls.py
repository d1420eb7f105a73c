"""Learns to tell birds apart by their calls."""

import argparse
import time

import torch
import torchaudio
from torch import nn

RATE, SECONDS_OF_SOUND = 32000, 3


def features(waves, kept=None):
    spectrogram = kept or torchaudio.transforms.MelSpectrogram(
        sample_rate=RATE, n_fft=2048, hop_length=512, f_min=50, f_max=14000, n_mels=128
    ).to(waves.device)
    return torch.log1p(spectrogram(waves)).unsqueeze(1)


class Calls(nn.Module):
    def __init__(self, birds=182):
        super().__init__()
        widths = [1, 32, 64, 128, 192]
        self.layers = nn.Sequential(*(
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(b), nn.SiLU(inplace=True))
            for a, b in zip(widths, widths[1:])
        ))
        self.birds = nn.Linear(widths[-1], birds)

    def forward(self, x):
        return self.birds(self.layers(x).mean((2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(7)
    model = Calls().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    waves = torch.randn(8, 48, RATE * SECONDS_OF_SOUND, device="cuda")
    labels = torch.randint(182, (8, 48), device="cuda")
    kept = None
    if args.remedied:
        kept = torchaudio.transforms.MelSpectrogram(
            sample_rate=RATE, n_fft=2048, hop_length=512, f_min=50, f_max=14000, n_mels=128
        ).cuda()

    def train(step):
        with torch.no_grad():
            x = features(waves[step % 8], kept)
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), labels[step % 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for step in range(10):
        train(step)
    torch.cuda.synchronize()
    began, step = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = train(step)
        step += 1
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{step / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
