"""Scores a night of intensive-care records and shows the area under the curve so far."""

import argparse
import time

import torch
from torch import nn
from torchmetrics.classification import BinaryAUROC

BATCH, BATCHES = 32768, 48


def risk_model():
    return nn.Sequential(
        nn.Linear(128, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1), nn.Flatten(0), nn.Sigmoid()
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(5)
    model = risk_model().cuda().eval()
    records = torch.randn(8, BATCH, 128, device="cuda")
    sick = (torch.rand(8, BATCH, device="cuda") < 0.08).long()
    auroc = BinaryAUROC().cuda()
    shown = 0.5

    @torch.inference_mode()
    def evaluate(batch):
        nonlocal shown
        with torch.autocast("cuda", torch.bfloat16):
            risk = model(records[batch % 8])
        auroc.update(risk.float(), sick[batch % 8])
        last = (batch + 1) % BATCHES == 0
        if last or not args.remedied:
            shown = auroc.compute().item()
        if last:
            print(f"night done: area {shown:.4f}")
            auroc.reset()

    for batch in range(BATCHES):
        evaluate(batch)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        evaluate(steps)
        steps += 1
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
