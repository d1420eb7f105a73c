"""An encoder in FP32 that already calls scaled_dot_product_attention; its products may use TF32.

Cause: attention in FP32, for which there is no flash attention. Remedy: attention in half precision.
"""

import torch
from torch.nn import functional as F

from harness import main, small


def build(remedy, device):
    torch.set_float32_matmul_precision("high")
    heads, width, length = 16, 1024, small(device, 2048, 16)
    x = torch.randn(small(device, 8, 1), length, width, device=device)
    qkv, out = (torch.nn.Linear(width, n, device=device) for n in (3 * width, width))

    def step():
        with torch.no_grad():
            q, k, v = qkv(x).unflatten(-1, (3, heads, width // heads)).permute(2, 0, 3, 1, 4)
            if remedy:
                q, k, v = q.half(), k.half(), v.half()
            y = F.scaled_dot_product_attention(q, k, v).to(x.dtype)
            return out(y.transpose(1, 2).flatten(2))

    return step


if __name__ == "__main__":
    main(build)
