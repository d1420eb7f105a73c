"""Tables of what attention*.py and moe*.py measured.

    scripts/gpu/hopper_tables.py attention|short|unfused|variants|decode|all|moe|moe-backward FILE

The pages show them, and a test compares (xtask/tests/figures.rs). It needs no GPU and no PyTorch.
"""

import sys

from bench import HOST_SHOWS, fastest, is_hidden, median, ratio_interval, shown_ratio, spread, tally
from figures import read_results, table

PEERS = ("FA-2", "cuDNN")
LAYERS = {"ours": "ours", "grouped": "grouped", "compiled": "compiled", "loop": "loop"}


def marked(text, measured):
    """The text, with a star where the time is the host's."""
    return text + ("" if is_hidden(measured["hidden"], measured["us"]) else "*")


def against_best(row, peers=PEERS):
    """The name of the fastest peer, and its time over ours."""
    times = {name: row[name]["us"] for name in (*peers, "ours") if name in row}
    best = fastest(times, peers)
    return best, times[best], times["ours"]


def hosts(rows, names):
    """A line about the rows with a star, or nothing."""
    starred = any(not is_hidden(its["hidden"], its["us"]) for row in rows for name, its in row.items() if name in names)
    return f"\n{HOST_SHOWS}\n" if starred else ""


def mask(row):
    return "causal" if row["causal"] else "full"


def attention(rows):
    cells, names = [], [name for name in (*PEERS, "ours") if name in rows[0]]
    for row in rows:
        best, theirs, ours = against_best(row)
        speed = [marked(f"{row['operations'] / median(row[name]['us']) / 1e6:.0f}", row[name]) for name in names]
        cells.append([row["dim"], row["length"], mask(row), *speed, best, shown_ratio(theirs, ours), f"{spread(ours):.0%}",
                      f"{spread(theirs):.0%}"])
    header = ["head dimension", "length", "mask", *names, "fastest peer", "its time / ours [95%]", "spread of ours", "of the peer"]
    return table(header, cells) + hosts(rows, names) + "\n" + tally(against_best(row)[1:] for row in rows) + "\n"


def short(rows):
    """Every kernel that was measured beside cuDNN, where the checked-in ones were behind before or are."""
    names = list(dict.fromkeys(name for row in rows for name, its in row.items() if isinstance(its, dict) and name != "cuDNN"))
    cells = []
    for row in rows:
        if row["length"] <= 2048:
            ratios = [f"{ratio_interval(row['cuDNN']['us'], row[name]['us'])[0]:.2f}" if name in row else "–" for name in names]
            cells.append([row["dim"], row["length"], mask(row), *ratios])
    return table(["head dimension", "length", "mask", *names], cells)


def unfused(rows):
    cells = [[row["dim"], mask(row), f"{row['operations'] / median(row['math']['us']) / 1e6:.1f}",
              f"{ratio_interval(row['math']['us'], row['ours']['us'])[0]:.1f}"] for row in rows if "math" in row]
    return table(["head dimension", "mask", "PyTorch's unfused form (`math`), TFLOP/s", "its time / ours"], cells)


def variants(rows):
    cells = [[row["dim"], row["length"], mask(row), shown_ratio(row["variant"]["us"], row["ours"]["us"])]
             for row in rows if "variant" in row]
    return table(["head dimension", "length", "mask", "variant's time / ours [95%]"], cells) if cells else ""


def decode(rows):
    cells = []
    for row in rows:
        best, theirs, ours = against_best(row)
        peers = [marked(f"{median(row[name]['us']):.1f}", row[name]) if name in row else "–" for name in PEERS]
        bandwidths = row["bytes"] / median(ours) / 1e3, row["copied"] / median(row["copy"]["us"]) / 1e3
        cells.append([row["dim"], row["group"], row["batch"], f"{row['bytes'] / 1e6:.0f}", *peers,
                      marked(f"{median(ours):.1f}", row["ours"]), best, shown_ratio(theirs, ours), f"{bandwidths[0]:.0f}",
                      f"{bandwidths[0] / bandwidths[1]:.2f}"])
    header = ["head dimension", "group", "batch", "cache, MB", *(f"{name}, µs" for name in PEERS), "ours, µs", "fastest peer",
              "its time / ours [95%]", "ours, GB/s", "ours / copy"]
    return table(header, cells) + hosts(rows, (*PEERS, "ours")) + "\n" + tally(against_best(row)[1:] for row in rows) + "\n"


def row_of_all(row):
    """A row of attention_table.py, as cells."""
    best, theirs, ours = against_best(row)
    shape = f"{row['length']} {mask(row)}" if "length" in row else f"group {row['group']}, batch {row['batch']}"
    us = [marked(f"{median(row[name]['us']):.1f}", row[name]) if name in row else "–" for name in (*PEERS, "ours")]
    rate = f"{row['bytes'] / median(ours) / 1e3:.0f} GB/s" if "bytes" in row else f"{row['operations'] / median(ours) / 1e6:.0f} TFLOP/s"
    return [row["pass"], row["dim"], shape, *us, rate, best, shown_ratio(theirs, ours)]


def of_all(rows):
    """The rows of attention_table.py: forward, backward and decoding."""
    rows = sorted(rows, key=lambda row: ("forward", "backward", "decode").index(row["pass"]))
    header = ["pass", "head dimension", "shape", *(f"{name}, µs" for name in (*PEERS, "ours")), "ours", "fastest peer", "its time / ours [95%]"]
    text = table(header, map(row_of_all, rows)) + hosts(rows, (*PEERS, "ours")) + "\n"
    return text + tally(against_best(row)[1:] for row in rows) + "\n"


