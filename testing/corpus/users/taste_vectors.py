"""How well do vectors of listeners and songs tell what is played from what is skipped?"""

import argparse
import time

import torch
from torch import nn

LISTENERS, SONGS, WIDTH, BATCH = 200_000, 400_000, 128, 65536


class Taste(nn.Module):
    def __init__(self, longest):
        super().__init__()
        self.listeners = nn.Embedding(LISTENERS, WIDTH, max_norm=longest)
        self.songs = nn.Embedding(SONGS, WIDTH, max_norm=longest)

    def forward(self, who, played, skipped):
        who = self.listeners(who)
        liked = (who * self.songs(played)).sum(-1)
        other = (who * self.songs(skipped)).sum(-1)
        return nn.functional.softplus(other - liked).mean()


@torch.no_grad()
def evaluate(model, who, played, skipped):
    return model(who, played, skipped)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    model = Taste(None if args.remedied else 1.0).cuda()
    if args.remedied:
        for table in (model.listeners, model.songs):
            table.weight.data.renorm_(2, 0, 1.0)
    plays = [
        (torch.randint(LISTENERS, (BATCH,), device="cuda"), torch.randint(SONGS, (BATCH,), device="cuda"),
         torch.randint(SONGS, (BATCH,), device="cuda"))
        for _ in range(16)
    ]
    for step in range(10):
        evaluate(model, *plays[step % 16])
    torch.cuda.synchronize()
    began, step, total = time.perf_counter(), 0, torch.zeros((), device="cuda")
    while time.perf_counter() - began < args.seconds:
        total += evaluate(model, *plays[step % 16])
        step += 1
        if step % 500 == 0:
            print(f"{step} batches, mean loss {total.item() / step:.4f}")
    torch.cuda.synchronize()
    print(f"{step / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
