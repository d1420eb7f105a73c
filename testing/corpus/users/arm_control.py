"""Linearises a learned model of a robot's arm at many points, for its controller."""

import argparse
import time

import torch
from torch import nn
from torch.autograd.functional import jacobian

JOINTS, POINTS = 48, 512


class Arm(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 * JOINTS, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, JOINTS)
        )

    def forward(self, state):
        return self.layers(state)


def linearise(arm, states, remedied):
    def total(x):
        return arm(x).sum(0)

    matrices = jacobian(total, states, vectorize=remedied)
    return matrices.transpose(0, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(4)
    arm = Arm().cuda().requires_grad_(False)
    states = torch.randn(POINTS, 2 * JOINTS, device="cuda")
    eye = 1e-3 * torch.eye(JOINTS, device="cuda")
    wanted = torch.randn(POINTS, JOINTS, 1, device="cuda")

    def control():
        nonlocal states
        matrices = linearise(arm, states, args.remedied)[..., :JOINTS]
        normal = matrices @ matrices.transpose(1, 2) + eye
        forces = matrices.transpose(1, 2) @ torch.cholesky_solve(wanted, torch.linalg.cholesky_ex(normal).L)
        states = 0.99 * states
        states[:, :JOINTS] += 1e-3 * forces.squeeze(-1)

    for _ in range(5):
        control()
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        control()
        steps += 1
        if steps % 100 == 0:
            print(f"{steps}: {states.norm().item():.3f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
