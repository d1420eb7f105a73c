"""Checks and times variants of the Hopper form of attention beside the checked-in kernels and cuDNN, in one process.

    scripts/gpu/attention_variants.py FOLDER OUT     # writes OUT/attention-variants.json and prints a table

Each folder in FOLDER is a variant: what scripts/kernels.sh makes of another source, for some head dimensions or all, with tiles
of the same sizes. A variant is checked first, in a process of its own with a time limit, so that one that waits forever costs
nothing but its own times: every output is poisoned, must be within the type's error of float64, must be the same bits in a second
launch, and is compared with the bits of the checked-in kernels. Only those that pass are timed, by the rules of docs/results/method.md.

    LENGTHS=512,1024 scripts/gpu/attention_variants.py FOLDER OUT   # times of these lengths only
"""

import json
import pathlib
import subprocess
import sys

import attention
import bench
import torch
from attention import UNLIMITED, random
from hopper_tables import mask as mask_name

# batch, heads, heads of keys, queries, keys
SHAPES = [(2, 4, 4, 1024, 1024), (2, 2, 2, 512, 512), (1, 4, 2, 333, 517), (2, 6, 2, 129, 1000), (1, 2, 1, 1, 300),
          (1, 2, 2, 700, 130), (3, 2, 2, 64, 64), (1, 2, 1, 65, 65), (1, 2, 2, 200, 200)]
MASKS = [("full", (UNLIMITED,) * 2), ("causal", (UNLIMITED, 0)), ("window", (100, 30)), ("window", (10, 0))]
DIMS = (64, 128, 256)
CHECK_SECONDS = 60


def dims(folder):
    return [dim for dim in DIMS if attention.image(folder, dim).exists()]


def launched(*arguments, **options):
    launch, *outputs = attention.ours(*arguments, **options)
    launch()
    return outputs


def check(folder):
    """How many problems are right, and how many of them have the bits of the checked-in kernels."""
    wrong, same, count = [], 0, 0
    for dim in dims(folder):
        for dtype in (torch.bfloat16, torch.float16):
            for mask, window in MASKS:
                for batch, heads, key_heads, queries, keys in SHAPES:
                    q = random(batch, heads, queries, dim, dtype=dtype)
                    k, v = (random(batch, key_heads, keys, dim, dtype=dtype) for _ in range(2))
                    output, sums = launched(q, k, v, mask, window, folder=folder)
                    again = launched(q, k, v, mask, window, folder=folder)
                    checked_in = launched(q, k, v, mask, window)
                    expected, logs = attention.reference(q, k, v, mask, window)
                    seen = logs > -torch.inf
                    off, off_sums = attention.distance(output, expected), float((sums.double() - logs)[seen].abs().max())
                    right = (off < (5e-3 if dtype == torch.bfloat16 else 8e-4) and off_sums < 1e-4
                             and bool((torch.isneginf(sums) == ~seen).all()) and all(map(torch.equal, again, (output, sums))))
                    if not right:
                        wrong.append([dim, str(dtype), mask, window, batch, heads, key_heads, queries, keys, off, off_sums])
                    same += all(map(torch.equal, checked_in, (output, sums)))
                    count += 1
    return {"problems": count, "wrong": wrong, "same bits": same}


def checked(folders):
    """What `check` says of each, or why there is no answer."""
    running = {folder: subprocess.Popen([sys.executable, __file__, "--check", folder], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True) for folder in folders}
    verdicts = {}
    for folder, process in running.items():
        try:
            said, errors = process.communicate(timeout=CHECK_SECONDS)
            verdicts[folder.name] = json.loads(said) if process.returncode == 0 else {"failed": errors[-2000:]}
        except subprocess.TimeoutExpired:
            process.kill()
            verdicts[folder.name] = {"failed": f"no end within {CHECK_SECONDS} s"}
    return verdicts


def times(folders):
    """Yields the times of each length, head dimension and mask."""
    for length in attention.LENGTHS:
        for dim in DIMS:
            q, k, v = (random(16384 // length, 2048 // dim, length, dim) for _ in range(3))
            for causal in (False, True):
                mask = "causal" if causal else "full"
                launches = {"cuDNN": attention.theirs(q, k, v, attention.BACKENDS["cuDNN"], causal),
                            "ours": attention.ours(q, k, v, mask)[0]}
                for folder in folders:
                    if dim in dims(folder):
                        launches[folder.name] = attention.ours(q, k, v, mask, folder=folder)[0]
                measured = bench.in_turns(launches, lambda name: 5 if length > 4096 else 10)
                operations = 4 * 16384 * length * 2048 * (0.5 if causal else 1)
                row = {"dim": dim, "length": length, "causal": causal, "operations": operations}
                yield row | {name: bench.as_us(its) for name, its in measured.items()}


def line(row, names):
    theirs = row["cuDNN"]["us"]
    ratios = " ".join(f"{bench.shown_ratio(theirs, row[name]['us']):>17}" if name in row else 17 * " " for name in names)
    return f"{row['dim']:>4} {row['length']:>6} {mask_name(row):>6} {row['operations'] / bench.median(theirs) / 1e6:>5.0f} {ratios}"


def main():
    if sys.argv[1] == "--check":
        print(json.dumps(check(pathlib.Path(sys.argv[2]))))
        return 0
    folders, out = sorted(filter(pathlib.Path.is_dir, pathlib.Path(sys.argv[1]).iterdir())), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    verdicts = checked(folders)
    for name, verdict in verdicts.items():
        print(name, json.dumps(verdict)[:1500])
    right = [folder for folder in folders if verdicts[folder.name].get("wrong") == []]
    names, rows = ["ours", *(folder.name for folder in right)], []
    facts = attention.facts("scripts/gpu/attention_variants.py")
    print("cuDNN in TFLOP/s, then cuDNN's time over that of:", *names, flush=True)
    for row in times(right):
        rows.append(row)
        print(line(row, names), flush=True)
        results = {"facts": facts, "checks": verdicts, "times": rows}
        (out / "attention-variants.json").write_text(json.dumps(results) + "\n")
    return len(right) != len(folders)


if __name__ == "__main__":
    sys.exit(main())
