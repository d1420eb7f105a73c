"""A radiance field renders a picture in chunks of 1,024 rays.

Cause: launch-bound: chunks too small for the device. Remedy: chunks of 65,536 rays.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    rays, samples = small(device, 65536, 64), 32
    chunk = rays if remedy else small(device, 1024, 16)
    sizes = [63, 128, 128, 128, 4]
    layers = [layer for i, o in zip(sizes, sizes[1:]) for layer in (nn.Linear(i, o), nn.ReLU())]
    field = nn.Sequential(*layers[:-1]).to(device, torch.float16)
    origins, directions = torch.randn(2, rays, 3, device=device, dtype=torch.float16)
    depths = torch.linspace(1, 4, samples, device=device, dtype=torch.float16)
    scales = 2.0 ** torch.arange(10, device=device, dtype=torch.float16)

    def render(origin, direction):
        points = origin[:, None] + direction[:, None] * depths[None, :, None]
        angles = points[..., None, :] * scales[:, None]
        encoded = torch.cat([points, angles.sin().flatten(2), angles.cos().flatten(2)], dim=-1)
        values = field(encoded)
        density = 1 - torch.exp(-torch.relu(values[..., 3]) * 0.1)
        seen = torch.cumprod(1 - density + 1e-4, dim=1)
        return (torch.sigmoid(values[..., :3]) * (density * seen)[..., None]).sum(1)

    def step():
        with torch.no_grad():
            return torch.cat([render(origins[i : i + chunk], directions[i : i + chunk]) for i in range(0, rays, chunk)])

    return step


if __name__ == "__main__":
    main(build)
