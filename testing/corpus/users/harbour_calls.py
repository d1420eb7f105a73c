"""Ships that call at a harbour: from the hour of each call in its log, a network learns how long the ship will stay."""

import argparse
import time
from datetime import datetime, timedelta

import numpy as np
import torch
from torch import nn

CALLS, BATCH, SHIPS, WIDTH = 100_000, 8192, 2000, 256
START = datetime(2024, 1, 1)


def written_log(random):
    """Lines as the harbour's office writes them: when, which ship, and how many hours it stayed."""
    minutes = random.integers(0, 366 * 24 * 60, CALLS)
    ships = random.integers(0, SHIPS, CALLS)
    hours = 6 + 4 * np.sin(2 * np.pi * minutes / 1440) + 0.003 * ships + random.standard_normal(CALLS)
    whens = [(START + timedelta(minutes=int(m))).isoformat(sep=" ") for m in minutes]
    return whens, ships, hours.astype(np.float32)


def when(text):
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")


class Log:
    def __init__(self):
        self.random = np.random.default_rng(11)
        self.whens, self.ships, self.hours = written_log(self.random)

    def batch(self, device):
        chosen = self.random.integers(0, CALLS, BATCH)
        seen = np.empty((BATCH, 4), dtype=np.float32)
        for row, call in enumerate(chosen):
            at = when(self.whens[call])
            seen[row] = at.hour, at.minute, at.weekday(), at.month
        seen /= np.float32([24, 60, 7, 12])
        parts = (seen, self.ships[chosen], self.hours[chosen])
        return [torch.from_numpy(part).to(device) for part in parts]


class Stay(nn.Module):
    def __init__(self):
        super().__init__()
        self.ship = nn.Embedding(SHIPS, 32)
        self.layers = nn.Sequential(nn.Linear(36, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, seen, ships):
        return self.layers(torch.cat([seen, self.ship(ships)], dim=1))[:, 0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(11)
    device = torch.device("cuda")
    log, model = Log(), Stay().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=device.type == "cuda")

    def step():
        seen, ships, hours = log.batch(device)
        loss = nn.functional.mse_loss(model(seen, ships), hours)
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
            print(f"step {steps}: loss {loss.item():.3f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
