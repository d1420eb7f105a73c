"""Learns to land drones on ships from a million remembered moments, all of them on the GPU."""

import argparse
import time

import numpy as np
import torch
from torch import nn

MOMENTS, SEEN, ACTIONS, BATCH = 1_000_000, 24, 6, 256


class Memory:
    def __init__(self, remedied):
        self.before, self.after = torch.randn(2, MOMENTS, SEEN, device="cuda")
        self.action = torch.randint(ACTIONS, (MOMENTS,), device="cuda")
        self.reward = torch.randn(MOMENTS, device="cuda")
        self.ended = (torch.rand(MOMENTS, device="cuda") < 0.01).float()
        self.dice = np.random.default_rng(40) if remedied else np.random

    def sample(self):
        chosen = torch.from_numpy(self.dice.choice(MOMENTS, BATCH, replace=False)).cuda()
        return self.before[chosen], self.action[chosen], self.reward[chosen], self.after[chosen], self.ended[chosen]


def network():
    return nn.Sequential(nn.Linear(SEEN, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, ACTIONS)).cuda()


class Pilot:
    def __init__(self):
        self.worth, self.target = network(), network()
        self.target.load_state_dict(self.worth.state_dict())
        self.optimizer = torch.optim.Adam(self.worth.parameters(), lr=3e-4, fused=True)
        self.own, self.far = list(self.worth.parameters()), list(self.target.parameters())

    def learn(self, before, action, reward, after, ended):
        with torch.no_grad():
            best = self.worth(after).argmax(1, keepdim=True)
            wanted = reward + 0.99 * (1 - ended) * self.target(after).gather(1, best).squeeze(1)
        worth = self.worth(before).gather(1, action[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(worth, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.far, self.own, 0.005)
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(40)
    np.random.seed(40)
    memory, pilot = Memory(args.remedied), Pilot()
    for _ in range(5):
        pilot.learn(*memory.sample())
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = pilot.learn(*memory.sample())
        steps += 1
        if steps % 100 == 0:
            print(f"step {steps}: {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
