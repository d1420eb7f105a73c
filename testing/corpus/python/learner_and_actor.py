"""A learner draws batches of frames while another thread plays: it stores each episode, and packs a copy of it for later.

Cause: the thread packs its episode while it holds the lock that the learner needs. Remedy: it packs before it takes the lock.
"""

import threading
import time
import zlib

import numpy as np
import torch
from torch import nn

from harness import main, small


class Replay:
    def __init__(self, frames, shape, packs_first):
        self.frames = np.zeros((frames, *shape), np.uint8)
        self.guard = threading.Lock()
        self.packed, self.at, self.packs_first = [], 0, packs_first
        self.choice = np.random.default_rng(2)

    def keep_episode(self, episode):
        packed = zlib.compress(episode) if self.packs_first else None
        with self.guard:
            self.frames[self.at : self.at + len(episode)] = episode
            self.at = (self.at + len(episode)) % len(self.frames)
            self.packed = [*self.packed[-9:], packed or zlib.compress(episode)]

    def draw_batch(self, size):
        with self.guard:
            return torch.from_numpy(self.frames[self.choice.integers(0, len(self.frames), size)])


def play(replay, shape):
    generator = np.random.default_rng(1)
    while True:
        episode = generator.integers(0, 24, (16, *shape), dtype=np.uint8)
        time.sleep(0.002)
        replay.keep_episode(episode)


def build(remedy, device):
    shape = (4, 64, 64)
    replay = Replay(small(device, 4096, 64), shape, remedy)
    threading.Thread(target=play, args=(replay, shape), daemon=True).start()
    model = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2304, 512),
                          nn.ReLU(), nn.Linear(512, 18)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=device.type == "cuda")

    def step():
        frames = replay.draw_batch(small(device, 64, 2)).to(device)
        values = model(frames.float().div_(255))
        nn.functional.smooth_l1_loss(values, values.detach().roll(1, 0)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