def sizes(row):
    return ", ".join(map(str, row["sizes"]))


SIZES = "tokens, experts, top-k, dim, hidden"


def star(row, name):
    """Of a row of moe*.py: a star where the time is the host's."""
    return "" if is_hidden(row["hidden"][name], row["us"][name]) else "*"


def stars(rows):
    starred = any(star(row, name) for row in rows for name in row["us"])
    return f"\n{HOST_SHOWS}\n" if starred else ""


def tflops(row, name, share=1.0):
    return f"{row['operations'] * share / median(row['us'][name]) / 1e6:.0f}"


def moe(results):
    """The forward pass: layers, their steps, numbers of experts, few tokens."""
    layers, us = results["layers"], lambda row, name: median(row["us"][name])
    cells = [[sizes(row), name, f"{us(row, name) / 1e3:.2f}{star(row, name)}", tflops(row, name),
              "" if name == "ours" else shown_ratio(row["us"][name], row["us"]["ours"]), f"{spread(row['us'][name]):.0%}"]
             for row in layers for name in LAYERS if name in row["us"]]
    text = table([SIZES, "kernels", "ms", "TFLOP/s", "time / ours [95%]", "spread"], cells)
    product = lambda row, name, share: f"{us(row, name):.0f} ({tflops(row, name, share)})"
    cells = [[sizes(row), f"{us(row, 'router'):.0f}", f"{us(row, 'routing'):.0f}", product(row, "up", 2 / 3),
              product(row, "down", 1 / 3), f"{us(row, 'combine'):.0f}"] for row in layers]
    text += "\nEach step of ours, measured separately:\n\n"
    text += table([SIZES, "router, µs", "routing, µs", "up, µs (TFLOP/s)", "down, µs (TFLOP/s)", "combine, µs"], cells)
    first = results["experts"][0]
    cells = [[row["sizes"][1], f"{us(row, 'ours') / 1e3:.2f}", f"{us(row, 'ours') / us(first, 'ours'):.3f}",
              f"{us(row, 'grouped') / 1e3:.2f}{star(row, 'grouped')}", shown_ratio(row["us"]["grouped"], row["us"]["ours"]),
              f"{spread(row['us']['ours']):.0%}"] for row in results["experts"]]
    text += "\nThe number of experts at the same work (32,768 tokens, top-4, dim 4,096, hidden 1,024):\n\n"
    text += table(["experts", "ours, ms", "ours / with 8 experts", "grouped, ms", "grouped / ours [95%]", "spread of ours"], cells)
    cells = [[row["sizes"][0], *(f"{us(row, name):.0f}{star(row, name)}" for name in ("ours", "grouped")),
              shown_ratio(row["us"]["grouped"], row["us"]["ours"])] for row in results["small"]]
    text += "\nFew tokens (128 experts, top-8, dim 2,816, hidden 704):\n\n"
    text += table(["tokens", "ours, µs", "grouped, µs", "grouped / ours [95%]"], cells)
    return text + stars([*layers, *results["experts"], *results["small"]])


def moe_backward(results):
    layers = results["layers"]
    cells = []
    for row in layers:
        for layer in LAYERS:
            name = lambda part: part if layer == "ours" else f"{layer} {part}"
            forward, backward, both = (median(row["us"][name(part)]) for part in ("forward", "backward", "both"))
            cells.append([
                sizes(row), layer, f"{forward / 1e3:.2f}{star(row, name('forward'))}",
                f"{backward / 1e3:.2f}{star(row, name('backward'))} ({tflops(row, name('backward'))})",
                f"{both / 1e3:.2f}{star(row, name('both'))}",
                "" if layer == "ours" else shown_ratio(row["us"][name("backward")], row["us"]["backward"]),
                "" if layer == "ours" else shown_ratio(row["us"][name("both")], row["us"]["both"]),
                f"{spread(row['us'][name('both')]):.0%}"])
    text = table([SIZES, "kernels", "forward, ms", "backward, ms (TFLOP/s)", "both, ms", "backward / ours [95%]",
                  "both / ours [95%]", "spread of both"], cells) + stars(layers)
    shares = {"hidden": 1, "up": 2, "down": 1, "rows": 2}  # of six
    step = lambda row, name: median(row["us"][f"step {name}"])
    cells = [[sizes(row), *(f"{step(row, name):.0f} ({tflops(row, f'step {name}', share / 6)})" for name, share in shares.items()),
              f"{step(row, 'gate'):.0f}", f"{step(row, 'combine'):.0f}",
              f"{median(row['us']['forward without saving']) / 1e3:.2f}"] for row in layers]
    header = [SIZES, *(f"{name}, µs (TFLOP/s)" for name in shares), "gate, µs", "combine, µs", "forward without saving, ms"]
    return text + "\nEach kernel of ours, measured separately: gradients of the hidden layers, of the up and down weights, of the rows\n" \
        "of tokens, and of the gate; and the sum of rows.\n\n" + table(header, cells)


TABLES = {
    "attention": lambda results: attention(results["times"]),
    "short": lambda results: short(results["times"]),
    "unfused": lambda results: unfused(results["times"]),
    "variants": lambda results: variants(results["times"]),
    "decode": lambda results: decode(results["times"]),
    "all": lambda results: of_all(results["times"]),
    "moe": moe,
    "moe-backward": moe_backward,
}

if __name__ == "__main__":
    print(TABLES[sys.argv[1]](read_results(sys.argv[2])), end="")
