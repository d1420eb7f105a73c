"""How far apart the errors of two ways to round the same gradients are, for a mixture of experts whose experts choose.

    scripts/gpu/moe_rounding.py     # prints a table; it needs NumPy, and no GPU

A problem is that of moe_experts.py with one token, four experts and float16: the gradients of the logits are four numbers. All
sums are of float64, and values are rounded where the kernels store them. Ours rounds what Gate and Up give. PyTorch rounds that,
both factors of SwiGLU, their product, the experts' outputs, the products of these with the output's gradient, and their sums. The
gate and its gradient are exact on both sides.
"""

import numpy as np

from figures import table

EXPERTS, DIM, HIDDEN, LIMIT = 4, 256, 128, 1.2
DRAWS, TOGETHER = 1280, 128


def rounded(x):
    return x.astype(np.float16).astype(np.float64)


def silu(x):
    return x / (1 + np.exp(-x))


def gate_gradient(gate, logits, weight_gradients):
    if gate == "sigmoid":
        weights = 1 / (1 + np.exp(-logits))
        return weights * (1 - weights) * weight_gradients
    weights = np.exp(logits - logits.max())
    weights /= weights.sum()
    return weights * (weight_gradients - weights @ weight_gradients)


def draw(random, gate):
    """Squared norms of the errors of ours and of PyTorch's."""
    normal = lambda *shape: random.standard_normal(shape, dtype=np.float32)
    token, gradient = rounded(normal(DIM)), rounded(normal(DIM))
    up, down = rounded(normal(EXPERTS, 2 * HIDDEN, DIM) * DIM**-0.5), rounded(normal(EXPERTS, DIM, HIDDEN) * HIDDEN**-0.5)
    logits = 3 * normal(EXPERTS).astype(np.float64)
    through_gate = lambda weight_gradients: gate_gradient(gate, logits, weight_gradients)
    outputs = lambda hidden: np.squeeze(down @ hidden[..., None], -1)
    gates, ups = np.split(up @ token, 2, axis=1)
    expected = through_gate(outputs(silu(gates) * ups) @ gradient)
    gates, ups = rounded(gates), rounded(ups)
    ours = through_gate((silu(gates) * ups * (gradient @ down)).sum(1))
    products = rounded(rounded(outputs(rounded(rounded(silu(gates)) * ups))) * gradient)
    theirs = through_gate(rounded(products.sum(1)))
    return [((found - expected) ** 2).sum() for found in (ours, theirs)]


def rows(gate):
    random = np.random.default_rng(1)
    squares = np.array([draw(random, gate) for _ in range(DRAWS)])
    for draws in (1, TOGETHER):
        ours, theirs = squares.reshape(-1, draws, 2).sum(1).T
        ratios = np.sqrt(ours / theirs)
        yield [gate, draws, f"{np.median(ratios):.2f}", f"{ratios.max():.2f}", f"{(ratios > LIMIT).mean():.0%}"]


if __name__ == "__main__":
    header = ["gate", "draws of a problem", "error of ours / PyTorch's, median", "largest", f"problems above {LIMIT}"]
    print(table(header, [row for gate in ("softmax", "sigmoid") for row in rows(gate)]), end="")
