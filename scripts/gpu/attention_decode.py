"""Checks and measures decode attention beside PyTorch's own kernels and a copy, in one process.

    scripts/gpu/attention_decode.py OUT     # writes OUT/decode.md and OUT/decode.json

It needs a GPU and PyTorch. The kernels are those that are checked in (crates/kernels/kernels/binaries), launched through the driver
as src/attention/decode.rs does it. Every output is poisoned with NaN before. Errors are relative, in the Frobenius norm,
against float64 on the same random inputs. A time is that of both kernels, by bench.py (docs/results/method.md); launches take
two caches of keys and values in turn, each larger than the L2. The copy's bandwidth counts the bytes read and those written.
"""

import ctypes as ct
import json
import math
import pathlib
import sys

import torch

import bench
import hopper_tables
from attention import BACKENDS, UNLIMITED, Problem, check, distance, driver, facts, load_ptx, random, reference, theirs

ROWS, WARPS, FEWEST_KEYS = 8, 4, 256
STAGES = {64: 4, 128: 2, 256: 1}
MASKS = {"full": 0, "causal": 1, "window": 2}
module = load_ptx("attention_decode")


def kernel(name):
    function = ct.c_void_p()
    check(driver.cuModuleGetFunction(ct.byref(function), module, name.encode()))
    return function


