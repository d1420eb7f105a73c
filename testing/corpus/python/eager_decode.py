"""Text generation, one token at a time, batch 1: each layer launches kernels that are shorter than their launch calls.

Cause: launch-bound. Remedy: the step is captured into a CUDA graph.
"""

import torch
import torch.nn.functional as F

from harness import main, small


def build(remedy, device):
    layers, width, length = small(device, 16, 2), small(device, 512, 64), 128
    shape = lambda *s: torch.randn(*s, device=device, dtype=torch.bfloat16) * 0.02
    weights = [[shape(3 * width, width), shape(width, width), shape(4 * width, width), shape(width, 4 * width)] for _ in range(layers)]
    keys = [shape(1, 8, length, width // 8) for _ in range(layers)]
    token = shape(1, 1, width)

    def decode():
        x = token
        for (qkv, out, up, down), cache in zip(weights, keys):
            q, k, v = F.linear(F.layer_norm(x, (width,)), qkv).chunk(3, dim=-1)
            q = q.view(1, 1, 8, -1).transpose(1, 2)
            k = torch.cat([cache[:, :, 1:], k.view(1, 1, 8, -1).transpose(1, 2)], dim=2)
            x = x + F.linear(F.scaled_dot_product_attention(q, k, k).reshape(1, 1, width) + v, out)
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (width,)), up)), down)
        return x

    if not remedy or device.type == "cpu":
        return torch.no_grad()(decode)
    with torch.no_grad():
        for _ in range(3):
            decode()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            decode()
    return graph.replay


if __name__ == "__main__":
    main(build)
