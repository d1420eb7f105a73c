"""Rows of attention beside PyTorch's kernels in one process: 36 forward, 12 backward, and 10 of decoding.

    scripts/gpu/attention_table.py OUT [FOLDER]     # writes OUT/attention-table.json and prints the rows

FOLDER holds folders of variants of the forward kernels, as for attention_variants.py: they are checked as there, and timed in the rows
of their head dimensions. Kernels, inputs and peers are those of attention.py, attention_backward.py and attention_decode.py, which
check more; times are those of bench.py (docs/results/method.md). The results of each row are compared with a peer's.
"""

import json
import pathlib
import sys

import attention
import attention_backward
import attention_variants
import bench
import hopper_tables
from attention import BACKENDS, distance, random, theirs

ROWS = 16384  # of queries, in all batches
FORWARD_LENGTHS, BACKWARD_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384), (512, 4096)
DECODE = [(64, 1, 1), (64, 1, 8), (64, 8, 1), (64, 8, 8), (128, 1, 1), (128, 1, 8), (128, 8, 1), (128, 8, 8), (256, 1, 1), (256, 1, 8)]


def measured(row, launches, calls, off):
    """The row with its times, and how far our results are from a peer's."""
    times = bench.in_turns(launches, lambda name: 4 if name == "copy" else calls)
    return row | {"from a peer": off} | {name: bench.as_us(its) for name, its in times.items()}


def forward(dim, length, causal, folders):
    q, k, v = (random(ROWS // length, 2048 // dim, length, dim) for _ in range(3))
    mask = "causal" if causal else "full"
    launches = {name: theirs(q, k, v, backend, causal) for name, backend in BACKENDS.items()}
    launches["ours"], output, _ = attention.ours(q, k, v, mask)
    for folder in folders:
        if dim in attention_variants.dims(folder):
            launches[folder.name] = attention.ours(q, k, v, mask, folder=folder)[0]
    launches["ours"]()
    row = {"pass": "forward", "dim": dim, "length": length, "causal": causal}
    row["operations"] = 4 * ROWS * length * 2048 * (0.5 if causal else 1)
    return measured(row, launches, 5 if length > 2048 else 10, distance(output, launches["cuDNN"]().double()))


def backward(dim, length, causal):
    q, k, v, gradient = (random(ROWS // length, 2048 // dim, length, dim) for _ in range(4))
    mask = "causal" if causal else "full"
    launches = {name: attention_backward.backward(q, k, v, gradient, backend, causal) for name, backend in BACKENDS.items()}
    given = attention_backward.forward(q, k, v, mask)
    launches["ours"], results = attention_backward.ours(q, k, v, *given, gradient, mask)
    launches["ours"]()
    row = {"pass": "backward", "dim": dim, "length": length, "causal": causal}
    row["operations"] = 10 * ROWS * length * 2048 * (0.5 if causal else 1)
    off = max(distance(mine, its.double()) for mine, its in zip(results, launches["cuDNN"]()))
    return measured(row, launches, 5, off)


def decode(dim, group, batch):
    import attention_decode  # needs a decompressor, which the other passes do not

    keys, key_heads = 65536, 1024 // dim
    q = random(batch, group * key_heads, 1, dim)
    caches = [[random(batch, key_heads, keys, dim) for _ in range(2)] for _ in range(2)]
    mine = [attention_decode.ours(q, k, v) for k, v in caches]
    launches = {"ours": bench.rotating([launch for launch, *_ in mine])}
    for name, backend in BACKENDS.items():
        its = [theirs(q, k, v, backend, False, group > 1) for k, v in caches]
        try:
            expected = its[0]()
            launches[name] = bench.rotating(its)
        except RuntimeError:
            pass  # it has no kernel for the shape
    mine[0][0]()
    row = {"pass": "decode", "dim": dim, "group": group, "batch": batch, "keys": keys, "bytes": 4 * batch * key_heads * keys * dim}
    return measured(row, launches, 10, distance(mine[0][1], expected.double()))


def rows(folders):
    """The rows, one after another."""
    shapes = [(dim, causal) for dim in (64, 128, 256) for causal in (False, True)]
    for length in FORWARD_LENGTHS:
        for dim, causal in shapes:
            yield forward(dim, length, causal, folders)
    for length in BACKWARD_LENGTHS:
        for dim, causal in shapes:
            yield backward(dim, length, causal)
    for sizes in DECODE:
        yield decode(*sizes)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    folders = sorted(filter(pathlib.Path.is_dir, pathlib.Path(sys.argv[2]).iterdir())) if len(sys.argv) > 2 else []
    facts, checks = attention.facts("scripts/gpu/attention_table.py"), attention_variants.checked(folders)
    for name, verdict in checks.items():
        print(name, json.dumps(verdict)[:1500])
    right = [folder for folder in folders if checks[folder.name].get("wrong") == []]
    found = []
    for row in rows(right):
        found.append(row)
        print(hopper_tables.row_of_all(row), {name: bench.shown_ratio(row[hopper_tables.against_best(row)[0]]["us"], row[name]["us"])
                                               for name in (folder.name for folder in right) if name in row}, flush=True)
        results = {"facts": facts, "checks": checks, "times": found}
        (out / "attention-table.json").write_text(json.dumps(results) + "\n")
    wrong = [row for row in found if not row["from a peer"] < 1e-2]
    print(len(found), "rows,", len(wrong), "far from a peer's results")
    return bool(wrong) or len(right) != len(folders)


if __name__ == "__main__":
    sys.exit(main())
