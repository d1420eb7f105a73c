"""Checks and measures the Hopper form of attention beside PyTorch's own kernels, in one process.

    scripts/gpu/attention.py OUT     # writes OUT/attention.md and OUT/attention.json

It needs a Hopper GPU and PyTorch. The kernels are those that are checked in (crates/kernels/kernels/binaries), launched through the
driver as src/attention/hopper.rs does it. Every output is poisoned with NaN before. Errors are relative, in the Frobenius
norm, against float64 on the same random inputs. Times are those of bench.py (docs/results/method.md); the outputs of the sizes that
are timed are compared with cuDNN's.

    VARIANT=FOLDER scripts/gpu/attention.py OUT     # the kernels of FOLDER too, which must compute the same bits

FOLDER holds what scripts/kernels.sh makes of other sources, for some head dimensions or all, with tiles of the same sizes.

    LENGTHS=512,1024 scripts/gpu/attention.py OUT   # times of these lengths only
"""

import ctypes as ct
import json
import math
import os
import pathlib
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import bench
import hopper_tables

BINARIES = pathlib.Path(__file__).resolve().parents[2] / "crates/kernels/kernels/binaries"
TILES = {64: (192, 128), 128: (128, 128), 256: (128, 80)}  # queries, keys
QUERY_STAGES = {64: 2, 128: 2, 256: 1}
WARPGROUP_QUERIES = 64
VARIANT = pathlib.Path(os.environ["VARIANT"]) if "VARIANT" in os.environ else None
MOST_SHARED = 227 * 1024
LENGTHS = [int(length) for length in os.environ.get("LENGTHS", "512,1024,2048,4096,8192,16384").split(",")]
UNLIMITED = (1 << 30) - 1
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FA-2": SDPBackend.FLASH_ATTENTION}

torch.zeros(1, device="cuda")
driver = ct.CDLL("libcuda.so.1")
modules = {}
counters = torch.zeros(2, dtype=torch.int32, device="cuda")
NOTHING = ct.c_void_p()  # in place of what packed sequences have


class Problem(ct.Structure):
    _fields_ = [(name, ct.c_longlong) for name in ("qb", "qr", "qh", "kb", "kr", "kh")] + [
        (name, ct.c_int)
        for name in ("batch", "heads", "key_heads", "queries", "keys", "dim", "left", "right", "tiles", "group")
    ] + [("scale", ct.c_float), ("scale_log2", ct.c_float)]


def check(code):
    if code:
        raise RuntimeError(f"the driver returned {code}")


def load_ptx(name):
    """A module of the compressed PTX that is checked in."""
    with (BINARIES / f"{name}.ptx.zst").open("rb") as compressed:
        decompress = [BINARIES.parents[3] / "scripts/zstd", "decompress"]
        ptx = subprocess.run(decompress, stdin=compressed, stdout=subprocess.PIPE, check=True).stdout
    module = ct.c_void_p()
    check(driver.cuModuleLoadData(ct.byref(module), ptx + b"\0"))
    return module


def image(folder, dim):
    return folder / f"attention_hopper_d{dim}.fatbin"


def kernel(kind, dim, mask, folder):
    path = image(folder, dim)
    if path not in modules:
        modules[path] = ct.c_void_p()
        check(driver.cuModuleLoadData(ct.byref(modules[path]), path.read_bytes()))
    function = ct.c_void_p()
    name = f"attention_hopper_{kind}_d{dim}_{mask}".encode()
    check(driver.cuModuleGetFunction(ct.byref(function), modules[path], name))
    return function


