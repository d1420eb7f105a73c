"""Checks and measures the Hopper form of attention backward beside PyTorch's own kernels, in one process.

    scripts/gpu/attention_backward.py OUT            # writes OUT/backward.md and OUT/backward.json
    scripts/gpu/attention_backward.py OUT 256 128    # these head dimensions alone, into OUT/backward-256-128.md and .json

It needs a Hopper GPU and PyTorch. The kernels are those that are checked in (crates/kernels/kernels/binaries), launched through the
driver as src/attention/backward.rs does it; the forward pass before is ours too. Every output and every buffer between the
kernels is poisoned with NaN before. Errors are relative, in the Frobenius norm, against float64 on the same random inputs.
A time is that of all kernels of a backward pass (PyTorch's through autograd), by bench.py (docs/results/method.md).
"""

import ctypes as ct
import json
import math
import pathlib
import sys

import torch

import attention
import bench
import hopper_tables
from attention import (BACKENDS, BINARIES, MOST_SHARED, NOTHING, UNLIMITED, Problem, check, distance, driver, facts, random, tensor_map,
                       theirs)

TILES = {64: 128, 128: 64, 256: 64}  # queries of a block
KEYS = 128  # of a block of threads, or of a cluster of two
modules = {}


def kernel(dim, name):
    if dim not in modules:
        modules[dim] = ct.c_void_p()
        image = (BINARIES / f"attention_backward_hopper_d{dim}.fatbin").read_bytes()
        check(driver.cuModuleLoadData(ct.byref(modules[dim]), image))
    function = ct.c_void_p()
    check(driver.cuModuleGetFunction(ct.byref(function), modules[dim], name.encode()))
    return function