def ours(q, k, v, mask="full", window=(UNLIMITED, UNLIMITED)):
    """A function that launches, the outputs that it writes, and the number of chunks."""
    batch, heads, queries, dim = q.shape
    key_heads, keys = k.shape[1:3]
    output = torch.full_like(q, float("nan"))
    sums = torch.full((batch, heads, queries), float("nan"), device="cuda")
    units = batch * key_heads * -(-(heads // key_heads * queries) // ROWS)
    name = "bf16" if q.dtype == torch.bfloat16 else "f16"
    decode, merge = (kernel(f"attention_{kind}_{name}_d{dim}") for kind in ("decode", "merge"))
    shared, threads = WARPS * STAGES[dim] * 64 * dim, 32 * WARPS
    check(driver.cuFuncSetAttribute(decode, 8, shared))
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    chunks = max(min(multiprocessors // units, -(-keys // FEWEST_KEYS)), 1)
    partial = torch.full((units * chunks * ROWS * (dim + 2),), float("nan"), device="cuda")
    scale = 1 / math.sqrt(dim)
    stride = lambda x: (x.stride(0), x.stride(2), x.stride(1))
    problem = Problem(*stride(q), *stride(k), batch, heads, key_heads, queries, keys, dim, *window, 0, 0, scale,
                      scale * math.log2(math.e))
    pointers = [ct.c_void_p(x.data_ptr()) for x in (q, k, v, partial)]
    pointers.append(ct.c_void_p(partial.data_ptr() + 4 * units * chunks * ROWS * dim))
    results = [ct.c_void_p(x.data_ptr()) for x in (output, sums)]
    numbers = [problem, ct.c_int(MASKS[mask]), ct.c_int(chunks)]
    pack = lambda arguments: (ct.c_void_p * len(arguments))(*[ct.addressof(x) for x in arguments])
    first, second = pack(pointers + numbers), pack(pointers[3:] + results + [numbers[0], numbers[2]])
    stream = ct.c_void_p(torch.cuda.current_stream().cuda_stream)

    def launch(keep=(pointers, results, numbers, partial, q, k, v)):
        check(driver.cuLaunchKernel(decode, units * chunks, 1, 1, threads, 1, 1, shared, stream, first, None))
        check(driver.cuLaunchKernel(merge, batch * heads * queries, 1, 1, 128, 1, 1, 0, stream, second, None))

    return launch, output, sums, chunks


def errors():
    rows = []
    shapes = [(1, 8, 1, 1, 5000), (2, 8, 2, 1, 1000), (1, 4, 4, 1, 3001), (3, 6, 2, 2, 517), (1, 4, 1, 5, 2049),
              (1, 8, 1, 1, 1), (1, 2, 1, 3, 2), (2, 4, 4, 1, 17), (1, 32, 1, 3, 700)]
    for dim in (64, 128, 256):
        for dtype in (torch.bfloat16, torch.float16):
            for mask, window in (("full", (UNLIMITED,) * 2), ("causal", (UNLIMITED, 0)), ("window", (100, 30))):
                for batch, heads, key_heads, queries, keys in shapes:
                    q = random(batch, heads, queries, dim, dtype=dtype)
                    k, v = (random(batch, key_heads, keys, dim, dtype=dtype) for _ in range(2))
                    launch, output, sums, chunks = ours(q, k, v, mask, window)
                    launch()
                    expected, logs = reference(q, k, v, mask, window)
                    seen = logs > -math.inf
                    row = {"dim": dim, "type": str(dtype)[6:], "mask": mask,
                           "shape": [batch, heads, key_heads, queries, keys], "chunks": chunks,
                           "ours": distance(output, expected),
                           "log_sum_exp": float((sums.double() - logs)[seen].abs().max()),
                           "unseen_rows_right": bool((torch.isneginf(sums) == ~seen).all())}
                    if mask == "full":
                        group = heads // key_heads
                        many = [x.repeat_interleave(group, 1) for x in (k, v)]
                        for name, backend in BACKENDS.items():
                            try:
                                row[name] = distance(theirs(q, *many, backend, False)(), expected)
                            except RuntimeError:
                                pass  # it has no kernel for the shape
                    peers = [row[name] for name in BACKENDS if name in row]
                    row["right"] = (row["ours"] < (5e-3 if dtype == torch.bfloat16 else 8e-4)
                                    and row["log_sum_exp"] < 1e-4 and row["unseen_rows_right"]
                                    and all(row["ours"] <= 1.2 * peer for peer in peers))
                    rows.append(row)
    return rows


def copy_of(gigabytes=2):
    """A function that copies, and the bytes that it moves."""
    source = torch.empty(gigabytes << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return (lambda: target.copy_(source)), 2 * source.numel()


def times():
    rows = []
    keys = 65536
    for dim in (64, 128, 256):
        for group in (1, 4, 8):
            for batch in (1, 8):
                key_heads = 1024 // dim
                q = random(batch, group * key_heads, 1, dim)
                size = 4 * batch * key_heads * keys * dim
                caches = [[random(batch, key_heads, keys, dim) for _ in range(2)] for _ in range(2)]
                mine = [ours(q, k, v) for k, v in caches]
                turns = {"ours": bench.rotating([launch for launch, *_ in mine])}
                for name, backend in BACKENDS.items():
                    their = [theirs(q, k, v, backend, False, group > 1) for k, v in caches]
                    try:
                        expected = their[0]()
                        turns[name] = bench.rotating(their)
                    except RuntimeError:
                        pass  # it has no kernel for the shape
                turns["copy"], moved = copy_of()
                measured = bench.in_turns(turns, lambda name: 4 if name == "copy" else 10)
                row = {"dim": dim, "group": group, "batch": batch, "key_heads": key_heads, "keys": keys, "bytes": size,
                       "copied": moved, "from a peer": distance(mine[0][1], expected.double())}
                rows.append(row | {name: bench.as_us(its) for name, its in measured.items()})
                del turns, caches, mine, their
    return rows


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    device = facts("scripts/gpu/attention_decode.py")
    checked, timed = errors(), times()
    (out / "decode.json").write_text(json.dumps({"facts": device, "errors": checked, "times": timed}, indent=1) + "\n")
    # With a single key nobody errs.
    worst = max(row["ours"] / min(row[name] for name in BACKENDS if name in row)
                for row in checked if any(name in row for name in BACKENDS) and row["shape"][4] > 1)
    lines = [f"{device['device']}; PyTorch {device['torch']}, cuDNN {device['cudnn']}.", "", hopper_tables.decode(timed),
             f"{sum(row['right'] for row in checked)} of {len(checked)} problems are right; our error is at most "
             f"{worst:.2f} times the smaller one of PyTorch's kernels."]
    (out / "decode.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    for row in checked:
        if not row["right"]:
            print("WRONG", row)
    sys.exit(not all(row["right"] for row in checked))


if __name__ == "__main__":
    main()
