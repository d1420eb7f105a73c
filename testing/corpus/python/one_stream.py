"""Eight independent scans, each on a few multiprocessors, run one after the other on one stream.

Cause: work of one stream that could run beside another. Remedy: a stream for each.
"""

import torch

from harness import main, small


def build(remedy, device):
    inputs = [torch.randn(4, small(device, 1 << 18, 64), device=device) for _ in range(8)]
    outputs = [torch.empty_like(x) for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs] if remedy and device.type == "cuda" else None

    def one():
        for x, y in zip(inputs, outputs):
            torch.cumsum(x, dim=1, out=y)

    def many():
        current = torch.cuda.current_stream()
        for stream, x, y in zip(streams, inputs, outputs):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                torch.cumsum(x, dim=1, out=y)
        for stream in streams:
            current.wait_stream(stream)

    return many if streams else one


if __name__ == "__main__":
    main(build)
