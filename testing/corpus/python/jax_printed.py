"""A compiled step of JAX prints its residual, as it did when it was debugged.

Cause: jax.debug.print calls the host in every iteration. Remedy: no print.
"""

import jax
import jax.numpy as jnp

from pairs import main


def build(remedy):
    a = jax.random.normal(jax.random.key(1), (512, 512)) * 0.01

    @jax.jit
    def solve(x):
        for i in range(20):
            r = x - a @ x
            x = x - 0.5 * r
            if not remedy:
                jax.debug.callback(lambda n, i=i: f"iteration {i}: {n:.3e}", jnp.linalg.norm(r))
        return x

    x = jnp.ones((512, 64))
    return lambda: solve(x)


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
