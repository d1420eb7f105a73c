"""Adapts a frozen network to the clauses of public tenders: each layer learns a correction of low rank."""

import argparse
import time

import torch
from torch import nn

TEXTS, WORDS, WIDTH, RANK, DEPTH, KINDS = 8, 256, 4096, 16, 12, 40


class Adapted(nn.Module):
    def __init__(self, remedied):
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(WIDTH, RANK) / WIDTH**0.5)
        self.up = nn.Parameter(torch.zeros(RANK, WIDTH))
        self.scale, self.remedied = 2.0, remedied

    def forward(self, words):
        if self.remedied:
            correction = (words @ self.down) @ self.up
        else:
            correction = words @ (self.down @ self.up)
        return self.frozen(words) + self.scale * correction


class Clauses(nn.Module):
    def __init__(self, remedied):
        super().__init__()
        self.layers = nn.ModuleList(Adapted(remedied) for _ in range(DEPTH))
        self.kinds = nn.Linear(WIDTH, KINDS)

    def forward(self, words):
        for layer in self.layers:
            words = words + nn.functional.silu(layer(nn.functional.rms_norm(words, (WIDTH,))))
        return self.kinds(nn.functional.rms_norm(words.mean(1), (WIDTH,)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(37)
    with torch.device("cuda"):
        model = Clauses(args.remedied).to(torch.bfloat16)
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=1e-4, fused=True)
    texts = torch.randn(4, TEXTS, WORDS, WIDTH, device="cuda", dtype=torch.bfloat16)
    kinds = torch.randint(KINDS, (4, TEXTS), device="cuda")

    def train(step):
        loss = nn.functional.cross_entropy(model(texts[step % 4]).float(), kinds[step % 4])
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
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{step / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
