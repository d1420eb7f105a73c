"""Each step copies its input from pageable memory, and computes after that.

Cause: host-to-device copies on the critical path. Remedy: pinned memory, and the next input is copied on a stream of its own.
"""

import torch

from harness import main, small


def build(remedy, device):
    n = small(device, 4096, 32)
    weight = torch.randn(n, n, device=device)
    host = torch.randn(n, n)
    if not remedy or device.type == "cpu":

        def step():
            torch.relu(host.to(device)).mul_(weight)

        return step
    host = host.pin_memory()
    copying, current = torch.cuda.Stream(), torch.cuda.current_stream()
    buffers = [torch.empty(n, n, device=device) for _ in range(2)]
    free = [torch.cuda.Event() for _ in range(2)]
    state = {"next": 0}

    def prefetch():
        which = state["next"]
        copying.wait_event(free[which])
        with torch.cuda.stream(copying):
            buffers[which].copy_(host, non_blocking=True)

    def prefetched():
        which = state["next"]
        current.wait_stream(copying)
        state["next"] = 1 - which
        prefetch()
        torch.relu(buffers[which]).mul_(weight)
        free[which].record(current)

    prefetch()
    return prefetched


if __name__ == "__main__":
    main(build)
