"""Packed sequences and mixtures of experts of `apex_cuda.kernels` with PyTorch, on a GPU: right, and how fast.

    PYTHONPATH=python APEX_LIB_DIR=FOLDER scripts/gpu/python_packed.py OUT

FOLDER holds libapex_kernels_c.so. Writes OUT/python-packed.json, and exits with status 1 when a check fails. Errors are relative, in
the Frobenius norm, of outputs and gradients, against float64 on the same random inputs, beside those of PyTorch in bfloat16. Peers in
time: `scaled_dot_product_attention` of each sequence, and of all sequences padded to the longest with a mask; for experts, a loop over
the experts as it is usually written. Times are medians of 20 calls in turns, forward and backward, by events.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from apex_cuda import kernels

WORST = 1.2  # our error over PyTorch's, at most
HEADS, KEY_HEADS, DIM = 16, 4, 64
BATCHES = {"short": [17, 300, 64, 1, 511, 128], "long": [2048, 700, 1500, 96]}
EXPERTS = {"small": (512, 256, 512, 8, 2), "large": (4096, 1024, 2048, 16, 2)}  # tokens, dim, hidden, experts, top_k


def errors(found, expected):
    pairs = [(x.detach().double(), y.detach().double()) for x, y in zip(found, expected)]
    return [float((x - y).norm() / y.norm().clamp_min(1e-30)) for x, y in pairs]


def with_gradients(function, leaves, given):
    out = function(*leaves)
    return [out, *torch.autograd.grad(out, leaves, given.to(out.dtype))]


def of_each(lengths, q, k, v):
    """Attention of each sequence alone, by PyTorch."""
    parts = zip(*(x.split(lengths) for x in (q, k, v)))
    heads = [[x.transpose(0, 1)[None] for x in part] for part in parts]
    outs = [F.scaled_dot_product_attention(*part, is_causal=True, enable_gqa=True) for part in heads]
    return torch.cat([out[0].transpose(0, 1) for out in outs])


def padded(lengths, q, k, v):
    """Attention of all sequences, padded to the longest."""
    longest = max(lengths)
    lengths_there = torch.tensor(lengths, device=q.device)
    inside = torch.arange(longest, device=q.device)[None] < lengths_there[:, None]
    grid = [q.new_zeros(len(lengths), longest, *x.shape[1:]).masked_scatter(inside[..., None, None], x).transpose(1, 2) for x in (q, k, v)]
    mask = inside[:, None, None] & torch.ones(longest, longest, dtype=torch.bool, device=q.device).tril()
    out = F.scaled_dot_product_attention(*grid, attn_mask=mask, enable_gqa=True)
    return out.transpose(1, 2)[inside]


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
    """Median milliseconds of each way, forward and backward, in turns."""
    found = {name: [] for name in ways}
    for turn in range(24):
        for name, function in ways.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            with_gradients(function, leaves, given)
            end.record()
            end.synchronize()
            if turn >= 4:
                found[name].append(begin.elapsed_time(end))
    return {name: statistics.median(of_way) for name, of_way in found.items()}


def measured(name, ours, theirs, leaves):
    """Errors and times of one problem; `theirs` are PyTorch's ways, the first one is compared."""
    given = torch.randn_like(leaves[0])
    first = next(iter(theirs.values()))
    doubles = [x.detach().double().requires_grad_() for x in leaves]
    expected = with_gradients(first, doubles, given)
    our_errors = errors(with_gradients(ours, leaves, given), expected)
    their_errors = errors(with_gradients(first, leaves, given), expected)
    is_right = all(one <= WORST * other + 1e-7 for one, other in zip(our_errors, their_errors))
    row = {"name": name, "right": is_right, "errors": our_errors, "pytorch_errors": their_errors, "ms": times({"apex": ours, **theirs}, leaves, given)}
    print(json.dumps(row), flush=True)
    return row


def random(*shape, scale=1.0, dtype=torch.bfloat16):
    return (scale * torch.randn(*shape, device="cuda")).to(dtype).requires_grad_()


def attention(name, lengths):
    sequences, rows = kernels.Sequences(lengths), sum(lengths)
    leaves = [random(rows, HEADS, DIM), random(rows, KEY_HEADS, DIM), random(rows, KEY_HEADS, DIM)]
    theirs = {"each sequence": lambda *x: of_each(lengths, *x), "padded": lambda *x: padded(lengths, *x)}
    return measured(f"packed attention, {name}", lambda *x: kernels.packed_attention(*x, sequences, causal=True), theirs, leaves)


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
    rows = [attention(*batch) for batch in BATCHES.items()] + [mixture(name, *sizes) for name, sizes in EXPERTS.items()]
    results = {"machine": machine, "torch": torch.__version__, "rows": rows}
    (out / "python-packed.json").write_text(json.dumps(results) + "\n")
    sys.exit(not all(row["right"] for row in rows))


if __name__ == "__main__":
    main()
