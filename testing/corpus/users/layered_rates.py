"""Fine-tunes an encoder of tables; layers near the input learn more slowly than those near the output."""

import argparse
import time

import torch
from torch import nn

LAYERS, WIDTH, DECAY = 24, 256, 0.8


class TableEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.columns = nn.Linear(64, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.answer = nn.Linear(WIDTH, 10)

    def forward(self, rows):
        return self.answer(self.layers(self.columns(rows)).mean(1))


def rate_of(name, base=3e-4):
    parts = name.split(".")
    if parts[0] == "layers":
        return base * DECAY ** (LAYERS - int(parts[2]))
    return base if parts[0] == "answer" else base * DECAY ** (LAYERS + 1)


def parameters_with_rates(model):
    return [
        {"params": [weight], "lr": rate_of(name), "weight_decay": 0.05 if weight.dim() > 1 else 0.0}
        for name, weight in model.named_parameters()
    ]


def merged(groups):
    same = {}
    for group in groups:
        key = (group["lr"], group["weight_decay"])
        same.setdefault(key, {"params": [], "lr": group["lr"], "weight_decay": group["weight_decay"]})
        same[key]["params"] += group["params"]
    return list(same.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = TableEncoder().cuda()
    groups = parameters_with_rates(model)
    if args.remedied:
        groups = merged(groups)
    optimizer = torch.optim.AdamW(groups)
    rows = torch.randn(16, 64, 48, 64, device="cuda")
    answers = torch.randint(10, (16, 64), device="cuda")

    def train(step):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(rows[step % 16])
            loss = nn.functional.cross_entropy(scores, answers[step % 16])
        loss.backward()
        optimizer.step()
        return loss

    for step in range(6):
        train(step)
    torch.cuda.synchronize()
    began, step = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = train(step)
        step += 1
        if step % 20 == 0:
            print(f"{step:6d}  {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{step / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
