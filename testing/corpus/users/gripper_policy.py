"""Collects steps of 4096 simulated grippers: a policy drives the joints, opens or closes, and asks for help."""

import argparse
import time

import torch
from torch import distributions, nn

GRIPPERS, SEEN, JOINTS, GRASPS = 4096, 48, 7, 4


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SEEN, 256), nn.ELU(), nn.Linear(256, 256), nn.ELU())
        self.heads = nn.Linear(256, JOINTS + GRASPS + 2)
        self.spread = nn.Parameter(torch.full((JOINTS,), -0.7))

    def forward(self, seen):
        joints, grasps, others = self.heads(self.body(seen)).split((JOINTS, GRASPS, 2), -1)
        speeds = distributions.Normal(joints, self.spread.exp().expand_as(joints))
        grasp = distributions.Categorical(logits=grasps)
        help_wanted = distributions.Bernoulli(logits=others[:, 0])
        return speeds, grasp, help_wanted, others[:, 1]


class Grippers:
    def __init__(self):
        self.state = torch.randn(GRIPPERS, SEEN, device="cuda")
        self.mix = torch.randn(JOINTS, SEEN, device="cuda") / SEEN**0.5
        self.pull = torch.randn(GRASPS, SEEN, device="cuda") / SEEN**0.5

    def step(self, speeds, grasp, asked):
        moved = torch.addmm(self.pull[grasp], speeds, self.mix)
        self.state = torch.tanh(0.95 * self.state + 0.1 * moved)
        return self.state[:, 0] - 0.05 * asked


class Rollout:
    def __init__(self, length):
        self.length, self.at = length, 0
        self.rewards, self.chances, self.values = torch.zeros(3, length, GRIPPERS, device="cuda")

    def keep(self, reward, chance, value):
        self.rewards[self.at], self.chances[self.at], self.values[self.at] = reward, chance, value
        self.at = (self.at + 1) % self.length


@torch.no_grad()
def act(policy, grippers, rollout):
    speeds, grasp, help_wanted, value = policy(grippers.state)
    speed, kind, asked = speeds.sample(), grasp.sample(), help_wanted.sample()
    chance = speeds.log_prob(speed).sum(-1) + grasp.log_prob(kind) + help_wanted.log_prob(asked)
    rollout.keep(grippers.step(speed, kind, asked), chance, value)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(31)
    if args.remedied:
        distributions.Distribution.set_default_validate_args(False)
    policy = Policy().cuda()
    grippers, rollout = Grippers(), Rollout(64)
    for _ in range(20):
        act(policy, grippers, rollout)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        act(policy, grippers, rollout)
        steps += 1
        if steps % 640 == 0:
            print(f"step {steps}: reward {rollout.rewards.mean().item():+.3f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
