"""Training that computes its accuracy with NumPy, from all logits, in every step.

Cause: copies to the host on the critical path. Remedy: the device computes it, and keeps the sum.
"""

import numpy as np
import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    rows, width, classes = small(device, 4096, 8), small(device, 1024, 16), small(device, 8192, 10)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(rows, width, device=device)
    labels = torch.randint(0, classes, (rows,), device=device)
    right = torch.zeros((), device=device)
    history = []

    def step():
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if remedy:
            right.add_((logits.argmax(1) == labels).float().mean())
        else:
            predicted = np.argmax(logits.detach().float().cpu().numpy(), axis=1)
            history.append((predicted == labels.cpu().numpy()).mean())

    return step


if __name__ == "__main__":
    main(build)
