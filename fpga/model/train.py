#!/usr/bin/env python3
"""Trains a small transformer and records Q, K and V of its attention: data/ecp5/tiles/qkv.bin.

One layer, one causal head of 64 elements, learned positions, a residual connection; it predicts the next character of
LICENSE-APACHE. NumPy only, in 64 bits, seeded: half a minute. The recorded head has 256 positions that were not trained on
(the end of the text). The file has three matrices, row by row, of little-endian 16-bit integers in units of 1/4096; this
rounding is part of the data, so that the errors measured with it do not depend on it.

    python3 fpga/model/train.py data/ecp5/tiles/qkv.bin
"""

import sys
from pathlib import Path

import numpy

LENGTH, WIDTH, BATCH, STEPS, RATE, HELD_OUT = 256, 64, 4, 1500, 3e-3, 1024
TEXT = Path(__file__).resolve().parents[2] / "LICENSE-APACHE"


def softmax(scores):
    weights = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def forward(weights, tokens):
    """Everything that the backward pass needs; logits are the last value."""
    x = weights["embedding"][tokens] + weights["position"]
    q, k, v = (x @ weights[name] for name in "qkv")
    scores = q @ k.transpose(0, 2, 1) / numpy.sqrt(WIDTH)
    attention = softmax(numpy.where(numpy.tri(LENGTH, dtype=bool), scores, -numpy.inf))
    mixed = attention @ v
    y = x + mixed @ weights["out"]
    return x, q, k, v, attention, mixed, y, y @ weights["head"]


def gradients(weights, tokens, targets):
    """The loss, and its derivative by each weight."""
    x, q, k, v, attention, mixed, y, logits = forward(weights, tokens)
    predicted = softmax(logits)
    rows = numpy.arange(BATCH)[:, None], numpy.arange(LENGTH)[None, :], targets
    loss = -numpy.log(predicted[rows]).mean()
    predicted[rows] -= 1
    d_logits = predicted / targets.size
    summed = lambda a, b: numpy.einsum("bti,btj->ij", a, b)
    d_y = d_logits @ weights["head"].T
    d_mixed = d_y @ weights["out"].T
    d_attention = d_mixed @ v.transpose(0, 2, 1)
    d_v = attention.transpose(0, 2, 1) @ d_mixed
    d_scores = attention * (d_attention - (d_attention * attention).sum(axis=-1, keepdims=True)) / numpy.sqrt(WIDTH)
    d_q, d_k = d_scores @ k, d_scores.transpose(0, 2, 1) @ q
    d_x = d_y + d_q @ weights["q"].T + d_k @ weights["k"].T + d_v @ weights["v"].T
    d_embedding = numpy.zeros_like(weights["embedding"])
    numpy.add.at(d_embedding, tokens, d_x)
    return loss, {
        "head": summed(y, d_logits), "out": summed(mixed, d_y), "q": summed(x, d_q), "k": summed(x, d_k), "v": summed(x, d_v),
        "position": d_x.sum(axis=0), "embedding": d_embedding,
    }


def train(text, alphabet):
    draw = numpy.random.default_rng(1)
    shapes = {"embedding": (alphabet, WIDTH), "position": (LENGTH, WIDTH), "head": (WIDTH, alphabet)}
    shapes |= {name: (WIDTH, WIDTH) for name in ("q", "k", "v", "out")}
    weights = {name: draw.normal(0, 0.125, shape) for name, shape in shapes.items()}
    means = {name: numpy.zeros(shape) for name, shape in shapes.items()}
    squares = {name: numpy.zeros(shape) for name, shape in shapes.items()}
    for step in range(1, STEPS + 1):
        starts = draw.integers(0, len(text) - HELD_OUT - LENGTH - 1, BATCH)
        windows = numpy.stack([text[start:start + LENGTH + 1] for start in starts])
        loss, by_weight = gradients(weights, windows[:, :-1], windows[:, 1:])
        for name, gradient in by_weight.items():  # Adam
            means[name] = 0.9 * means[name] + 0.1 * gradient
            squares[name] = 0.99 * squares[name] + 0.01 * gradient**2
            scale = numpy.sqrt(1 - 0.99**step) / (1 - 0.9**step)
            weights[name] -= RATE * scale * means[name] / (numpy.sqrt(squares[name]) + 1e-8)
        if step in (1, 10, 100, 500, STEPS):
            print(f"step {step}: {loss:.3f} nats a character", file=sys.stderr)
    return weights


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    characters = numpy.frombuffer(TEXT.read_bytes(), dtype=numpy.uint8)
    known, text = numpy.unique(characters, return_inverse=True)
    weights = train(text, len(known))
    _, q, k, v, attention, *_ = forward(weights, text[None, -LENGTH:])
    print(f"mean of the largest weight of a row: {attention.max(axis=-1).mean():.3f}", file=sys.stderr)
    matrices = numpy.rint(numpy.concatenate([q, k, v]) * 4096)
    if numpy.abs(matrices).max() > 32767:
        sys.exit("a number is 8 or more: it does not fit")
    Path(sys.argv[1]).write_bytes(matrices.astype("<i2").tobytes())


if __name__ == "__main__":
    main()
