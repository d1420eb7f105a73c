"""A glacier flows downhill for years; those who watch get the ice of each month, packed, as soon as it is known."""

import argparse
import collections
import io
import time

import torch

MONTHS, ROWS, COLUMNS, PARTS = 120, 256, 384, 8


class Glacier:
    def __init__(self):
        down = torch.linspace(1, 0, ROWS, device="cuda")[:, None]
        across = torch.linspace(-1, 1, COLUMNS, device="cuda")[None, :]
        self.bed = 900 * down + 300 * across**2
        self.snow = 2.0 * (down - 0.45)
        self.past = torch.zeros(MONTHS, ROWS, COLUMNS, device="cuda")
        self.past[-1] = 80 * torch.exp(-4 * across**2) * down
        self.month = 0

    def flow(self, ice):
        height = self.bed + ice
        south = torch.roll(height, -1, 0) - height
        east = torch.roll(height, -1, 1) - height
        south[-1], east[:, -1] = 0, 0
        steep = (south * south + east * east) * 1e-6
        passed = (1e-7 * ice**3 * (0.2 + steep)).clamp_(max=0.2)
        moved_south, moved_east = passed * south, passed * east
        change = moved_south - torch.roll(moved_south, 1, 0) + moved_east - torch.roll(moved_east, 1, 1)
        return (ice + change + self.snow / PARTS / 12).clamp_(min=0)

    def advance(self):
        ice = self.past[self.month - 1]
        for _ in range(PARTS):
            ice = self.flow(ice)
        self.past[self.month] = ice
        this_month = self.past[self.month]
        self.month = (self.month + 1) % MONTHS
        return this_month


class Watchers:
    def __init__(self, remedied):
        self.letters, self.remedied = collections.deque(maxlen=3), remedied

    def send(self, number, ice):
        letter = io.BytesIO()
        torch.save({"month": number, "ice": ice.clone() if self.remedied else ice}, letter)
        self.letters.append(letter)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    glacier, watchers = Glacier(), Watchers(args.remedied)
    for month in range(3):
        watchers.send(month, glacier.advance())
    torch.cuda.synchronize()
    began, months = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        ice = glacier.advance()
        watchers.send(months, ice)
        months += 1
        if months % 12 == 0:
            print(f"year {months // 12}: {ice.mean().item():.3f} m of ice")
    torch.cuda.synchronize()
    print(f"{months / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
