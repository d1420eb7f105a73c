"""A step in JAX takes its noise from NumPy's generator and puts it on the device.

Cause: NumPy draws on the host while the device waits. Remedy: jax.random.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from pairs import main


def build(remedy):
    draw = np.random.default_rng(1)
    w = jax.random.normal(jax.random.key(1), (1024, 1024)) * 0.02
    numbers = itertools.count(1)

    @jax.jit
    def advance(w, noise):
        return jnp.tanh(noise @ w).mean()

    @jax.jit
    def drawn(w, number):
        return advance(w, jax.random.normal(jax.random.fold_in(jax.random.key(2), number), (2048, 1024)))

    def step():
        if remedy:
            return drawn(w, next(numbers))
        return advance(w, jax.device_put(draw.standard_normal((2048, 1024)).astype(np.float32)))

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
