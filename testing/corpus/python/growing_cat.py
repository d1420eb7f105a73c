"""Frames are collected by torch.cat, one after the other.

Cause: each concatenation copies all frames before it. Remedy: one torch.stack at the end.
"""

import torch

from harness import main, small


def build(remedy, device):
    frames, side = small(device, 64, 4), small(device, 1024, 8)
    frame = torch.randn(side, side, device=device)

    def step():
        kept, movie = [], torch.empty(0, side, side, device=device)
        for i in range(frames):
            new = torch.tanh(frame * i)
            if remedy:
                kept.append(new)
            else:
                movie = torch.cat([movie, new[None]])
        return torch.stack(kept) if remedy else movie

    return step


if __name__ == "__main__":
    main(build)
