"""Trains on one hospital's scans so that another's look alike to the network: their features must not differ as sets."""

import argparse
import time

import torch
from torch import nn

SCANS, VALUES, WIDTH, FINDINGS = 768, 512, 256, 12
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Linear(VALUES, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, WIDTH)
        )
        self.findings = nn.Linear(WIDTH, FINDINGS)

    def forward(self, scans):
        features = self.features(scans)
        return features, self.findings(features)


def squared_distances(features, remedied):
    if remedied:
        lengths = features.square().sum(1)
        return (lengths[:, None] + lengths[None, :] - 2 * features @ features.T).clamp(min=0)
    return (features[:, None, :] - features[None, :, :]).pow(2).sum(2)


def apart(here, there, remedied):
    features = torch.cat((here, there))
    squares = squared_distances(features, remedied)
    usual = squares.detach().mean()
    near = sum(torch.exp(-squares / (usual * scale)) for scale in SCALES)
    n = len(here)
    return near[:n, :n].mean() + near[n:, n:].mean() - 2 * near[:n, n:].mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(41)
    model = Reader().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    here = torch.randn(4, SCANS, VALUES, device="cuda")
    there = 0.5 + 1.2 * torch.randn(4, SCANS, VALUES, device="cuda")
    findings = (torch.rand(4, SCANS, FINDINGS, device="cuda") < 0.1).float()

    def train(step):
        own, scores = model(here[step % 4])
        foreign, _ = model(there[step % 4])
        loss = nn.functional.binary_cross_entropy_with_logits(scores, findings[step % 4])
        loss = loss + 0.5 * apart(own, foreign, args.remedied)
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
