"""A recurrent network that steps through its sequence with nn.LSTMCell.

Cause: launch-bound loop over time steps. Remedy: nn.LSTM, which hands the whole sequence to cuDNN.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    batch, length, width = small(device, 64, 2), small(device, 128, 4), small(device, 256, 8)
    whole, cell = nn.LSTM(width, width).to(device), nn.LSTMCell(width, width).to(device)
    x = torch.randn(length, batch, width, device=device)
    model = whole if remedy else cell
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        if remedy:
            out, _ = whole(x)
        else:
            h = c = torch.zeros(batch, width, device=device)
            outs = []
            for now in x:
                h, c = cell(now, (h, c))
                outs.append(h)
            out = torch.stack(outs)
        out.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
