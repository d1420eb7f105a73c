"""Checks and measures the Hopper form of a mixture of experts' backward pass beside PyTorch's autograd, in one process.

    scripts/gpu/moe_backward.py OUT     # writes OUT/moe-backward.md and OUT/moe-backward.json

It needs a Hopper GPU and PyTorch. The kernels are those that are checked in (crates/kernels/kernels/binaries), launched through the
driver as src/moe/backward does it; the forward pass before is ours too. Every output and every buffer between the kernels is
poisoned before. Errors are relative, in the Frobenius norm, against float64 on the same random inputs; those of few tokens are
taken over several draws of inputs. Times are those of bench.py (docs/results/method.md).

Gradients are those of tokens, logits and both weights. The router's product, which is the same for all, is left out.
"""

import ctypes as ct
import json
import math
import pathlib
import sys

import torch
import torch._functorch.config

import hopper_tables
import moe
from attention import BINARIES, check, driver, facts, random
from moe import PANEL, PROPERTIES, SHARED, STEP, TILE_ROWS, WEIGHTS, Layer, Ours, launcher, tensor_map

torch._functorch.config.donated_buffer = False  # or a compiled layer's graph cannot be kept
weights = ct.c_void_p()
check(driver.cuModuleLoadData(ct.byref(weights), (BINARIES / "moe_weights_hopper.fatbin").read_bytes()))
NAMES = "tokens", "logits", "up", "down"
# Fewest tokens of a problem, over all of its draws. The gradients of one token's logits are too few numbers: of two results that
# round equally well, one may have twice the other's error (scripts/gpu/moe_rounding.py).
TOKENS = 128


