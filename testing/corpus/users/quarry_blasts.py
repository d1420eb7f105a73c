"""A network learns from quakes of quarries which of them were blasts: traces of many stations, and what the network keeps of them."""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

BATCH, SAMPLES, WIDTH, BLOCKS, KINDS = 4096, 512, 1024, 4, 5


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, width)
        self.back = nn.Linear(width, width)

    def forward(self, traces):
        return traces + self.back(F.gelu(self.wide(self.norm(traces))))


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(SAMPLES, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(BLOCKS))
        self.kind = nn.Linear(WIDTH, KINDS)

    def forward(self, traces):
        traces = self.into(traces)
        for block in self.blocks:
            traces = block(traces)
        return self.kind(traces)


class Lesson:
    def __init__(self, device):
        self.listener = Listener().to(device)
        self.optimizer = torch.optim.AdamW(self.listener.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.traces = torch.randn(4, BATCH, SAMPLES, device=device)
        self.kinds = torch.randint(KINDS, (4, BATCH), device=device)

    def step(self, number):
        traces, kinds = self.traces[number % 4], self.kinds[number % 4]
        with torch.autograd.graph.save_on_cpu():
            loss = F.cross_entropy(self.listener(traces), kinds)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(11)
    torch.set_float32_matmul_precision("high")
    lesson = Lesson(torch.device("cuda"))
    for number in range(3):
        loss = lesson.step(number)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = lesson.step(steps)
        steps += 1
        if steps % 10 == 0:
            torch.cuda.synchronize()
        if steps % 200 == 0:
            print(f"step {steps}: loss {loss.item():.4f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
