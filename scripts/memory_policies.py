"""Which policy should keep freed memory? Recorded allocations of real programs, simulated under several policies.

    memory_policies.py collect --apex BIN FILE     # allocations of the sessions in data/h200/corpus, as FILE (.csv.xz)
    memory_policies.py table FILE COSTS            # COSTS: what scripts/gpu/memory.py measured

Each program of the corpus that allocates and frees device memory at least 20 times is replayed call by call. A call that the pool answers
costs half a pair of the pool's; one that reaches the driver costs what it takes on an idle H200 (waiting for work is not counted: the pool waits, too).
All policies obey the bound of the shipped pool (crates/record/interpose/src/actions/pool/blocks.rs): live and kept memory take at most a twelfth or
32 MiB more than the program's peak.

- *exact sizes* is what ships: whole blocks, given out for exactly their size, the oldest given back first.
- *size classes* rounds sizes up (512 B, from 1 MiB on 2 MiB, from 32 MiB on an eighth of the power of two), so more sizes share blocks.
- *replayed* has exact sizes, and has seen this very trace before: the blocks that the program will need at a time are there from the start
  (allocated ahead, at no cost to the program), and what is needed last is given back first.
- *learned* has seen the first half of the trace (an earlier run): from it, how many allocations pass until a size is asked for again (the
  median), and how many of a size live at a time. In the second half it gives back first what it expects last, and has allocated the known
  sizes ahead. The other columns of the second half are there to compare.
"""

import argparse
import collections
import csv
import functools
import io
import itertools
import lzma
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).parent / "gpu"))
from figures import read_results, table

SLACK = 32 << 20
NEVER = float("inf")


def collect(arguments):
    rows = []
    for archive in sorted(Path("data/h200/corpus").glob("*.tar.xz")):
        with tempfile.TemporaryDirectory() as parent:
            folder = f"{parent}/session"
            subprocess.run(["cargo", "run", "-q", "-p", "test-recorded", "--", "unpack", archive, folder], check=True)
            command = [arguments.apex, "export", "--format", "csv", "--what", "calls", folder]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        sizes, calls = {}, []
        for call in csv.DictReader(io.StringIO(text)):
            at = (call["process"], call["address"])
            if call["result"] != "0":
                continue
            if call["api"] == "cuMemAlloc_v2":
                sizes[at] = int(call["bytes"])
                calls.append(["a", call["address"], sizes[at], call["cpu_ns"]])
            elif call["api"] == "cuMemFree_v2" and at in sizes:
                calls.append(["f", call["address"], sizes.pop(at), call["cpu_ns"]])
        if sum(kind == "f" for kind, *_ in calls) >= 20:
            # Addresses become small numbers.
            names = {address: at for at, address in enumerate(dict.fromkeys(call[1] for call in calls))}
            rows += [[archive.name.removesuffix(".tar.xz"), kind, names[address], size, ns] for kind, address, size, ns in calls]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["program", "call", "address", "bytes", "cpu_ns"], *rows])
    with lzma.open(arguments.file, "wt") as file:
        file.write(text.getvalue())


