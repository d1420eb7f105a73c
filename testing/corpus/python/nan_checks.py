"""A transformer of small layers that looks for values that are no numbers after every layer, and stops if there are some.

Cause: launch-bound; the checks, which synchronise, cost little. Remedy: a CUDA graph of the step, and a check in every 20th.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width, layers = small(device, 512, 16), 12
    blocks = [
        nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True, dropout=0.0).to(device, torch.bfloat16)
        for _ in range(layers)
    ]
    x, steps = torch.randn(small(device, 16, 2), small(device, 256, 4), width, device=device, dtype=torch.bfloat16), [0]

    def check(y):
        if torch.isnan(y).any():
            raise ArithmeticError("a layer gave NaN")

    def work(checks):
        y = x
        for block in blocks:
            y = block(y)
            if checks:
                check(y)
        y.float().square().mean().backward()
        for block in blocks:
            block.zero_grad(set_to_none=False)
        return y

    if not remedy or device.type != "cuda":
        return lambda: work(not remedy)
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            work(False)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        last = work(False)

    def replay():
        graph.replay()
        steps[0] += 1
        if steps[0] % 20 == 0:
            check(last)

    return replay


if __name__ == "__main__":
    main(build)
