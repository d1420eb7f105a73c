"""A training step in JAX without jit: every operation is dispatched alone.

Cause: launch-bound. Remedy: jax.jit.
"""

import jax
import jax.numpy as jnp

from pairs import main


def loss(weights, x):
    for w, b in weights:
        x = jax.nn.gelu(x @ w + b)
    return jnp.mean(x**2)


def update(weights, x):
    return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, jax.grad(loss)(weights, x))


def build(remedy):
    keys = jax.random.split(jax.random.key(1), 5)
    weights = [(jax.random.normal(k, (256, 256)) * 0.06, jnp.zeros(256)) for k in keys[:4]]
    x = jax.random.normal(keys[4], (128, 256))
    call = jax.jit(update) if remedy else update
    state = [weights]

    def step():
        state[0] = call(state[0], x)

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
