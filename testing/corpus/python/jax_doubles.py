"""A simulation in JAX runs with jax_enable_x64, which was switched on for one test.

Cause: all numbers have 64 bits. Remedy: arrays in single precision.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pairs import main

jax.config.update("jax_enable_x64", True)


def build(remedy):
    numbers = np.random.default_rng(1).standard_normal((4096, 4096))
    x = jnp.asarray(numbers, dtype=jnp.float32 if remedy else None)

    @jax.jit
    def advance(x):
        for _ in range(6):
            x = jnp.exp(-jnp.square(jnp.sin(x))) * jnp.cos(x) + x * jnp.float32(0.5)
        return x

    return lambda: advance(x)


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