class Backward:
    """Of a forward pass of ours that has run."""

    def __init__(self, layer, ours, gradient):
        _, experts, _, dim, hidden = layer.sizes
        rows, kind = ours.rows, ours.kind
        nan = lambda *shape, dtype=layer.x.dtype: torch.full(shape, float("nan"), dtype=dtype, device="cuda")
        row_tokens, row_choices, spans, tiles, counters = ours.plan
        parts = -(-hidden // WEIGHTS)
        weight_parts = nan(rows, parts, dtype=torch.float32)
        projection_gradient, weighted, dx_rows = nan(rows, 2 * hidden), nan(rows, hidden), nan(rows, dim)
        self.gradients = [torch.full_like(x, float("nan")) for x in (layer.x, ours.logits, layer.up, layer.down)]
        dx, d_logits, d_up, d_down = self.gradients
        panels = lambda x, sizes: tensor_map(x, sizes, (PANEL, STEP))
        down_map, up_map = panels(layer.down, (hidden, dim, 1, experts)), panels(layer.up, (dim, 2 * hidden, 1, experts))
        gradient_map, weighted_map = panels(projection_gradient, (2 * hidden, rows)), panels(weighted, (hidden, rows))
        rows_map = tensor_map(projection_gradient, (2 * hidden, rows), (STEP, TILE_ROWS))
        product = lambda module, of, *arguments: launcher(
            module, f"moe_{of}_gradient_hopper_{kind}", PROPERTIES.multi_processor_count, 384, SHARED, *arguments, ours.problem)
        self.steps = {
            "hidden": product(moe.hopper, "hidden", down_map, layer.down, gradient, row_tokens, tiles, counters,
                              projection_gradient, ours.projections, ours.weights, row_choices, weighted, weight_parts),
            "up": product(weights, "up", gradient_map, projection_gradient, layer.x, row_tokens, spans, counters, d_up),
            "down": product(weights, "down", weighted_map, weighted, gradient, row_tokens, spans, counters, d_down),
            "rows": product(moe.hopper, "token", up_map, rows_map, layer.up, projection_gradient, tiles, counters, dx_rows),
            "gate": ours.gate_gradient(weight_parts, parts, d_logits),
            "combine": ours.summation(dx_rows, moe.NOTHING, dx),
        }

    def __call__(self):
        for step in self.steps.values():
            step()
        return self.gradients


class Theirs:
    """The same of a layer of PyTorch: calling it returns gradients of what `forward` computed last, which it may do often."""

    def __init__(self, layer, logits, gradient, compute, **options):
        self.layer, self.compute, self.gradient, self.options = Layer.__new__(Layer), compute, gradient, options
        self.inputs = [x.detach().requires_grad_() for x in (layer.x, logits, layer.up, layer.down)]
        self.layer.sizes = layer.sizes
        self.layer.x, self.logits, self.layer.up, self.layer.down = self.inputs

    def forward(self):
        self.output = self.compute(self.layer, self.logits, **self.options)

    def __call__(self):
        return torch.autograd.grad(self.output, self.inputs, self.gradient, retain_graph=True)

    def whole(self):
        output = self.compute(self.layer, self.logits, **self.options)
        return torch.autograd.grad(output, self.inputs, self.gradient)


def reference(layer, logits, gradient, **options):
    wide = Layer.__new__(Layer)
    wide.sizes = layer.sizes
    inputs = [x.double().requires_grad_() for x in (layer.x, logits, layer.up, layer.down)]
    wide.x, wide_logits, wide.up, wide.down = inputs
    return torch.autograd.grad(moe.reference(wide, wide_logits, **options), inputs, gradient.double())


def draws(tokens):
    return -(-TOKENS // tokens)


def squares(found, expected):
    """For each tensor, the sums of squares of its errors and of what it must be."""
    return torch.tensor([[float((x.double() - y).square().sum()), float(y.square().sum())] for x, y in zip(found, expected)])


def relative(drawn, name):
    """The relative error of each tensor over all draws."""
    sums = sum(its[name] for its in drawn).tolist()
    # A gradient that is zero but for rounding has no relative error.
    return [math.sqrt(wrong / all_of_it) if all_of_it > 1e-12 else 0.0 for wrong, all_of_it in sums]


def compare(layer, logits, **options):
    """Squares of ours and of PyTorch's layers, by name."""
    gradient = random(*layer.x.shape, dtype=layer.x.dtype)
    expected = reference(layer, logits, gradient, **options)
    ours = Ours(layer, logits, saving=True, **options)
    ours()
    found = {"ours": Backward(layer, ours, gradient)()}
    peers = {"cuBLAS": moe.loop}
    if layer.x.dtype == torch.bfloat16:  # the only type that PyTorch has grouped products for
        peers["grouped"] = moe.grouped
    for name, compute in peers.items():
        theirs = Theirs(layer, logits, gradient, compute, **options)
        try:
            found[name] = theirs.whole()
        except RuntimeError as error:  # it has no kernel for the shape
            print(name, layer.sizes, error)
    return {name: squares(tensors, expected) for name, tensors in found.items()}


def problem(shape, dtype, logits=None, **options):
    """A row of the table of errors."""
    random_logits = lambda: 3 * torch.randn(shape[0], shape[1], device="cuda")
    inputs = [random_logits() for _ in range(draws(shape[0]))] if logits is None else [logits]
    drawn = [compare(Layer(*shape, dtype=dtype), its, **options) for its in inputs]
    row = {"shape": shape, "type": str(dtype)[6:], "draws": len(drawn), **options}
    row |= {name: relative(drawn, name) for name in drawn[0]}
    row["right"] = all(x == x for x in row["ours"]) and worst(row) <= 1.2
    return row


def worst(row):
    """Our error over PyTorch's smaller one, for the gradient where that is largest."""
    peers = [row[name] for name in ("cuBLAS", "grouped") if name in row]
    return max((mine / min(theirs) for mine, *theirs in zip(row["ours"], *peers) if mine), default=0.0)


def errors():
    """Few of the sizes have anything in common with a tile's."""
    shapes = [(1, 4, 1, 256, 128), (77, 5, 3, 136, 72), (513, 3, 3, 64, 64), (1000, 8, 2, 512, 384), (3000, 64, 4, 1024, 512),
              (700, 256, 8, 1024, 200), (2000, 2, 1, 8, 8)]
    rows = [problem(shape, dtype, **options) for shape in shapes for dtype in (torch.bfloat16, torch.float16)
            for options in ({}, {"gate": "sigmoid"}, {"renormalise": False})]
    same = torch.arange(16.0, device="cuda").expand(1000, 16).contiguous()  # most experts have no row
    return rows + [problem((1000, 16, 4, 256, 128), torch.bfloat16, same)]


def timed(sizes):
    layer = Layer(*sizes)
    logits, gradient = layer.logits(), random(sizes[0], sizes[3])
    ours = Ours(layer, logits, saving=True)
    ours()
    backward = Backward(layer, ours, gradient)
    launches = {"forward": ours, "backward": backward, "both": lambda: (ours(), backward())}
    launches |= {f"step {name}": step for name, step in backward.steps.items()}
    plain = Ours(layer, logits)
    launches["forward without saving"] = plain
    peers = {"grouped": moe.grouped, "compiled": torch.compile(moe.grouped, dynamic=False), "loop": moe.loop}
    for name, compute in peers.items():
        theirs = Theirs(layer, logits, gradient, compute)
        theirs.forward()
        launches |= {f"{name} forward": theirs.forward, f"{name} backward": theirs, f"{name} both": theirs.whole}
    return {"sizes": sizes, "operations": 2 * layer.operations} | moe.in_any_order(launches, 3)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    device = facts("scripts/gpu/moe_backward.py")
    checked = errors()
    layers = [timed(sizes) for sizes in ((32768, 64, 4, 4096, 1024), (8192, 8, 2, 4096, 14336))]
    results = {"facts": device, "errors": checked, "layers": layers}
    (out / "moe-backward.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = [f"{device['device']}; PyTorch {device['torch']}.", "", hopper_tables.moe_backward(results),
             f"{sum(row['right'] for row in checked)} of {len(checked)} problems are right; our error is at most "
             f"{max(map(worst, checked)):.2f} times the smaller one of PyTorch's for the same gradient."]
    (out / "moe-backward.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    for row in checked:
        if not row["right"]:
            print("WRONG", row)
    sys.exit(not all(row["right"] for row in checked))


if __name__ == "__main__":
    main()
