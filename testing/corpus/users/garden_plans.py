"""Plans for gardens: beds of many plants are changed a little, a network says how well they would do, and the best go on."""

import argparse
import time

import numpy as np
import torch
from torch import nn

BEDS, PLANTS, WIDTH, KEPT, CHANGED, REMEMBERED = 48, 12, 512, 64, 512, 20_000


class Taste(nn.Module):
    def __init__(self):
        super().__init__()
        self.plant = nn.Embedding(PLANTS, 16)
        self.layers = nn.Sequential(nn.Linear(BEDS * 16, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1))

    def forward(self, plans):
        return self.layers(self.plant(plans).flatten(1))[:, 0]


class Search:
    def __init__(self, device):
        self.device, self.random = device, np.random.default_rng(11)
        self.taste = Taste().to(device).eval()
        self.best = self.random.integers(0, PLANTS, (KEPT, BEDS))
        self.codes = self.random.integers(1, 2**62, (BEDS, PLANTS))
        self.tried = [int(code) for code in self.random.integers(1, 2**62, REMEMBERED)]
        self.score = 0.0

    def changed(self):
        plans = self.best[self.random.integers(0, KEPT, CHANGED)]
        for _ in range(3):
            plans[np.arange(CHANGED), self.random.integers(0, BEDS, CHANGED)] = self.random.integers(0, PLANTS, CHANGED)
        return plans

    def fresh(self, plans):
        """Those plans that were not tried lately, which are remembered from now on."""
        codes = np.bitwise_xor.reduce(self.codes[np.arange(BEDS), plans], axis=1).tolist()
        new = []
        for plan, code in zip(plans, codes):
            if code not in self.tried:
                self.tried.append(code)
                new.append(plan)
        self.tried = self.tried[-REMEMBERED:]
        return np.stack(new)

    @torch.inference_mode()
    def round(self):
        plans = np.concatenate([self.best, self.fresh(self.changed())])
        scores = self.taste(torch.from_numpy(plans).to(self.device))
        best = scores.topk(KEPT)
        self.best, self.score = plans[best.indices.cpu().numpy()], best.values[0].item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(11)
    search = Search(torch.device("cuda"))
    for _ in range(3):
        search.round()
    torch.cuda.synchronize()
    began, rounds = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        search.round()
        rounds += 1
        if rounds % 20 == 0:
            print(f"round {rounds}: best {search.score:.4f}")
    torch.cuda.synchronize()
    print(f"{rounds / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
