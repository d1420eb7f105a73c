"""Decoding with a cache of keys and values that grows by torch.cat with each token.

Cause: the length of the cache changes in every iteration, and cuDNN's attention compiles code for each. Remedy: a kernel of
attention that takes any length, and one buffer that holds all tokens, written in place.
"""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness import main, small


def build(remedy, device):
    batch, heads, width, layers = small(device, 16, 1), small(device, 16, 2), small(device, 128, 8), 8
    prompt, most = small(device, 4096, 8), small(device, 256, 4)
    kind = {"device": device, "dtype": torch.bfloat16}
    full = [torch.randn(2, batch, heads, prompt + most, width, **kind) for _ in range(layers)]
    weights = [torch.randn(3, heads * width, heads * width, **kind) / (heads * width) ** 0.5 for _ in range(layers)]
    state = {"position": prompt, "caches": [cache[:, :, :, :prompt].contiguous() for cache in full]}

    def step():
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]) if remedy else nullcontext():
            return token()

    def token():
        if state["position"] == prompt + most:
            state["position"] = prompt
            state["caches"] = [cache[:, :, :, :prompt].contiguous() for cache in full] if not remedy else []
        at = state["position"]
        x = torch.randn(batch, heads * width, **kind)
        for layer, weight in enumerate(weights):
            q, k, v = ((x @ w).view(batch, heads, 1, width) for w in weight)
            if remedy:
                full[layer][0, :, :, at : at + 1], full[layer][1, :, :, at : at + 1] = k, v
                keys, values = full[layer][0, :, :, : at + 1], full[layer][1, :, :, : at + 1]
            else:
                cache = torch.cat([state["caches"][layer], torch.stack([k, v])], dim=3)
                state["caches"][layer] = cache
                keys, values = cache
            x = x + F.scaled_dot_product_attention(q, keys, values).view(batch, -1)
        state["position"] = at + 1
        return x

    return step


if __name__ == "__main__":
    main(build)
