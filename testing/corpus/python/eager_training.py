"""A training step of a small transformer: forward, backward and optimizer launch a thousand kernels of a few microseconds.

Cause: launch-bound. Remedy: the whole step is captured into a CUDA graph.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 256, 32)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda", capturable=device.type == "cuda")
    x = torch.randn(8, 64, width, device=device)

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()

    if not remedy or device.type == "cpu":
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


if __name__ == "__main__":
    main(build)
