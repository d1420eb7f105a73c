"""The shapes of docs/results/fpga.md on a GPU: attention of one head (FP16) and INT8 matrix products, at batch 1 and saturated.

Run on a machine with an NVIDIA GPU and PyTorch; takes under a minute:
    python3 scripts/gpu/fpga.py > data/h200/fpga/gpu.json

Per shape, microseconds:
  eager      from the call of PyTorch's function until the device has finished: launch and synchronisation included
  graph      the same for the replay of a captured CUDA graph, the shortest launch that PyTorch has
  transfer   as graph, with the inputs copied from pinned host memory and the result copied back
  saturated  time on the GPU of one problem when `problems` of them run in one call (`bench.in_turns`: behind a delay)
PyTorch has no fused attention for INT8 inputs, so attention is FP16; `error` is against float64 on the host.
"""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as functional

import bench

DIMENSION = 64
LENGTHS = (64, 256, 1024, 4096)
CALLS, WARM = 300, 30
# Queries of all problems of a saturated call: enough for several waves on 132 multiprocessors.
SATURATED_ROWS = 1 << 18


def latency(call, calls=CALLS):
    """Microseconds from call to completion: median, 10% and 90% quantiles of single calls on an idle device."""
    for _ in range(WARM):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - began))
    tenths = statistics.quantiles(times, n=10)
    return {"median": round(statistics.median(times), 2), "p10": round(tenths[0], 2), "p90": round(tenths[-1], 2)}


def captured(call):
    """A function that replays `call` as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def with_transfer(inputs, compute):
    """A function that copies `inputs` to the device, computes and copies the result back, to be captured."""
    on_host = [value.cpu().pin_memory() for value in inputs]
    result = compute(*inputs)
    back = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)

    def call():
        for device, host in zip(inputs, on_host):
            device.copy_(host, non_blocking=True)
        back.copy_(compute(*inputs), non_blocking=True)

    return call


def saturated(call, problems):
    """Microseconds of one of the problems of a call, by the median of the rounds, and the rounds themselves."""
    rounds = bench.as_us(bench.in_turns({"it": call}, lambda name: 3)["it"])
    return {"problems": problems, "us": round(statistics.median(rounds["us"]) / problems, 4), "rounds": rounds}


def row(inputs, compute, many_inputs, problems, **what):
    single = lambda: compute(*inputs)
    many = lambda: compute(*many_inputs)
    return {
        **what,
        "eager": latency(single),
        "graph": latency(captured(single)),
        "transfer": latency(captured(with_transfer(inputs, compute))),
        "saturated": saturated(many, problems),
    }


def attention(length, causal):
    torch.manual_seed(length)
    draw = lambda heads: [torch.randn(1, heads, length, DIMENSION, device="cuda").half() for _ in range(3)]
    compute = lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    inputs, problems = draw(1), SATURATED_ROWS // length
    exact = compute(*(value.cpu().double() for value in inputs))
    difference = compute(*inputs).cpu().double() - exact
    error = (difference.square().mean() / exact.square().mean()).sqrt().item()
    return row(inputs, compute, draw(problems), problems, kind="attention", dtype="fp16", length=length,
               dimension=DIMENSION, causal=causal, error=error)


def product(size):
    """INT8 by `torch._int_mm`, which has no batch: the saturated call is one product with as many rows as the problems have."""
    torch.manual_seed(size)
    draw = lambda rows: torch.randint(-128, 128, (rows, size), dtype=torch.int8, device="cuda")
    problems = max(1, SATURATED_ROWS // size)
    right = draw(size).t()
    inputs = [draw(size), right]
    exact = inputs[0].cpu().long() @ right.cpu().long()
    assert torch.equal(torch._int_mm(*inputs).cpu().long(), exact), "INT8 products are exact"
    return row(inputs, torch._int_mm, [draw(problems * size), right], problems, kind="product", dtype="int8", size=size)


def main():
    properties = torch.cuda.get_device_properties(0)
    rows = [attention(length, causal) for length in LENGTHS for causal in (False, True)]
    rows += [product(size) for size in (64, 256, 1024)]
    json.dump({"gpu": properties.name, "torch": torch.__version__, "cuda": torch.version.cuda,
               "date": time.strftime("%Y-%m-%d"), "command": "python3 scripts/gpu/fpga.py", "rows": rows},
              sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