def footprint(size):
    unit = 2 << 20 if size >= 1 << 20 else 512
    return -(-size // unit) * unit


def size_class(size):
    if size < 32 << 20:
        return footprint(size)
    step = 1 << max(size.bit_length() - 4, 21)
    return -(-size // step) * step


class Costs:
    """What calls cost the driver, between the sizes that were measured."""

    def __init__(self, file):
        pairs = read_results(file)["pairs"]
        lines = pairs["bare"]
        self.pool = statistics.median(line["both"] / 2 for run in pairs["memory"] for line in run)
        self.bytes = [line["bytes"] for line in lines[0]]
        columns = {"a": "allocate", "f": "free"}
        self.ns = {
            kind: [statistics.median(run[at][column] for run in lines) for at in range(len(self.bytes))]
            for kind, column in columns.items()
        }

    @functools.cache  # noqa: B019 (the few objects live as long as the program)
    def of(self, kind, size):
        return float(numpy.interp(numpy.log(size), numpy.log(self.bytes), self.ns[kind]))


def simulate(calls, costs, rounds=lambda size: size, expected=None, ahead=()):
    """Nanoseconds on the program's path, misses, and the most memory held beside the program's own peak.

    `expected(size, at)` says when a size is expected to be asked for next; without it the oldest block goes first. `ahead` are blocks
    that are there from the start, as far as the bound of the whole trace's peak lets them.
    """
    kept, live, spent, misses = collections.Counter(ahead), {}, 0, 0
    order = list(ahead)
    own = held_peak = peak = 0
    changes = (footprint(size) if kind == "a" else -footprint(size) for kind, _, size, _ in calls)
    final_peak = max(itertools.accumulate(changes))
    for at, (kind, address, size, _) in enumerate(calls):
        rounded = rounds(size)
        if kind == "a":
            own += footprint(size)
            peak = max(peak, own)
            if kept[rounded]:
                kept[rounded] -= 1
                order.remove(rounded)
                spent += costs.pool
            else:
                misses += 1
                spent += costs.of("a", size)
            live[address] = rounded
        else:
            own -= footprint(size)
            kept[live.pop(address)] += 1
            order.append(rounded)
            spent += costs.pool
        bound = final_peak if ahead else peak
        bound += max(bound // 12, SLACK)
        held = sum(map(footprint, live.values())) + sum(map(footprint, order))
        while order and held > bound:
            going = max(order, key=lambda size: expected(size, at)) if expected else order[0]
            order.remove(going)
            kept[going] -= 1
            held -= footprint(going)
            spent += costs.of("f", going)
        held_peak = max(held_peak, held)
    return spent, misses, held_peak / max(final_peak, 1)


def next_uses(calls):
    """For each size the places at which it is allocated."""
    places = collections.defaultdict(list)
    for at, (kind, _, size, _) in enumerate(calls):
        if kind == "a":
            places[size].append(at)
    return places


def knows_future(calls):
    places = {size: collections.deque(at) for size, at in next_uses(calls).items()}

    def expected(size, at):
        coming = places.get(size, ())
        while coming and coming[0] <= at:
            coming.popleft()
        return coming[0] if coming else NEVER

    return expected


def needed_ahead(calls):
    """The blocks that a program needs at a time, of each size."""
    live, most = collections.Counter(), collections.Counter()
    for kind, _, size, _ in calls:
        live[size] += 1 if kind == "a" else -1
        most[size] = max(most[size], live[size])
    return list(most.elements())


def learned(calls):
    gaps = {size: statistics.median([b - a for a, b in zip(at, at[1:])] or [NEVER]) for size, at in next_uses(calls).items()}
    last = {}

    def expected(size, at):
        return last.setdefault(size, at) + gaps.get(size, NEVER)

    return expected


def whole_frees(calls):
    """The calls from a place on, without frees of what was allocated before."""
    known, kept = set(), []
    for call in calls:
        if call[0] == "a":
            known.add(call[1])
        if call[1] in known:
            kept.append(call)
        if call[0] == "f":
            known.discard(call[1])
    return kept


def shown(result, bare):
    spent, misses, held = result
    return f"{spent / 1e6:,.2f} ({1 - spent / bare:.1%} saved, {misses} misses, {held:.2f}×)"


def tables(arguments):
    programs = collections.defaultdict(list)
    with lzma.open(arguments.file, "rt") as file:
        for row in csv.DictReader(file):
            programs[row["program"]].append((row["call"], row["address"], int(row["bytes"]), int(row["cpu_ns"])))
    costs = Costs(arguments.costs)
    whole, halves = [], []
    for name, calls in programs.items():
        bare = sum(costs.of(kind, size) for kind, _, size, _ in calls)
        replayed = simulate(calls, costs, expected=knows_future(calls), ahead=needed_ahead(calls))
        results = [simulate(calls, costs), simulate(calls, costs, rounds=size_class), replayed]
        whole.append([name, sum(call[0] == "a" for call in calls), f"{bare / 1e6:,.2f}", *(shown(result, bare) for result in results)])
        first, second = calls[: len(calls) // 2], whole_frees(calls[len(calls) // 2 :])
        bare = sum(costs.of(kind, size) for kind, _, size, _ in second)
        model = simulate(second, costs, expected=learned(first), ahead=needed_ahead(first))
        halves.append([name, f"{bare / 1e6:,.2f}", *(shown(result, bare) for result in (simulate(second, costs), model))])
    print("Milliseconds that allocations and frees take on the program's path (saved, misses, most memory held over the program's peak):\n")
    print(table(["program", "allocations", "driver", "exact sizes (ships)", "size classes", "replayed"], whole))
    print("The second half of each trace, after the first has been learned:\n")
    print(table(["program", "driver", "exact sizes (ships)", "learned"], halves), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("--apex", required=True)
    collecting.add_argument("file")
    collecting.set_defaults(do=collect)
    showing = commands.add_parser("table")
    showing.add_argument("file")
    showing.add_argument("costs")
    showing.set_defaults(do=tables)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
