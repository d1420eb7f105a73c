"""torch.cuda.empty_cache() after every step gives all memory back to the driver, and the next step asks for it again.

Cause: allocation churn. Remedy: the caching allocator keeps its memory.
"""

import torch

from harness import main, small


def build(remedy, device):
    n = small(device, 1 << 24, 64)
    x = torch.randn(n, device=device)

    def step():
        y = torch.cat([x, x])
        z = y * 2
        del y
        torch.relu(z)
        del z
        if not remedy and device.type == "cuda":
            torch.cuda.empty_cache()

    return step


if __name__ == "__main__":
    main(build)
