"""Writes `python/apex_cuda/_measured.py`, by which `apex_cuda.patch` decides, from the committed measurements.

    patch_table.py > python/apex_cuda/_measured.py

It needs no GPU. A test compares the file with the output of this script (python/tests/test_measured.py).
"""

from pathlib import Path

from bench import fastest, median
from figures import read_results

DATA = Path(__file__).resolve().parents[2] / "data" / "h200"
HEAD = '''"""Times of kernels and of PyTorch's functions on one device, which `patch` decides by.

Generated from data/h200 by scripts/gpu/patch_table.py; docs/results has the measurements.
"""

from typing import Optional

DEVICE = "NVIDIA H200"
"""The device that everything here was measured on, in bfloat16."""
'''
PEERS = ("FA-2", "cuDNN")
HOST = {"attention": "attention", "rms_norm": "rms_norm", "softmax": "rms_norm"}


def attention():
    """By head dimension and mask: length, µs forward, of the fastest peer, µs backward, of the fastest peer."""
    backward = {key(row): row for row in read_results(DATA / "attention/backward.json.xz")["times"]}
    rows = {}
    forward = [row for row in read_results(DATA / "attention/attention-table.json.xz")["times"] if row["pass"] == "forward"]
    for row in forward:
        times = [value for one in (row, backward[key(row)]) for value in pair(one)]
        rows.setdefault((row["dim"], row["causal"]), []).append((row["length"], *times))
    return rows


def key(row):
    return row["dim"], row["causal"], row["length"]


def pair(row):
    """The median of ours, and of the fastest peer."""
    times = {name: row[name]["us"] for name in (*PEERS, "ours") if name in row}
    return round(median(times["ours"]), 1), round(median(times[fastest(times, PEERS)]), 1)


def rows_of(form):
    """By length: µs of ours and of PyTorch's function; None where the gradients were not measured."""
    gradients = {case["length"]: case["us"] for case in read_results(DATA / "fusion/peers-gradients.json.xz")["cases"] if case["form"] == f"{form}, gradients"}
    cases = [case for case in read_results(DATA / "fusion/peers.json.xz")["cases"] if case["form"] == form]
    both = lambda us: (round(median(us["rule"]), 1), round(median(us["eager"]), 1)) if us else (None, None)
    return sorted((case["length"], *both(case["us"]), *both(gradients.get(case["length"]))) for case in cases)


def softmax():
    """As `rows_of`; its gradients were measured from Python."""
    times = {row["what"]: row["us"] for row in read_results(DATA / "python-kernels/python-kernels.json.xz")["times"]}
    measured = times["softmax 16384x4096, backward"]
    gradients = {4096: (round(measured["ours"], 1), round(measured["PyTorch"], 1))}
    return [(*row[:3], *gradients.get(row[0], (None, None))) for row in rows_of("softmax")]


def host():
    """µs of the host for a call: forward, forward with gradients, backward."""
    us = {row[0]: row[1] for row in read_results(DATA / "python-kernels/python-kernels.json.xz")["host"].items()}
    of = lambda name: (us[name], us[f"{name}, gradients wanted"], us[f"{name}, backward"])
    return {kind: tuple(round(value, 1) for value in of(name)) for kind, name in HOST.items()}


def listed(rows):
    return "".join(f"    {row},\n" for row in rows)


def main():
    """Prints the module."""
    print(HEAD)
    print("Row = tuple[int, float, float, Optional[float], Optional[float]]")
    print('"""Length, µs of ours and of PyTorch forward, the same backward."""\n')
    print("ATTENTION_ELEMENTS = 16384 * 2048")
    print('"""Elements of the queries in each row of `ATTENTION`."""\n')
    print("ROW_ELEMENTS = 16384 * 4096")
    print('"""Elements of the tensor in each row of `RMS_NORM` and `SOFTMAX`."""\n')
    print("ATTENTION: dict[tuple[int, bool], list[Row]] = {")
    for (dim, causal), rows in attention().items():
        print(f"    ({dim}, {causal}): [")
        print("".join(f"        {row},\n" for row in rows), end="    ],\n")
    print('}\n"""By head dimension, and whether the mask is causal; of as many queries as keys."""\n')
    for name, rows in (("RMS_NORM", rows_of("RMSNorm")), ("SOFTMAX", softmax())):
        print(f"{name}: list[Row] = [\n{listed(rows)}]\n")
    print("HOST_US = {")
    for kind, times in host().items():
        print(f'    "{kind}": {times},')
    print('}\n"""µs of the host for a call: forward, forward with gradients, backward. Softmax has those of RMSNorm."""')


if __name__ == "__main__":
    main()
