"""A detector gathers the points of ten sweeps into cells of a grid, and looks at the picture of cells from above.

Cause: torch.unique with dim=0 compares rows of three numbers to sort them. Remedy: torch.unique of one number for each cell.
"""

import torch
from torch import nn

from harness import main, small

CELLS, LAYERS, WIDTH = 512, 8, 16


def cells_of(points):
    """Three whole numbers for each point: its row, its column and its height in the grid."""
    across = (points[:, :2] * 4 + CELLS / 2).long().clamp_(0, CELLS - 1)
    height = (points[:, 2:3] + LAYERS / 2).long().clamp_(0, LAYERS - 1)
    return torch.cat([across, height], 1)


def occupied(cells, packed):
    """The cells that hold points, and which of them each point is in."""
    if not packed:
        return torch.unique(cells, dim=0, return_inverse=True)
    numbers = (cells[:, 0] * CELLS + cells[:, 1]) * LAYERS + cells[:, 2]
    numbers, inside = torch.unique(numbers, return_inverse=True)
    return torch.stack([numbers // (CELLS * LAYERS), numbers // LAYERS % CELLS, numbers % LAYERS], 1), inside


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(4, WIDTH)
        self.look = nn.Sequential(nn.Conv2d(WIDTH, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
                                  nn.Conv2d(64, 8, 1))

    def forward(self, points, packed):
        cells, inside = occupied(cells_of(points), packed)
        lifted = torch.relu(self.lift(points))
        sums = torch.zeros(len(cells), WIDTH, device=points.device).index_add_(0, inside, lifted)
        picture = torch.zeros(CELLS * CELLS, WIDTH, device=points.device)
        picture.index_add_(0, cells[:, 0] * CELLS + cells[:, 1], sums)
        return self.look(picture.view(1, CELLS, CELLS, WIDTH).permute(0, 3, 1, 2))


def build(remedy, device):
    count = small(device, 2_000_000, 500)
    spread = torch.tensor([20.0, 20.0, 1.0, 1.0], device=device)
    sweeps = [torch.randn(count, 4, device=device) * spread for _ in range(4)]
    detector = Detector().to(device).eval()
    state = {"sweep": 0}

    @torch.inference_mode()
    def step():
        state["sweep"] += 1
        return detector(sweeps[state["sweep"] % len(sweeps)], remedy).amax((2, 3))

    return step


if __name__ == "__main__":
    main(build)
