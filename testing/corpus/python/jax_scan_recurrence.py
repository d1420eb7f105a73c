"""A gated recurrence in JAX over 256 time steps by lax.scan, a small step at a time.

Cause: launch-bound: the loop's steps are small. Remedy: lax.scan unrolls 16 of them.
"""

import jax
import jax.numpy as jnp

from pairs import main


def build(remedy):
    keys = jax.random.split(jax.random.key(1), 4)
    w, u = jax.random.normal(keys[0], (256, 512)) * 0.06, jax.random.normal(keys[1], (256, 512)) * 0.06
    inputs = jax.random.normal(keys[2], (256, 64, 256))

    @jax.jit
    def recurrence(h, inputs):
        def cell(h, x):
            gate, value = jnp.split(x @ w + h @ u, 2, axis=-1)
            h = jax.nn.sigmoid(gate) * h + (1 - jax.nn.sigmoid(gate)) * jnp.tanh(value)
            return h, h.mean(axis=-1)

        return jax.lax.scan(cell, h, inputs, unroll=16 if remedy else 1)

    state = [jnp.zeros((64, 256))]

    def step():
        state[0], _ = recurrence(state[0], inputs)

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
