"""Tables of what scripts/gpu/python_kernels.py measured.

    scripts/gpu/python_kernels_tables.py times|launched|checks|packed|experts FILE.json
    scripts/gpu/python_kernels_tables.py host FILE.json …    # a column each
"""

import sys

import bench
from figures import read_results, table

WAITED = 1.1  # a time of less than so many times the host's is the host's
TINY = 1e-3  # errors below are those of rounding, whoever computes


def times(document):
    """Microseconds of a call by events, and of the host, where that was measured. An exclamation mark says that a time by
    events is hardly more than the host's: the GPU waited."""
    rows = []
    for row in document["times"]:
        (_, ours), *others = row["us"].items()
        host, hidden = row.get("host_us", {}), "rounds" in row
        shown = {who: f"{us:.1f}{'!' if not hidden and us < WAITED * host.get(who, 0) else ''}" for who, us in row["us"].items()}
        mine, *theirs = shown.items()
        best = min(us for _, us in others)
        rows.append([row["what"], mine[1], "; ".join(f"{who} {text}" for who, text in theirs), f"{best / ours:.2f}",
                     "; ".join(f"{us:.1f}" for us in host.values())])
    return table(["work", "ours, µs", "others, µs", "fastest other / ours", "host of each, µs"], rows)


def host(*documents):
    """Microseconds of the host for calls on small tensors."""
    calls = list(dict.fromkeys(name for document in reversed(documents) for name in document["host"]))
    shown = [[f"{document['host'][name]:.1f}" if name in document["host"] else "" for document in documents] for name in calls]
    header = ["host, µs"] if len(documents) == 1 else [f"host, run {place + 1}, µs" for place in range(len(documents))]
    return table(["call", *header], [[name, *cells] for name, cells in zip(calls, shown)])


def launched(document):
    """What runs on the GPU in a call, by PyTorch's profiler."""
    rows = []
    for row in document.get("launched", []):
        kernels = "; ".join(f"`{x['kernel'][:60]}` {x['us']:.1f}" for x in row["kernels"])
        rows.append([row["what"], f"{sum(x['us'] for x in row['kernels']):.1f}", kernels])
    return table(["work", "on the GPU, µs", "kernels and memsets, µs of a call"], rows)


def excess(row):
    return max(a / max(b, TINY) for a, b in zip(row["ours"], row["pytorch"]))


def checks(document):
    bad = [row for row in document["errors"] if not row["ok"]]
    worst = max(document["errors"], key=excess)
    lines = [f"- {len(document['errors'])} comparisons of outputs and gradients, {len(bad)} of them outside of the bound; the "
             f"worst: {worst['what']}, ours {max(worst['ours']):.2e}, PyTorch's {max(worst['pytorch']):.2e}."]
    lines += [f"- {row['what']}: {row['result']}" for row in document["checks"]]
    return "\n".join(lines) + "\n"


def packed(document):
    """Packed sequences and mixtures of experts: errors and milliseconds beside PyTorch's ways."""
    rows = []
    for row in document["rows"]:
        errors = [f"{max(row[name]):.1e}" for name in ("errors", "pytorch_errors")]
        for which, shown in (("forward", "forward"), ("both", "forward and backward")):
            ms = {name: rounds(its) for name, its in row[which].items()}
            ours = ms.pop("apex")
            others = [f"{name} {bench.median(its):.3f} ({ratio(its, ours)})" for name, its in ms.items()]
            rows.append([row["name"], shown, f"{bench.median(ours):.3f}", "; ".join(others), *errors])
    return table(["work", "passes", "ours, ms", "PyTorch's, ms (its time / ours)", "largest error, ours", "PyTorch's"], rows)


def rounds(its):
    """Milliseconds of each round; of what the script prints, their median alone."""
    return its["ms"] if isinstance(its, dict) else [its]


def ratio(its, ours):
    return bench.shown_ratio(its, ours) if len(its) > 1 else f"{its[0] / ours[0]:.2f}"


def experts(document):
    """Mixtures of experts of a run of before 2026-11-30 07:00 UTC, which has medians only."""
    rows = []
    for row in document["rows"]:
        if row["name"].startswith("mixture"):
            ours = row["ms"]["apex"]
            others = [f"{name} {ms:.2f} ({ms / ours:.2f})" for name, ms in row["ms"].items() if name != "apex"]
            errors = [f"{max(row[name]):.1e}" for name in ("errors", "pytorch_errors")]
            rows.append([row["name"], f"{ours:.2f}", "; ".join(others), *errors])
    return table(["forward and backward", "ours, ms", "PyTorch's, ms (its time / ours)", "largest error, ours", "PyTorch's"], rows)


TABLES = {"times": times, "host": host, "launched": launched, "checks": checks, "packed": packed, "experts": experts}

if __name__ == "__main__":
    read = [read_results(name) for name in sys.argv[2:]]
    print(TABLES[sys.argv[1]](*read), end="")
