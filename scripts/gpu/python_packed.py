"""Packed sequences and mixtures of experts of `apex_cuda.kernels` with PyTorch, on a GPU: right, and how fast.

    PYTHONPATH=python APEX_LIB_DIR=FOLDER scripts/gpu/python_packed.py OUT

FOLDER holds libapex_kernels_c.so. Writes OUT/python-packed.json, and exits with status 1 when a check fails. Errors are relative, in
the Frobenius norm, of outputs and gradients, against float64 on the same random inputs, beside those of PyTorch in bfloat16. Peers in
time: `varlen_attn` (FlashAttention-2, where PyTorch has it), `scaled_dot_product_attention` of each sequence, and, of small batches, of all
sequences padded to the longest with a mask; for experts, a loop over the experts as it is usually written. Times are those of bench.py
(docs/results/method.md), of the forward pass, and of both passes.

    ROWS=attention scripts/gpu/python_packed.py OUT   # packed sequences only; `experts`: experts only
"""

import inspect
import json
import os
import random as chance
import subprocess
import sys
from pathlib import Path

import bench

import torch
import torch.nn.functional as F
from apex_cuda import kernels

WORST = 1.2  # our error over PyTorch's, at most
LENGTHS = {
    "short": [17, 300, 64, 1, 511, 128],
    "long": [2048, 700, 1500, 96],
    "documents": [8192, 4096, 2048, 1024, 512, 256, 128, 128],
    "mixed": [round(64 * 32 ** chance.Random(seed).random()) for seed in range(32)],  # 64 to 2,048, by their logarithm
}
# lengths, heads, heads of keys, head dimension, causal
BATCHES = [("short", 16, 4, 64, True), ("long", 16, 4, 64, True), ("mixed", 32, 32, 64, True), ("mixed", 16, 16, 128, True),
           ("mixed", 16, 16, 128, False), ("documents", 16, 16, 128, True)]
EXPERTS = {"small": (512, 256, 512, 8, 2), "large": (4096, 1024, 2048, 16, 2)}  # tokens, dim, hidden, experts, top_k


def errors(found, expected):
    pairs = [(x.detach().double(), y.detach().double()) for x, y in zip(found, expected)]
    return [float((x - y).norm() / y.norm().clamp_min(1e-30)) for x, y in pairs]


def with_gradients(function, leaves, given):
    out = function(*leaves)
    return [out, *torch.autograd.grad(out, leaves, given.to(out.dtype))]


def of_each(lengths, causal, q, k, v):
    """Attention of each sequence alone, by PyTorch."""
    parts = zip(*(x.split(lengths) for x in (q, k, v)))
    heads = [[x.transpose(0, 1)[None] for x in part] for part in parts]
    outs = [F.scaled_dot_product_attention(*part, is_causal=causal, enable_gqa=True) for part in heads]
    return torch.cat([out[0].transpose(0, 1) for out in outs])


def padded(lengths, causal, q, k, v):
    """Attention of all sequences, padded to the longest."""
    longest = max(lengths)
    lengths_there = torch.tensor(lengths, device=q.device)
    inside = torch.arange(longest, device=q.device)[None] < lengths_there[:, None]
    grid = [q.new_zeros(len(lengths), longest, *x.shape[1:]).masked_scatter(inside[..., None, None], x).transpose(1, 2) for x in (q, k, v)]
    mask = inside[:, None, None]
    if causal:
        mask = mask & torch.ones(longest, longest, dtype=torch.bool, device=q.device).tril()
    out = F.scaled_dot_product_attention(*grid, attn_mask=mask, enable_gqa=True)
    return out.transpose(1, 2)[inside]


