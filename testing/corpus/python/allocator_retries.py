"""Sizes that change, blocks that may not be split, and a limit on memory: the caching allocator fails to allocate, frees what it
holds, and allocates anew.

Cause: memory is freed and allocated by the framework's retries. Remedy: one buffer of the largest size.
"""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:128"

import torch

from harness import main

LIMIT = 0.04


def build(remedy, device):
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(LIMIT)
        total = torch.cuda.get_device_properties(device).total_memory * LIMIT
    else:
        total = 1 << 12
    # No cached block serves another size, and not all of them fit at once.
    sizes = [int(total * share) // 4 for share in (0.30, 0.33, 0.36, 0.39)]
    buffer = torch.empty(max(sizes), device=device) if remedy else None

    def step():
        for size in sizes:
            x = buffer[:size] if remedy else torch.empty(size, device=device)
            x[: size // 16].fill_(1.0)
            del x

    return step


if __name__ == "__main__":
    main(build)
