"""Glazes of a pottery: from how a kiln was heated, a network learns the colour that each glaze took."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

FIRINGS, MINUTES, BATCH, WIDTH, COLOURS = 12_000, 512, 1024, 512, 3


def written(folder):
    """The pottery's book of firings as it is kept: heat by the minute, and the colours that came out."""
    random = np.random.default_rng(12)
    heat = random.standard_normal((FIRINGS, MINUTES), dtype=np.float32).cumsum(axis=1) / 20
    mixed = random.standard_normal((MINUTES, COLOURS), dtype=np.float32) / MINUTES**0.5
    colours = np.tanh(heat @ mixed) + 0.05 * random.standard_normal((FIRINGS, COLOURS), dtype=np.float32)
    path = Path(folder) / "firings.npz"
    np.savez(path, heat=heat, colours=colours)
    return path


class Firings:
    def __init__(self, path):
        self.book = np.load(path)
        self.random = np.random.default_rng(2)

    def batch(self, device):
        chosen = self.random.integers(0, FIRINGS, BATCH)
        heat = torch.from_numpy(self.book["heat"][chosen])
        colours = torch.from_numpy(self.book["colours"][chosen])
        return heat.to(device), colours.to(device)


class Glaze(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(MINUTES, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, COLOURS)
        )

    def forward(self, heat):
        return self.layers(heat)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(12)
    device = torch.device("cuda")
    with tempfile.TemporaryDirectory() as folder:
        firings, glaze = Firings(written(folder)), Glaze().to(device)
        optimizer = torch.optim.AdamW(glaze.parameters(), lr=1e-3, fused=device.type == "cuda")

        def step():
            heat, colours = firings.batch(device)
            loss = nn.functional.mse_loss(glaze(heat), colours)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        for _ in range(3):
            loss = step()
        torch.cuda.synchronize()
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < args.seconds:
            loss = step()
            steps += 1
            if steps % 20 == 0:
                print(f"step {steps}: loss {loss.item():.4f}")
        torch.cuda.synchronize()
        print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
