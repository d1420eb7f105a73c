"""Checks and measures what keeps a mixture of experts in balance, beside PyTorch, in one process: losses, a bias, a capacity.

    scripts/gpu/moe_balance.py OUT     # writes OUT/moe-balance.md and OUT/moe-balance.json

It needs a Hopper GPU and PyTorch. Layers are those of moe.py and moe_backward.py, errors are theirs, and so are times. PyTorch
computes a capacity by weights of zero: it multiplies the rows of choices that are dropped, and ours does not.
"""

import ctypes as ct
import json
import pathlib
import sys

import torch

import moe
import moe_backward
from attention import distance, facts, load_ptx
from moe import CHUNK, Layer, Ours, Problem, launcher, median, spread

losses = load_ptx("moe_losses")
BALANCE, Z, RATE = 0.01, 0.001, 0.001


class Auxiliary:
    """Both losses, without coefficients, and the gradient of their sum with coefficients, which starts at 0."""

    def __init__(self, logits, loads, top_k):
        tokens, experts = logits.shape
        chunks = -(-tokens // CHUNK)
        problem = Problem(tokens, experts, top_k, 1, 1, chunks, 0, 1)
        self.gradient, self.losses = torch.zeros_like(logits), logits.new_full((2,), float("nan"))
        parts = logits.new_full((chunks, 2), float("nan"))
        self.steps = [
            launcher(losses, "moe_losses", chunks, 256, 0, logits, loads, ct.c_float(BALANCE), ct.c_float(Z), self.gradient,
                     parts, problem),
            launcher(losses, "moe_sum_losses", 1, 32, 0, parts, self.losses, problem),
        ]

    def __call__(self):
        for step in self.steps:
            step()
        return self.losses, self.gradient


def auxiliary(logits, loads):
    """PyTorch's."""
    shares = loads.to(logits.dtype) / loads.sum()
    balance = logits.shape[1] * (shares * torch.softmax(logits, -1).mean(0)).sum()
    return torch.stack([balance, torch.logsumexp(logits, -1).square().mean()])


def auxiliary_gradient(logits, loads, compute=auxiliary):
    logits = logits.detach().requires_grad_()
    both = compute(logits, loads)
    return both.detach(), torch.autograd.grad(BALANCE * both[0] + Z * both[1], logits)[0]


def auxiliary_errors():
    rows = []
    for tokens, experts, top_k in ((1, 1, 1), (77, 5, 3), (1000, 64, 4), (3000, 512, 8)):
        logits = 3 * torch.randn(tokens, experts, device="cuda")
        chosen = torch.topk(logits, top_k).indices.flatten()
        loads = torch.bincount(chosen, minlength=experts).to(torch.int32)
        expected = auxiliary_gradient(logits.double(), loads)
        off = lambda found: [distance(*pair) for pair in zip(found, expected)]
        row = {"shape": (tokens, experts, top_k), "ours": off(Auxiliary(logits, loads, top_k)()),
               "PyTorch": off(auxiliary_gradient(logits, loads))}
        # Of float32: neither has an error where it is a few units in the last place.
        row["right"] = all(mine <= max(1.2 * theirs, 1e-6) for mine, theirs in zip(row["ours"], row["PyTorch"]))
        rows.append(row)
    return rows


def bias_errors():
    """The update of a bias, which is exact but for one rounding."""
    rows = []
    for experts in (1, 8, 300, 512):
        loads = torch.randint(0, 1000, (experts,), device="cuda", dtype=torch.int32)
        bias = torch.randn(experts, device="cuda")
        expected = bias + RATE * torch.sign(loads.double().mean() - loads.double()).float()
        launcher(losses, "moe_balance_bias", 1, 256, 0, bias, loads, ct.c_float(RATE), ct.c_int(experts))()
        rows.append({"experts": experts, "ours": distance(bias, expected), "right": distance(bias, expected) < 1e-6})
    return rows


def separate(logits, top_k, gate, bias):
    """Logits of which no token's choice depends on rounding."""
    while True:
        sums = torch.sort(moe.scores_of(logits.double(), gate) + bias.double(), descending=True).values[:, :top_k + 1]
        close = (-sums.diff() < 1e-6).any(-1)
        if not close.any():
            return logits
        logits[close] = 3 * torch.randn(int(close.sum()), logits.shape[1], device="cuda")


def layer_errors():
    """Forward and backward, with a capacity, a bias, and both."""
    rows = []
    shapes = [(77, 5, 3, 136, 72), (513, 3, 3, 64, 64), (1000, 8, 2, 512, 384), (3000, 64, 4, 1024, 512)]
    for shape in shapes:
        tokens, experts, top_k, _, _ = shape
        capacity = max(1, -(-tokens * top_k // experts) * 3 // 4)
        for gate in ("softmax", "sigmoid"):
            for renormalise in (True, False):
                for its_capacity, biased in ((capacity, False), (None, True), (capacity, True)):
                    logits = 3 * torch.randn(tokens, experts, device="cuda")
                    bias = torch.rand(experts, device="cuda") - 0.5 if biased else None
                    if biased:
                        logits = separate(logits, top_k, gate, bias)
                    options = {"gate": gate, "renormalise": renormalise, "bias": bias, "capacity": its_capacity}
                    row = moe_backward.problem(shape, torch.bfloat16, logits, **options)
                    layer = Layer(*shape)
                    expected = moe.reference(layer, logits, **options)
                    ours = Ours(layer, logits, **options)
                    row |= {"bias": biased, "forward": distance(ours(), expected),
                            "cuBLAS forward": distance(moe.loop(layer, logits, **options), expected)}
                    weights, _ = moe.choose(logits.double(), top_k, **options)
                    drops = [int((weights == 0).sum()), int((weights == 0).all(-1).sum())]
                    row["right"] &= row["forward"] <= 1.2 * row["cuBLAS forward"] and ours.drops.tolist() == drops
                    rows.append(row)
    return rows


def timed(sizes):
    """What was measured. A skewed router is what a capacity and a bias are for."""
    tokens, experts, top_k, _, _ = sizes
    layer = Layer(*sizes)
    even = layer.logits()
    skewed = even + torch.linspace(2, 0, experts, device="cuda")
    bias = torch.zeros(experts, device="cuda")
    capacity = int(1.25 * tokens * top_k / experts)
    variants = {"dropless": Ours(layer, even), "bias": Ours(layer, even, bias=bias),
                "capacity": Ours(layer, even, capacity=capacity), "skewed, dropless": Ours(layer, skewed),
                "skewed, capacity": Ours(layer, skewed, capacity=capacity)}
    launches = dict(variants)
    for name, ours in variants.items():
        ours()
        launches |= {f"{name}: routing": ours.route, f"{name}: combine": ours.combine}
    loads = variants["dropless"].loads
    launches["losses"] = Auxiliary(even, loads, top_k)
    compiled = torch.compile(auxiliary, dynamic=False)
    launches["losses, PyTorch"] = lambda: auxiliary_gradient(even, loads)
    launches["losses, compiled"] = lambda: auxiliary_gradient(even, loads, compiled)
    launches["bias update"] = launcher(losses, "moe_balance_bias", 1, 256, 0, bias, loads, ct.c_float(0), ct.c_int(experts))
    drops = variants["skewed, capacity"].drops.tolist()
    return {"sizes": sizes, "capacity": capacity, "drops": drops} | moe.in_any_order(launches, 5)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    device = facts("scripts/gpu/moe_balance.py")
    checked = {"losses": auxiliary_errors(), "bias": bias_errors(), "layers": layer_errors()}
    layers = [timed(sizes) for sizes in ((32768, 64, 4, 4096, 1024), (8192, 8, 2, 4096, 14336))]
    (out / "moe-balance.json").write_text(json.dumps({"facts": device, "errors": checked, "layers": layers}, indent=1) + "\n")
    lines = [f"{device['device']}; PyTorch {device['torch']}.", ""]
    for row in layers:
        sizes = ", ".join(map(str, row["sizes"]))
        lines += [f"{moe.NAMES}: {sizes}; capacity {row['capacity']}, which drops {row['drops'][0]} choices of the skewed router "
                  f"and leaves {row['drops'][1]} tokens nothing.", "", "| what | µs | spread |", "| --- | --- | --- |"]
        lines += [f"| {name} | {median(row, name):.0f} | {spread(row, name):.0%} |" for name in row["us"]] + [""]
    rows = [row for kind in checked.values() for row in kind]
    lines.append(f"{sum(row['right'] for row in rows)} of {len(rows)} problems are right.")
    (out / "moe-balance.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    for row in rows:
        if not row["right"]:
            print("WRONG", row)
    sys.exit(not all(row["right"] for row in rows))


if __name__ == "__main__":
    main()
