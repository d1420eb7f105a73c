"""A JAX program scores words with a model whose weights it read from a file of NumPy arrays.

Cause: the weights stay NumPy arrays, so each call of the compiled function copies them to the GPU. Remedy: jax.device_put once.
"""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from pairs import main

WIDTH, LAYERS, WORDS = 512, 4, 8192


def write_model(file):
    generator = np.random.default_rng(1)
    arrays = {"embedding": generator.standard_normal((WORDS, WIDTH), np.float32) * 0.02}
    for layer in range(LAYERS):
        arrays[f"up{layer}"] = generator.standard_normal((WIDTH, 2 * WIDTH), np.float32) * 0.02
        arrays[f"down{layer}"] = generator.standard_normal((2 * WIDTH, WIDTH), np.float32) * 0.02
    np.savez(file, **arrays)


def read_model(file):
    with np.load(file) as arrays:
        return dict(arrays)


@jax.jit
def score(model, words):
    x = model["embedding"][words].astype(jnp.bfloat16)
    for layer in range(LAYERS):
        hidden = jax.nn.gelu(x @ model[f"up{layer}"].astype(jnp.bfloat16))
        x = x + hidden @ model[f"down{layer}"].astype(jnp.bfloat16)
    logits = x.astype(jnp.float32) @ model["embedding"].T
    return jax.nn.log_softmax(logits).max(-1)


def build(remedy):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.npz")
        write_model(file)
        model = read_model(file)
    if remedy:
        model = jax.device_put(model)
    texts = [jax.random.randint(key, (16, 64), 0, WORDS) for key in jax.random.split(jax.random.key(1), 8)]
    state = {"text": 0}

    def step():
        state["text"] += 1
        return score(model, texts[state["text"] % len(texts)])

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
