"""A detector's neck looks at each place of a picture together with what is around it, in three sizes.

Cause: pools over 9 by 9 and 13 by 13 places read all of them. Remedy: three pools of 5 by 5 in turn, which give the same numbers.
"""

import torch
from torch import nn

from harness import main, small

WIDTHS = (5, 9, 13)


def surroundings(x, in_turn):
    """The largest number around each place, for each width."""
    if not in_turn:
        return [nn.functional.max_pool2d(x, width, 1, width // 2) for width in WIDTHS]
    pools = [nn.functional.max_pool2d(x, 5, 1, 2)]
    while len(pools) < len(WIDTHS):
        pools.append(nn.functional.max_pool2d(pools[-1], 5, 1, 2))
    return pools


class Neck(nn.Module):
    def __init__(self, channels, in_turn):
        super().__init__()
        self.before, self.after = nn.Conv2d(channels, channels // 2, 1), nn.Conv2d(2 * channels, channels, 1)
        self.in_turn = in_turn

    def forward(self, x):
        x = nn.functional.silu(self.before(x))
        return nn.functional.silu(self.after(torch.cat([x, *surroundings(x, self.in_turn)], 1)))


def build(remedy, device):
    channels, side = small(device, 512, 8), small(device, 40, 16)
    model = nn.Sequential(*(Neck(channels, remedy) for _ in range(3))).to(device, torch.float16 if device.type == "cuda" else torch.float32)
    maps = torch.randn(4, small(device, 16, 1), channels, side, side, device=device, dtype=next(model.parameters()).dtype)
    state = {"batch": 0}

    @torch.inference_mode()
    def step():
        state["batch"] += 1
        return model(maps[state["batch"] % 4])

    return step


if __name__ == "__main__":
    main(build)
