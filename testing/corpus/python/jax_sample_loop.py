"""A compiled function of one sample in JAX, called for each sample of a batch.

Cause: launch-bound loop over samples. Remedy: jax.vmap.
"""

import jax
import jax.numpy as jnp

from pairs import main


def energy(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.sum(x**2)


force = jax.grad(energy, argnums=1)


def build(remedy):
    keys = jax.random.split(jax.random.key(1), 4)
    weights = [jax.random.normal(k, (128, 128)) * 0.1 for k in keys[:3]]
    samples = jax.random.normal(keys[3], (256, 128))
    each = [samples[i] for i in range(len(samples))]
    one, all_ = jax.jit(force), jax.jit(jax.vmap(force, in_axes=(None, 0)))

    def step():
        return all_(weights, samples) if remedy else [one(weights, x) for x in each]

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
