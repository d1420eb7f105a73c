"""Learns which drugs must not be taken together: both are read from their graph's embeddings, and compared in pairs."""

import argparse
import time

import torch
from torch import nn

DRUGS, SIZE, VIEWS, PAIRS = 20_000, 128, 64, 2048


class Compare(nn.Bilinear):
    def forward(self, first, second):
        mixed = torch.tensordot(first, self.weight, dims=([1], [1]))
        return torch.einsum("bvj,bj->bv", mixed, second) + self.bias


class Pairs(nn.Module):
    def __init__(self, remedied):
        super().__init__()
        self.drugs = nn.Embedding(DRUGS, SIZE)
        self.read = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE))
        self.compare = (Compare if remedied else nn.Bilinear)(SIZE, SIZE, VIEWS)
        self.beside = nn.Linear(2 * SIZE, VIEWS)
        self.judge = nn.Sequential(nn.ReLU(), nn.Linear(VIEWS, 1))

    def forward(self, first, second):
        a, b = self.read(self.drugs(first)), self.read(self.drugs(second))
        return self.judge(self.compare(a, b) + self.beside(torch.cat((a, b), -1))).squeeze(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(34)
    model = Pairs(args.remedied).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    pairs = torch.randint(DRUGS, (8, 2, PAIRS), device="cuda")
    harmful = (torch.rand(8, PAIRS, device="cuda") < 0.3).float()

    def train(step):
        first, second = pairs[step % 8]
        loss = nn.functional.binary_cross_entropy_with_logits(model(first, second), harmful[step % 8])
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
        if step % 100 == 0:
            print(f"step {step}: {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{step / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
