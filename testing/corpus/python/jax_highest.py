"""A layer in JAX whose matrix products have precision "highest", as a guide to reproducible results says.

Cause: products in full FP32. Remedy: the precision is "default".
"""

import jax
import jax.numpy as jnp

from pairs import main


def build(remedy):
    precision = "default" if remedy else "highest"
    keys = jax.random.split(jax.random.key(1), 5)
    x, *weights = [jax.random.normal(key, (4096, 4096)) * 0.02 for key in keys]

    @jax.jit
    def forward(x, weights):
        with jax.default_matmul_precision(precision):
            for w in weights:
                x = jax.nn.relu(x @ w)
        return x

    return lambda: forward(x, weights)


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
