"""Who meets whom in a beehive: from all meetings of a day, a network learns what each bee will do on the next day."""

import argparse
import time

import torch
from torch import nn

BEES, QUEENS, MEETINGS, SEEN, WIDTH, TASKS = 100_000, 8, 1_500_000, 32, 64, 12


def observed(device):
    """All meetings as pairs of bees; one in five is with a queen, for all want to meet her."""
    speaking = torch.randint(QUEENS, BEES, (MEETINGS,), device=device)
    with_queen = torch.rand(MEETINGS, device=device) < 0.2
    speaking[with_queen] = torch.randint(0, QUEENS, (int(with_queen.sum()),), device=device)
    listening = torch.randint(0, BEES, (MEETINGS,), device=device)
    minutes = torch.rand(MEETINGS, 1, device=device)
    return speaking, listening, minutes


class Talk(nn.Module):
    """Each bee hears from those that it meets, the more the longer they stay together."""

    def __init__(self):
        super().__init__()
        self.own = nn.Linear(WIDTH, WIDTH)
        self.heard = nn.Linear(WIDTH, WIDTH)

    def forward(self, bees, speaking, listening, minutes):
        told = bees[speaking] * minutes
        heard = torch.zeros_like(bees).index_add(0, listening, told)
        return torch.relu(self.own(bees) + self.heard(heard / 15))


class Hive(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(SEEN, WIDTH)
        self.talks = nn.ModuleList(Talk() for _ in range(2))
        self.task = nn.Linear(WIDTH, TASKS)

    def forward(self, seen, meetings):
        bees = torch.relu(self.first(seen))
        for talk in self.talks:
            bees = talk(bees, *meetings)
        return self.task(bees)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(12)
    device = torch.device("cuda")
    meetings = observed(device)
    seen = torch.randn(BEES, SEEN, device=device)
    tasks = torch.randint(0, TASKS, (BEES,), device=device)
    hive = Hive().to(device)
    optimizer = torch.optim.Adam(hive.parameters(), lr=1e-3, fused=device.type == "cuda")

    def step():
        loss = nn.functional.cross_entropy(hive(seen, meetings), tasks)
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
