"""Two networks that learn carpet patterns from each other: one draws them, a critic tells them from woven ones."""

import argparse
import time

import torch
from torch import nn

BATCH, NOISE, CRITIC_ROUNDS, CLIP = 64, 128, 4, 0.01


class Draw(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Linear(NOISE, 512 * 4 * 4)
        layers, wide = [], 512
        for narrow in (512, 256, 128, 64):
            layers += [nn.Upsample(scale_factor=2), nn.Conv2d(wide, narrow, 3, padding=1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU()]
            layers += [nn.Conv2d(narrow, narrow, 3, padding=1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU()]
            wide = narrow
        self.layers = nn.Sequential(*layers, nn.Conv2d(wide, 3, 3, padding=1), nn.Tanh())

    def forward(self, noise):
        return self.layers(self.start(noise).view(-1, 512, 4, 4))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        layers, wide = [], 3
        for wider in (32, 64, 128, 256):
            layers += [nn.Conv2d(wide, wider, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
            wide = wider
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(wide * 16, 1))

    def forward(self, carpets):
        return self.layers(carpets).float().mean()


class Pair:
    def __init__(self, remedied):
        self.draw = Draw().cuda().to(memory_format=torch.channels_last)
        self.critic = Critic().cuda().to(memory_format=torch.channels_last)
        self.remedied = remedied
        self.drawing = torch.optim.RMSprop(self.draw.parameters(), lr=5e-5, foreach=True)
        self.judging = torch.optim.RMSprop(self.critic.parameters(), lr=5e-5, foreach=True)

    def drawn(self):
        return self.draw(torch.randn(BATCH, NOISE, device="cuda"))

    def judge(self, woven):
        with torch.autocast("cuda", torch.bfloat16):
            with torch.set_grad_enabled(not self.remedied):
                drawn = self.drawn()
            loss = self.critic(drawn) - self.critic(woven)
        self.judging.zero_grad()
        loss.backward()
        self.judging.step()
        with torch.no_grad():
            torch._foreach_clamp_min_(list(self.critic.parameters()), -CLIP)
            torch._foreach_clamp_max_(list(self.critic.parameters()), CLIP)
        return loss.detach()

    def improve(self):
        with torch.autocast("cuda", torch.bfloat16):
            loss = -self.critic(self.drawn())
        self.drawing.zero_grad()
        loss.backward()
        self.drawing.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(35)
    pair = Pair(args.remedied)
    woven = [torch.rand(BATCH, 3, 64, 64, device="cuda") * 2 - 1 for _ in range(CRITIC_ROUNDS)]
    woven = [batch.to(memory_format=torch.channels_last) for batch in woven]

    def step():
        for batch in woven:
            apart = pair.judge(batch)
        pair.improve()
        return apart

    for _ in range(4):
        step()
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        apart = step()
        steps += 1
        if steps % 10 == 0:
            print(f"step {steps}: apart {apart.item():+.5f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