def varlen(lengths, causal):
    """PyTorch's attention of packed sequences; none where it has none."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    starts = torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)
    known, longest = inspect.signature(varlen_attn).parameters, max(lengths)
    options = {"is_causal": causal} if "is_causal" in known else {"window_size": (-1, 0 if causal else -1)}
    if "enable_gqa" in known:
        options["enable_gqa"] = True
    return lambda q, k, v: varlen_attn(q, k, v, starts, starts, longest, longest, **options)


def experts_of(top_k, tokens, logits, up, down):
    """A mixture of experts as a loop over the experts."""
    weights, chosen = torch.topk(torch.softmax(logits, -1), top_k)
    weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(tokens)
    for expert in range(up.shape[0]):
        rows, place = torch.where(chosen == expert)
        x = tokens[rows]
        gated = F.silu(x @ up[expert, 0].T) * (x @ up[expert, 1].T)
        out = out.index_add(0, rows, (weights[rows, place, None] * (gated @ down[expert].T)).to(out.dtype))
    return out


def times(ways, leaves, given):
    """Milliseconds of each round of each way, in turns: of the forward pass, and of both."""
    forward = {name: lambda way=way: way(*leaves) for name, way in ways.items()}
    both = {name: lambda way=way: with_gradients(way, leaves, given) for name, way in ways.items()}
    with torch.no_grad():
        found = {"forward": bench.in_turns(forward, lambda _: 5)}
    found["both"] = bench.in_turns(both, lambda _: 3)
    return {which: {name: {"ms": its["ms"], "hidden": its["hidden"]} for name, its in of.items()} for which, of in found.items()}


def usable(name, way, leaves, given):
    """Whether PyTorch computes this way at all."""
    try:
        with_gradients(way, leaves, given)
        return True
    except Exception as why:
        print(f"{name}: {why}"[:300], flush=True)
        return False


def measured(name, ours, theirs, leaves):
    """Errors and times of one problem; `theirs` are PyTorch's ways, the first one is compared."""
    given = torch.randn_like(ours(*leaves))
    first = next(iter(theirs.values()))
    doubles = [x.detach().double().requires_grad_() for x in leaves]
    expected = with_gradients(first, doubles, given)
    our_errors = errors(with_gradients(ours, leaves, given), expected)
    their_errors = errors(with_gradients(first, leaves, given), expected)
    is_right = all(one <= WORST * other + 1e-7 for one, other in zip(our_errors, their_errors))
    del expected, doubles
    theirs = {name: way for name, way in theirs.items() if way and usable(name, way, leaves, given)}
    row = {"name": name, "right": is_right, "errors": our_errors, "pytorch_errors": their_errors}
    row |= times({"apex": ours, **theirs}, leaves, given)
    shown = {which: {way: round(bench.median(its["ms"]), 3) for way, its in row[which].items()} for which in ("forward", "both")}
    print(json.dumps(row | shown), flush=True)
    return row


def random(*shape, scale=1.0, dtype=torch.bfloat16):
    return (scale * torch.randn(*shape, device="cuda")).to(dtype).requires_grad_()


def attention(name, heads, key_heads, dim, causal):
    lengths = LENGTHS[name]
    sequences, rows = kernels.Sequences(lengths), sum(lengths)
    leaves = [random(rows, heads, dim), random(rows, key_heads, dim), random(rows, key_heads, dim)]
    theirs = {"each sequence": lambda *x: of_each(lengths, causal, *x), "varlen_attn": varlen(lengths, causal)}
    if rows < 8192:  # more takes seconds
        theirs["padded"] = lambda *x: padded(lengths, causal, *x)
    mask = "causal" if causal else "full"
    title = f"packed attention, {name}, {heads} and {key_heads} heads of {dim}, {mask}"
    return measured(title, lambda *x: kernels.packed_attention(*x, sequences, causal=causal), theirs, leaves)


def mixture(name, tokens, dim, hidden, experts, top_k):
    leaves = [random(tokens, dim), random(tokens, experts, dtype=torch.float32), random(experts, 2, hidden, dim, scale=dim**-0.5), random(experts, dim, hidden, scale=hidden**-0.5)]
    theirs = {"a loop over experts": lambda *x: experts_of(top_k, *x)}
    return measured(f"mixture of experts, {name}", lambda *x: kernels.mixture_of_experts(*x, top_k=top_k), theirs, leaves)


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(20261130)
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    machine = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    wanted = os.environ.get("ROWS", "attention,experts").split(",")
    rows, problems = [], [lambda batch=batch: attention(*batch) for batch in BATCHES if "attention" in wanted]
    problems += [lambda name=name, sizes=sizes: mixture(name, *sizes) for name, sizes in EXPERTS.items() if "experts" in wanted]
    for problem in problems:
        rows.append(problem())
        results = {"machine": machine, "torch": torch.__version__, "rows": rows}
        (out / "python-packed.json").write_text(json.dumps(results) + "\n")
    sys.exit(not all(row["right"] for row in rows))


if __name__ == "__main__":
    main()
