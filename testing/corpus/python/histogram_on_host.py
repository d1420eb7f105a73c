"""A quantiser looks at the distribution of its activations in every step, with a histogram of NumPy.

Cause: the activations are copied to the CPU and counted there. Remedy: torch.histc on the device.
"""

import numpy as np
import torch

from harness import main, small


def build(remedy, device):
    width = small(device, 2048, 16)
    weights = [torch.randn(width, width, device=device, dtype=torch.bfloat16) * 0.02 for _ in range(4)]
    x = torch.randn(small(device, 2048, 8), width, device=device, dtype=torch.bfloat16)

    def step():
        y, counts = x, []
        for weight in weights:
            y = torch.nn.functional.gelu(y @ weight)
            if remedy:
                counts.append(torch.histc(y.float(), 256, -4, 4))
            else:
                counts.append(np.histogram(y.float().cpu().numpy(), 256, (-4, 4))[0])
        return counts

    return step


if __name__ == "__main__":
    main(build)