def ours(q, k, v, output, sums, gradient, mask="full", window=(UNLIMITED, UNLIMITED)):
    """A function that launches, and the gradients that it writes."""
    batch, heads, queries, dim = q.shape
    key_heads, keys = k.shape[1:3]
    rows = TILES[dim]
    cluster = 2 if dim == 256 else 1
    tiles = -(-queries // rows)
    nan = float("nan")
    results = [torch.full_like(x, nan) for x in (q, k, v)]
    statistics = torch.full((2, batch * heads * tiles * rows), nan, device="cuda")
    query_sums = torch.full((batch * heads * tiles * rows * dim,), nan, device="cuda")
    group = min(max((32 << 20) // (4 * queries * dim), 8), 32) if mask == "causal" else 1
    group = min(group, batch * key_heads)
    scale = 1 / math.sqrt(dim)
    stride = lambda x: (x.stride(0), x.stride(2), x.stride(1))
    problem = Problem(*stride(q), *stride(k), batch, heads, key_heads, queries, keys, dim, *window, tiles, group, scale,
                      scale * math.log2(math.e))
    maps = [tensor_map(x, height, min(dim, 128))
            for x, height in ((q, rows), (k, KEYS // cluster), (v, KEYS // cluster), (gradient, rows))]
    pointer = lambda x: ct.c_void_p(x.data_ptr())
    pack = lambda values: (ct.c_void_p * len(values))(*values)
    address = lambda x: ct.addressof(x)
    at = {name: pointer(x) for name, x in dict(q=q, k=k, v=v, output=output, sums=sums, gradient=gradient, dq=results[0],
                                              dk=results[1], dv=results[2], statistics=statistics,
                                              query_sums=query_sums).items()}
    named = lambda *names: [address(at[name]) for name in names]
    rest = [address(problem), address(NOTHING), address(NOTHING)]
    first = pack(named("output", "gradient", "sums", "statistics", "query_sums") + rest)
    second = pack([start for _, start in maps] + named("q", "k", "v", "gradient", "statistics", "query_sums", "dk", "dv")
                  + rest)
    third = pack(named("query_sums", "dq") + rest)
    kind = "bf16" if q.dtype == torch.bfloat16 else "f16"
    functions = [kernel(dim, f"attention_gradient_{part}_{kind}_d{dim}") for part in ("start", "finish")]
    main = kernel(dim, f"attention_gradient_{kind}_d{dim}_{mask}")
    shared = MOST_SHARED if dim == 256 else 1024 + 4 * KEYS * dim + rows * (4 * (2 * dim + 4) + 4 * KEYS + 4 * dim) + 256
    check(driver.cuFuncSetAttribute(main, 8, shared))
    stream = ct.c_void_p(torch.cuda.current_stream().cuda_stream)
    blocks = cluster * -(-keys // KEYS) * key_heads * batch
    starters = -(-batch * heads * tiles * rows * dim // 8 // 256)

    def launch(keep=(maps, at, problem, q, k, v, output, sums, gradient, statistics, query_sums)):
        check(driver.cuLaunchKernel(functions[0], starters, 1, 1, 256, 1, 1, 0, stream, first, None))
        check(driver.cuLaunchKernel(main, blocks, 1, 1, 384, 1, 1, shared, stream, second, None))
        check(driver.cuLaunchKernel(functions[1], tiles * heads * batch, 1, 1, 256, 1, 1, 0, stream, third, None))

    return launch, results


def forward(q, k, v, mask="full", window=(UNLIMITED, UNLIMITED)):
    launch, output, sums = attention.ours(q, k, v, mask, window)
    launch()
    return output, sums


def backward(q, k, v, gradient, backend, causal):
    """A function that computes PyTorch's gradients."""
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    output = theirs(*inputs, backend, causal)()
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)


def reference(q, k, v, gradient, mask, window):
    inputs = [x.double().requires_grad_() for x in (q, k, v)]
    output, _ = attention.reference(*inputs, mask, window)
    return torch.autograd.grad(output, inputs, gradient.double())


def errors(dims):
    """Rows of the table of errors. The shapes have no row in common with a tile's."""
    rows = []
    shapes = [(2, 4, 4, 1024, 1024), (1, 4, 2, 333, 517), (2, 6, 2, 129, 1000), (1, 2, 1, 1, 300), (1, 2, 2, 700, 130),
              (1, 3, 3, 257, 257)]
    for dim in dims:
        for dtype in (torch.bfloat16, torch.float16):
            for mask, window in (("full", (UNLIMITED,) * 2), ("causal", (UNLIMITED, 0)), ("window", (100, 30))):
                for batch, heads, key_heads, queries, keys in shapes:
                    q, gradient = (random(batch, heads, queries, dim, dtype=dtype) for _ in range(2))
                    k, v = (random(batch, key_heads, keys, dim, dtype=dtype) for _ in range(2))
                    launch, results = ours(q, k, v, *forward(q, k, v, mask, window), gradient, mask, window)
                    launch()
                    expected = reference(q, k, v, gradient, mask, window)
                    off = lambda found: [distance(*pair) for pair in zip(found, expected)]
                    row = {"dim": dim, "type": str(dtype)[6:], "mask": mask,
                           "shape": [batch, heads, key_heads, queries, keys], "ours": off(results)}
                    # PyTorch counts causal masks of unequal lengths from the first row, and knows no windows.
                    if heads == key_heads and (mask == "full" or mask == "causal" and queries == keys):
                        for name, backend in BACKENDS.items():
                            try:
                                row[name] = off(backward(q, k, v, gradient, backend, mask == "causal")())
                            except RuntimeError:
                                pass  # it has no kernel for the shape
                    row["right"] = (all(x < (1e-2 if dtype == torch.bfloat16 else 1.5e-3) for x in row["ours"])
                                    and worst(row) <= 1.2)
                    rows.append(row)
    # Scores of hundreds, whose exponentials overflow float32.
    for dim in dims:
        q, k, v, gradient = (random(1, 2, 500, dim) for _ in range(4))
        q, k = 30 * q, 4 * k
        launch, results = ours(q, k, v, *forward(q, k, v, "causal"), gradient, "causal")
        launch()
        expected = reference(q, k, v, gradient, "causal", (UNLIMITED, 0))
        peers = {name: [distance(*pair) for pair in zip(backward(q, k, v, gradient, backend, True)(), expected)]
                 for name, backend in BACKENDS.items()}
        row = {"dim": dim, "type": "bfloat16", "mask": "causal", "shape": "scores of hundreds",
               "ours": [distance(*pair) for pair in zip(results, expected)], **peers}
        row["right"] = worst(row) <= 1.2
        rows.append(row)
    # The gradients of K and V are the same bits in each run: a race would show.
    for dim in dims:
        for mask in ("full", "causal"):
            q, k, v, gradient = (random(2, 8, 1024, dim, dtype=torch.float16) for _ in range(4))
            launch, results = ours(q, k, v, *forward(q, k, v, mask), gradient, mask)
            runs = []
            for _ in range(40):
                launch()
                runs.append([x.clone() for x in results[1:]])
            same = all(torch.equal(*pair) for run in runs[1:] for pair in zip(run, runs[0]))
            rows.append({"dim": dim, "type": "float16", "mask": mask, "shape": "40 runs", "same_bits": same, "right": same})
    return rows


def worst(row):
    """Our error over that of PyTorch's better kernel, for the gradient where it is largest."""
    peers = [row[name] for name in BACKENDS if name in row]
    if not peers:
        return 0.0
    return max(mine / min(theirs) if mine else 0.0 for mine, *theirs in zip(row["ours"], *peers))


def times(dims):
    rows = []
    for dim in dims:
        for length in (512, 1024, 2048, 4096, 8192, 16384):
            q, k, v, gradient = (random(16384 // length, 2048 // dim, length, dim) for _ in range(4))
            for causal in (False, True):
                mask = "causal" if causal else "full"
                launches = {name: backward(q, k, v, gradient, backend, causal) for name, backend in BACKENDS.items()}
                launches["ours"], results = ours(q, k, v, *forward(q, k, v, mask), gradient, mask)
                measured = bench.in_turns(launches, lambda _: 3 if length > 4096 else 5)
                operations = 10 * 16384 * length * 2048 * (0.5 if causal else 1)
                row = {"dim": dim, "length": length, "causal": causal, "operations": operations,
                       "from cuDNN": max(distance(mine, its.double()) for mine, its in zip(results, launches["cuDNN"]()))}
                rows.append(row | {name: bench.as_us(its) for name, its in measured.items()})
    return rows


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    dims = [int(dim) for dim in sys.argv[2:]] or list(TILES)
    name = "-".join(["backward", *sys.argv[2:]])
    device = facts("scripts/gpu/attention_backward.py")
    checked, timed = errors(dims), times(dims)
    (out / f"{name}.json").write_text(json.dumps({"facts": device, "errors": checked, "times": timed}, indent=1) + "\n")
    lines = [f"{device['device']}; PyTorch {device['torch']}, cuDNN {device['cudnn']}.", "", hopper_tables.attention(timed),
             f"{sum(row['right'] for row in checked)} of {len(checked)} problems are right; our error is at most "
             f"{max(map(worst, checked)):.2f} times that of PyTorch's better kernel for the same gradient."]
    (out / f"{name}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    for row in checked:
        if not row["right"]:
            print("WRONG", row)
    sys.exit(not all(row["right"] for row in checked))


if __name__ == "__main__":
    main()
