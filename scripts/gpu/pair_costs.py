"""Joins what pairs read with what CUPTI says of the kernels between their events: `pair_costs.py BUILD`, by pair_costs.sh."""

import csv
import re
import sys
from pathlib import Path

import observers

HEADER = "mode,kernel,blocks,threads,dynamic_shared,p5_ns,median_ns,p95_ns,queued,cupti_median_ns"


def plain(symbol):
    """A kernel's name as the program prints it: `_Z4spinILi500EEvv` is `spin<500>`."""
    length, rest = re.match(r"_Z(\d+)(.*)", symbol).groups()
    name, rest = rest[: int(length)], rest[int(length) :]
    argument = re.match(r"ILi(\d+)EE", rest)
    return f"{name}<{argument[1]}>" if argument else name


def main():
    build = Path(sys.argv[1])
    medians = {}
    for folder in build.glob("cupti-*"):
        for row in observers.Cupti.rows(folder):
            if row["name"] not in observers.OURS:
                key = (plain(row["name"]), row["grid_x"], row["block_x"], row["dynamic_shared"])
                medians[folder.name.removeprefix("cupti-"), *key] = row["median_ns"]
    print(HEADER)
    for row in csv.reader((build / "readings").open()):
        print(",".join([*row, medians.get(tuple(row[:5]), "")]))


if __name__ == "__main__":
    main()
