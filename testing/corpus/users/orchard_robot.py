"""A picking robot learns from what it remembers: scans of its laser, what it did, and what came of it."""

import argparse
import random
import time
from collections import deque, namedtuple

import numpy as np
import torch
from torch import nn

BEAMS, ACTIONS, BATCH, MEMORY = 1440, 12, 128, 5000

Moment = namedtuple("Moment", "scan action reward next_scan ended")


class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(BEAMS, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, ACTIONS))

    def forward(self, scans):
        return self.layers(scans)


def remembered(count, seed=1):
    dice = np.random.default_rng(seed)
    memory = deque(maxlen=MEMORY)
    scan = dice.random(BEAMS, dtype=np.float32)
    for _ in range(count):
        following = (0.9 * scan + 0.1 * dice.random(BEAMS, dtype=np.float32)).astype(np.float32)
        memory.append(Moment(scan, int(dice.integers(ACTIONS)), float(dice.normal()), following, bool(dice.random() < 0.02)))
        scan = following
    return memory


class Learner:
    def __init__(self, remedied):
        self.values, self.target = Values().cuda(), Values().cuda()
        self.target.load_state_dict(self.values.state_dict())
        self.optimizer = torch.optim.Adam(self.values.parameters(), lr=1e-4, fused=True)
        self.remedied = remedied

    def scans(self, rows):
        if self.remedied:
            return torch.from_numpy(np.stack(rows)).cuda()
        return torch.tensor(rows, device="cuda")

    def learn(self, moments):
        now = self.scans([moment.scan for moment in moments])
        then = self.scans([moment.next_scan for moment in moments])
        actions = torch.tensor([moment.action for moment in moments], device="cuda")
        rewards = torch.tensor([moment.reward for moment in moments], device="cuda")
        goes_on = torch.tensor([0.0 if moment.ended else 1.0 for moment in moments], device="cuda")
        with torch.no_grad():
            best = rewards + 0.98 * goes_on * self.target(then).max(1).values
        guessed = self.values(now).gather(1, actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(guessed, best)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    memory = remembered(MEMORY)
    learner = Learner(args.remedied)
    for _ in range(5):
        learner.learn(random.sample(memory, BATCH))
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = learner.learn(random.sample(memory, BATCH))
        steps += 1
        if steps % 200 == 0:
            learner.target.load_state_dict(learner.values.state_dict())
            print(f"{steps}: {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
