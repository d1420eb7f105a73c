"""A compiled function in JAX gets sequences of ever other lengths.

Cause: it is compiled anew for each length. Remedy: sequences are padded to one length.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from pairs import main


@jax.jit
def score(w, x, count):
    mask = jnp.arange(x.shape[0]) < count
    h = jax.nn.softmax(jnp.where(mask, x @ x.T, -jnp.inf), -1) @ x
    for _ in range(4):
        h = jax.nn.gelu(h @ w)
    return jnp.where(mask[:, None], h, 0).sum() / count


lengths = itertools.cycle(range(100, 4000))


def build(remedy):
    w = jax.random.normal(jax.random.key(1), (256, 256)) * 0.06
    text = np.random.default_rng(1).normal(size=(4000, 256)).astype(np.float32)

    def step():
        length = next(lengths)
        return score(w, text if remedy else text[:length], length)

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
