"""An iteration asks for its residual with .item() every time: the host waits, then the device waits for the next launches.

Cause: a synchronisation in every iteration. Remedy: ask in every 64th iteration.
"""

import torch

from harness import main, small


def build(remedy, device):
    n = small(device, 2048, 32)
    matrix = torch.randn(n, n, device=device) / n
    x = torch.randn(n, device=device)
    state = {"x": x, "iteration": 0}

    def step():
        for _ in range(64):
            new = torch.tanh(matrix @ state["x"] + x)
            residual = (new - state["x"]).norm()
            state["x"] = new
            state["iteration"] += 1
            if (not remedy or state["iteration"] % 64 == 0) and residual.item() < 0:
                raise RuntimeError("a norm is negative")

    return step


if __name__ == "__main__":
    main(build)
