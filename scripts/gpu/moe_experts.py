"""Checks and measures layers whose experts choose, forward and backward, beside PyTorch's grouped products, in one process.

    scripts/gpu/moe_experts.py OUT     # writes OUT/moe-experts.md and OUT/moe-experts.json

It needs a Hopper GPU and PyTorch. Layers, errors and times are those of moe.py and moe_backward.py; a layer of the same sizes
whose tokens choose stands beside it.
"""

import ctypes as ct
import json
import pathlib
import sys

import torch
import torch.nn.functional as F

import moe
from attention import facts, load_ptx, random
from moe import Layer, Ours, Pass, launcher, median, scores_of, spread, words
from moe_backward import Backward, Theirs, draws, relative, squares

SCAN = 256
kernels = load_ptx("moe_expert_choice")


class Experts(Pass):
    """Experts choose."""

    def __init__(self, layer, logits, gate="softmax", saving=False):
        tokens, experts, _, _, _ = layer.sizes
        capacity = self.capacity = capacity_of(layer)
        super().__init__(layer, logits, experts * capacity, gate, False, saving)
        row_tokens, row_choices, spans, tiles, _ = self.plan
        self.tokens, self.weights = words(experts, capacity), torch.full((experts, capacity), float("nan"), device="cuda")
        self.loads, slots, blocks = words(tokens), words(experts, tokens), -(-tokens // SCAN)
        self.starts, self.token_rows, sums = words(tokens + 1), words(self.rows), words(blocks)
        self.routing = [
            launcher(kernels, "moe_expert_scores", self.problem.chunks, 256, 0, logits, slots, self.problem),
            launcher(kernels, "moe_expert_select", experts, 1024, 0, slots, self.tokens, self.weights, row_tokens, row_choices,
                     spans, tiles, ct.c_int(capacity), self.problem),
            launcher(kernels, "moe_expert_count", blocks, SCAN, 0, slots, self.loads, self.starts, sums, self.problem),
            launcher(kernels, "moe_expert_list", blocks, SCAN, 0, slots, sums, self.starts, self.token_rows, self.problem),
        ]
        self.combine = self.summation(self.y, self.weights, self.output)

    def summation(self, rows, weights, to):
        return launcher(kernels, f"moe_expert_combine_{self.kind}", self.problem.tokens, 256, 0, rows, weights, self.starts,
                        self.token_rows, to, self.problem)

    def gate_gradient(self, weight_parts, parts, to):
        return launcher(kernels, "moe_expert_gate_gradient", -(-self.problem.tokens // 8), 256, 32 * self.problem.experts,
                        self.logits, self.weights, self.starts, self.token_rows, weight_parts, ct.c_int(parts),
                        ct.c_int(self.capacity), to, self.problem)


def capacity_of(layer):
    tokens, experts, top_k, _, _ = layer.sizes
    return min(tokens, -(-tokens * top_k // experts))


def choose(layer, logits, gate):
    """Weights and tokens of each expert, [experts, capacity]."""
    weights, tokens = torch.topk(scores_of(logits, gate).t(), capacity_of(layer), sorted=False)
    return weights, tokens


def experts_grouped(layer, logits, gate="softmax"):
    """PyTorch's grouped products."""
    weights, tokens = choose(layer, logits, gate)
    ends = torch.arange(1, layer.sizes[1] + 1, device="cuda", dtype=torch.int32) * tokens.shape[1]
    gates, ups = torch._grouped_mm(layer.x[tokens.flatten()], layer.up.transpose(1, 2), offs=ends).chunk(2, -1)
    y = torch._grouped_mm(F.silu(gates) * ups, layer.down.transpose(1, 2), offs=ends)
    return torch.zeros_like(layer.x).index_add(0, tokens.flatten(), y * weights.flatten()[:, None].to(y.dtype))


def experts_batched(layer, logits, gate="softmax"):
    """The same as batched products, which is the definition where the layer is of float64."""
    weights, tokens = choose(layer, logits, gate)
    gates, ups = torch.bmm(layer.x[tokens], layer.up.transpose(1, 2)).chunk(2, -1)
    y = torch.bmm(F.silu(gates) * ups, layer.down.transpose(1, 2)) * weights[..., None].to(layer.x.dtype)
    return torch.zeros_like(layer.x).index_add(0, tokens.flatten(), y.flatten(0, 1))


def separate(layer, logits, gate):
    """Logits with which no expert's choice depends on rounding."""
    capacity = capacity_of(layer)
    while capacity < logits.shape[0]:
        scores, order = torch.sort(scores_of(logits.double(), gate).t(), descending=True)
        close = (scores[:, capacity - 1] - scores[:, capacity]) < 1e-6 * scores[:, capacity - 1]
        if not close.any():
            break
        logits[order[close, capacity]] = 3 * torch.randn(int(close.sum()), logits.shape[1], device="cuda")
    return logits


def wide(layer):
    result = Layer.__new__(Layer)
    result.sizes = layer.sizes
    result.x, result.up, result.down = layer.x.double(), layer.up.double(), layer.down.double()
    return result


def compare(layer, gate):
    """Squares of ours and of cuBLAS' output and gradients, by name, and whether experts chose as they must."""
    logits = separate(layer, 3 * torch.randn(*layer.sizes[:2], device="cuda"), gate)
    gradient = random(*layer.x.shape, dtype=layer.x.dtype)

    def passes(layer, logits, gradient):
        theirs = Theirs(layer, logits, gradient, experts_batched, gate=gate)
        theirs.forward()
        return [theirs.output.detach(), *theirs()]

    expected = passes(wide(layer), logits.double(), gradient.double())
    ours = Experts(layer, logits, gate, saving=True)
    output = ours()
    chosen = torch.sort(choose(layer, logits.double(), gate)[1]).values
    return {"ours": squares([output, *Backward(layer, ours, gradient)()], expected),
            "cuBLAS": squares(passes(layer, logits, gradient), expected), "chosen": bool((chosen == ours.tokens).all())}


def problem(shape, dtype, gate):
    drawn = [compare(Layer(*shape, dtype=dtype), gate) for _ in range(draws(shape[0]))]
    row = {"shape": shape, "type": str(dtype)[6:], "gate": gate, "draws": len(drawn)}
    row |= {name: relative(drawn, name) for name in ("ours", "cuBLAS")}
    row["right"] = all(its["chosen"] for its in drawn) and all(
        mine == mine and mine <= 1.2 * theirs for mine, theirs in zip(row["ours"], row["cuBLAS"]))
    return row


def errors():
    shapes = [(1, 4, 1, 256, 128), (77, 5, 3, 136, 72), (1000, 8, 2, 512, 384), (3000, 64, 4, 1024, 512), (700, 256, 8, 1024, 200)]
    return [problem(shape, dtype, gate) for shape in shapes for dtype in (torch.bfloat16, torch.float16)
            for gate in ("softmax", "sigmoid")]


def timed(sizes):
    layer = Layer(*sizes)
    logits, gradient = layer.logits(), random(sizes[0], sizes[3])
    ours, tokens = Experts(layer, logits, saving=True), Ours(layer, logits, saving=True)
    first = ours().clone()
    tokens()
    launches = {"experts choose": ours, "tokens choose": tokens, "experts: routing": ours.route, "tokens: routing": tokens.route,
                "experts: combine": ours.combine, "tokens: combine": tokens.combine}
    launches |= beginnings(Experts(layer, logits).routing)
    launches |= {"experts: backward": Backward(layer, ours, gradient), "tokens: backward": Backward(layer, tokens, gradient)}
    theirs = Theirs(layer, logits, gradient, experts_grouped)
    theirs.forward()
    launches |= {"grouped": theirs.forward, "grouped: backward": theirs}
    times = moe.in_any_order(launches, 5)
    return {"sizes": sizes, "right": torch.equal(ours(), first)} | times


def beginnings(routing):
    """The first kernels of a routing, of a pass that nothing else uses. A kernel alone cannot be repeated: `select` and `list`
    write over what they read, so that a second launch would take rows for scores, and list rows past the end."""
    names = "scores", "select", "count"
    return {f"experts: routing up to {name}": lambda some=routing[:i]: [kernel() for kernel in some]
            for i, name in enumerate(names, 1)}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    device = facts("scripts/gpu/moe_experts.py")
    checked = errors()
    layers = [timed(sizes) for sizes in ((32768, 64, 4, 4096, 1024), (8192, 8, 2, 4096, 14336))]
    (out / "moe-experts.json").write_text(json.dumps({"facts": device, "errors": checked, "layers": layers}, indent=1) + "\n")
    lines = [f"{device['device']}; PyTorch {device['torch']}.", ""]
    for row in layers:
        lines += [f"{moe.NAMES}: {', '.join(map(str, row['sizes']))}", "", "| what | µs | spread |", "| --- | --- | --- |"]
        lines += [f"| {name} | {median(row, name):.0f} | {spread(row, name):.0%} |" for name in row["us"]] + [""]
    lines.append(f"{sum(row['right'] for row in checked)} of {len(checked)} problems are right; the timed layers compute "
                 f"{'the same after it' if all(row['right'] for row in layers) else 'SOMETHING ELSE after it'}.")
    (out / "moe-experts.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    for row in checked + layers:
        if not row["right"]:
            print("WRONG", row)
    sys.exit(not all(row["right"] for row in checked + layers))


if __name__ == "__main__":
    main()
