"""Trains an encoder of stellar spectra that tells temperature, gravity and metals of a star."""

import argparse
import time

import torch
from torch import nn

BATCH, PIECES, SAMPLES, WIDTH, HEADS, DEPTH = 8, 2048, 16, 512, 8, 6


class Layer(nn.Module):
    def __init__(self, extra):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.extra = extra

    def forward(self, pieces):
        seen = self.before(pieces)
        mixed, _ = self.attention(seen, seen, seen, **self.extra)
        pieces = pieces + mixed
        return pieces + self.narrow(nn.functional.gelu(self.widen(self.between(pieces))))


class SpectrumEncoder(nn.Module):
    def __init__(self, extra):
        super().__init__()
        self.cut = nn.Linear(SAMPLES, WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(PIECES, WIDTH))
        self.layers = nn.ModuleList(Layer(extra) for _ in range(DEPTH))
        self.labels = nn.Linear(WIDTH, 3)

    def forward(self, spectra):
        pieces = self.cut(spectra.view(len(spectra), PIECES, SAMPLES)) + self.place
        for layer in self.layers:
            pieces = layer(pieces)
        return self.labels(pieces.mean(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(11)
    model = SpectrumEncoder({"need_weights": False} if args.remedied else {}).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    spectra = 1 + 0.1 * torch.randn(4, BATCH, PIECES * SAMPLES, device="cuda")
    labels = torch.randn(4, BATCH, 3, device="cuda")

    def train(step):
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.mse_loss(model(spectra[step % 4]).float(), labels[step % 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for step in range(5):
        train(step)
    torch.cuda.synchronize()
    began, step = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = train(step)
        step += 1
        if step % 25 == 0:
            print(f"step {step}: {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{step / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
