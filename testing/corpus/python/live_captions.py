"""An acoustic model writes captions while somebody speaks: each call sees some frames, and keeps its state for the next.

Cause: the averaged weights are parameters of their own, and cuDNN needs one block: they are copied into it in every call. Remedy:
flatten_parameters after loading.
"""

import warnings

import torch
from torch import nn

from harness import main, small


class Captions(nn.Module):
    def __init__(self, bands, width, letters):
        super().__init__()
        self.first = nn.Linear(bands, width)
        self.recurrent = nn.LSTM(width, width, num_layers=4, batch_first=True)
        self.last = nn.Linear(width, letters)

    def forward(self, frames, state):
        x, state = self.recurrent(torch.relu(self.first(frames)), state)
        return self.last(x).argmax(-1), state


def load_average(lstm, checkpoints):
    """Puts the mean of checkpoints in place of the weights."""
    for name in checkpoints[0]:
        mean = torch.stack([weights[name] for weights in checkpoints]).mean(0)
        setattr(lstm, name, nn.Parameter(mean, requires_grad=False))


def build(remedy, device):
    warnings.filterwarnings("ignore", message="RNN module weights")
    bands, width, voices = small(device, 80, 8), small(device, 2048, 16), small(device, 8, 2)
    model = Captions(bands, width, 64).to(device).eval()
    older = {name: weight.detach() * 0.99 for name, weight in model.recurrent.named_parameters()}
    newer = {name: weight.detach().clone() for name, weight in model.recurrent.named_parameters()}
    load_average(model.recurrent, [older, newer])
    if remedy:
        model.recurrent.flatten_parameters()
    sound = torch.randn(32, voices, 4, bands, device=device)
    kept = {"call": 0, "state": None}

    @torch.inference_mode()
    def step():
        for _ in range(4):
            frames = sound[kept["call"] % len(sound)]
            letters, kept["state"] = model(frames, kept["state"])
            kept["call"] += 1
        return letters

    return step


if __name__ == "__main__":
    main(build)
