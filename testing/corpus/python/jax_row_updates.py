"""A compiled function in JAX fills a matrix row by row, in a fori_loop.

Cause: thousands of small kernels in sequence, one iteration for each row. Remedy: all rows at once, by vmap.
"""

import jax
import jax.numpy as jnp

from pairs import main


def build(remedy):
    rows = jax.random.normal(jax.random.key(1), (2048, 1024))

    def score(row):
        return jax.nn.softmax(row * 2.0) + jnp.roll(row, 1)

    @jax.jit
    def fill(rows):
        if remedy:
            return jax.vmap(score)(rows)
        return jax.lax.fori_loop(0, len(rows), lambda i, out: out.at[i].set(score(rows[i])), jnp.zeros_like(rows))

    return lambda: fill(rows)


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