def tensor_map(x, rows, columns=None):
    """A map that copies tiles of so many rows of a head, and of all columns or so many."""
    batch, heads, length, dim = x.shape
    memory = (ct.c_byte * 192)()
    start = (ct.addressof(memory) + 63) // 64 * 64
    sizes = (ct.c_uint64 * 5)(64, length, dim // 64, heads, batch)
    strides = (ct.c_uint64 * 4)(x.stride(2) * 2, 128, x.stride(1) * 2, x.stride(0) * 2)
    box, every = (ct.c_uint32 * 5)(64, rows, (columns or dim) // 64, 1, 1), (ct.c_uint32 * 5)(*[1] * 5)
    kind = 9 if x.dtype == torch.bfloat16 else 6
    check(driver.cuTensorMapEncodeTiled(ct.c_void_p(start), kind, 5, ct.c_void_p(x.data_ptr()), sizes, strides, box, every,
                                        0, 3, 3, 0))
    return memory, start


def ours(q, k, v, mask="full", window=(UNLIMITED, UNLIMITED), group=None, folder=BINARIES):
    """A function that launches, and the outputs that it writes."""
    batch, heads, queries, dim = q.shape
    key_heads, keys = k.shape[1:3]
    rows, block = TILES[dim]
    output = torch.full_like(q, float("nan"))
    sums = torch.full((batch, heads, queries), float("nan"), device="cuda")
    tiles = -(-queries // rows)
    group = group or min(max((32 << 20) // (4 * keys * dim), 8), 32) * (heads // key_heads) if mask == "causal" else 1
    scale = 1 / math.sqrt(dim)
    stride = lambda x: (x.stride(0), x.stride(2), x.stride(1))
    problem = Problem(*stride(q), *stride(k), batch, heads, key_heads, queries, keys, dim, *window, tiles, group, scale,
                      scale * math.log2(math.e))
    maps = [tensor_map(q, WARPGROUP_QUERIES), tensor_map(k, block), tensor_map(v, block)]
    pointers = [ct.c_void_p(x.data_ptr()) for x in (q, k, v, output, sums, counters)]
    addresses = [start for _, start in maps] + [ct.addressof(x) for x in pointers + [problem, NOTHING]]
    arguments = (ct.c_void_p * len(addresses))(*addresses)
    function = kernel("bf16" if q.dtype == torch.bfloat16 else "f16", dim, mask, folder)
    shared = 1024 + 2 * dim * (QUERY_STAGES[dim] * rows + 4 * block) + 512 if folder == BINARIES else MOST_SHARED
    check(driver.cuFuncSetAttribute(function, 8, shared))
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    grid, threads = min(multiprocessors, tiles * heads * batch), 128 * (rows // 64 + 1)
    stream = ct.c_void_p(torch.cuda.current_stream().cuda_stream)

    def launch(keep=(maps, pointers, problem, q, k, v)):
        check(driver.cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, shared, stream, arguments, None))

    return launch, output, sums


def has_variant(dim):
    return VARIANT is not None and image(VARIANT, dim).exists()


def theirs(q, k, v, backend, causal, grouped=False):
    def launch():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    return launch


def reference(q, k, v, mask, window):
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1).double() for x in (k, v))
    queries, keys = q.shape[2], k.shape[2]
    place = torch.arange(queries, device="cuda")[:, None] + keys - queries
    key = torch.arange(keys, device="cuda")[None]
    hidden = (key > place + (0 if mask == "causal" else window[1])) | (key < place - window[0])
    scores = (q.double() @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(hidden, -math.inf)
    return torch.softmax(scores, 3).nan_to_num() @ v, torch.logsumexp(scores, 3)


def distance(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype)


def errors():
    """Rows of the table of errors. The shapes have no row in common with a tile's."""
    rows = []
    shapes = [(2, 4, 4, 1024, 1024), (1, 4, 2, 333, 517), (2, 6, 2, 129, 1000), (1, 2, 1, 1, 300), (1, 2, 2, 700, 130)]
    for dim in (64, 128, 256):
        for dtype in (torch.bfloat16, torch.float16):
            for mask, window in (("full", (UNLIMITED,) * 2), ("causal", (UNLIMITED, 0)), ("window", (100, 30))):
                for batch, heads, key_heads, queries, keys in shapes:
                    q = random(batch, heads, queries, dim, dtype=dtype)
                    k, v = (random(batch, key_heads, keys, dim, dtype=dtype) for _ in range(2))
                    launch, output, sums = ours(q, k, v, mask, window)
                    launch()
                    expected, logs = reference(q, k, v, mask, window)
                    seen = logs > -math.inf
                    row = {"dim": dim, "type": str(dtype)[6:], "mask": mask,
                           "shape": [batch, heads, key_heads, queries, keys], "ours": distance(output, expected),
                           "log_sum_exp": float((sums.double() - logs)[seen].abs().max()),
                           "unseen_rows_right": bool((torch.isneginf(sums) == ~seen).all())}
                    # PyTorch counts causal masks of unequal lengths from the first row, and knows no windows.
                    if heads == key_heads and (mask == "full" or mask == "causal" and queries == keys):
                        for name, backend in BACKENDS.items():
                            try:
                                row[name] = distance(theirs(q, k, v, backend, mask == "causal")(), expected)
                            except RuntimeError:
                                pass  # it has no kernel for the shape
                    peers = [row[name] for name in BACKENDS if name in row]
                    row["right"] = (row["ours"] < (5e-3 if dtype == torch.bfloat16 else 8e-4)
                                    and row["log_sum_exp"] < 1e-4 and row["unseen_rows_right"]
                                    and all(row["ours"] <= 1.2 * peer for peer in peers))
                    if has_variant(dim):
                        launch, *same = ours(q, k, v, mask, window, folder=VARIANT)
                        launch()
                        row["right"] &= all(map(torch.equal, same, (output, sums)))
                    rows.append(row)
    # Scores of thousands, whose exponentials overflow float32.
    for dim in (64, 128, 256):
        q, k, v = (100 * random(1, 2, 500, dim) for _ in range(3))
        launch, output, _ = ours(q, k, v, "causal")
        launch()
        off = distance(output, reference(q, k, v, "causal", (UNLIMITED, 0))[0])
        rows.append({"dim": dim, "type": "bfloat16", "mask": "causal", "shape": "scores of thousands", "ours": off,
                     "right": off < 5e-3})
    return rows


def times():
    rows = []
    for dim in (64, 128, 256):
        for length in LENGTHS:
            q, k, v = (random(16384 // length, 2048 // dim, length, dim) for _ in range(3))
            for causal in (False, True):
                launches = {name: theirs(q, k, v, backend, causal) for name, backend in BACKENDS.items()}
                launches["ours"], output, _ = ours(q, k, v, "causal" if causal else "full")
                if has_variant(dim):
                    launches["variant"] = ours(q, k, v, "causal" if causal else "full", folder=VARIANT)[0]
                if length == 2048:
                    launches["math"] = theirs(q, k, v, SDPBackend.MATH, causal)
                measured = bench.in_turns(launches, lambda name: 2 if name == "math" else 5 if length > 4096 else 10)
                operations = 4 * 16384 * length * 2048 * (0.5 if causal else 1)
                row = {"dim": dim, "length": length, "causal": causal, "operations": operations,
                       "from cuDNN": distance(output, launches["cuDNN"]().double())}
                rows.append(row | {name: bench.as_us(its) for name, its in measured.items()})
    return rows


def facts(command):
    query = "name,driver_version,clocks.max.sm,power.limit"
    machine = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True)
    return {"device": machine.stdout.strip(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
            "command": command}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    device = facts("scripts/gpu/attention.py")
    checked, timed = errors(), times()
    (out / "attention.json").write_text(json.dumps({"facts": device, "errors": checked, "times": timed}, indent=1) + "\n")
    worst = max(row["ours"] / min(row[name] for name in BACKENDS if name in row)
                for row in checked if any(name in row for name in BACKENDS))
    lines = [f"{device['device']}; PyTorch {device['torch']}, cuDNN {device['cudnn']}.", "", hopper_tables.attention(timed),
             hopper_tables.unfused(timed), hopper_tables.variants(timed),
             f"{sum(row['right'] for row in checked)} of {len(checked)} problems are right; our error is at most "
             f"{worst:.2f} times the smaller one of PyTorch's kernels."]
    (out / "attention.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    for row in checked:
        if not row["right"]:
            print("WRONG", row)
    sys.exit(not all(row["right"] for row in checked))


if __name__ == "__main__":
    main()
