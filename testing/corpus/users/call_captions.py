"""Captions calls while they go on: each 40 ms of eight calls pass a recurrent network with converted weights."""

import argparse
import time

import torch
from torch import nn

CALLS, BANDS, WIDTH, DEPTH, SIGNS = 8, 240, 1536, 4, 1024


class Captions(nn.Module):
    def __init__(self):
        super().__init__()
        self.listen = nn.Linear(BANDS, WIDTH)
        self.memory = nn.LSTM(WIDTH, WIDTH, DEPTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.write = nn.Linear(WIDTH, SIGNS)

    def forward(self, sound, state):
        heard, state = self.memory(torch.tanh(self.listen(sound)), state)
        return self.write(self.norm(heard)), state


def converted_weights(model):
    dice = torch.Generator(device="cuda").manual_seed(32)
    weights = {}
    for name, place in model.state_dict().items():
        scale = 1.0 if name == "norm.weight" else place.shape[-1] ** -0.5
        weights[name] = scale * torch.randn(place.shape, device="cuda", generator=dice)
    return weights


def load(remedied):
    with torch.device("meta"):
        model = Captions()
    model.load_state_dict(converted_weights(model), assign=True)
    model.eval()
    if remedied:
        model.memory.flatten_parameters()
    return model


@torch.inference_mode()
def caption(model, sound, state, written):
    scores, state = model(sound.unsqueeze(0), state)
    best = scores[0].argmax(-1)
    written.copy_(torch.where(best > 0, best, written))
    return state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    model = load(args.remedied)
    torch.manual_seed(33)
    sounds = torch.randn(50, CALLS, BANDS, device="cuda")
    state = tuple(torch.zeros(DEPTH, CALLS, WIDTH, device="cuda") for _ in range(2))
    written = torch.zeros(CALLS, dtype=torch.long, device="cuda")
    for piece in range(5):
        state = caption(model, sounds[piece], state, written)
    torch.cuda.synchronize()
    began, pieces = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        state = caption(model, sounds[pieces % 50], state, written)
        pieces += 1
        if pieces % 500 == 0:
            print(f"second {pieces // 25}: signs {written.tolist()}")
    torch.cuda.synchronize()
    print(f"{pieces / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
