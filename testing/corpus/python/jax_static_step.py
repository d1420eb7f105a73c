"""A compiled update in JAX whose step number is a static argument.

Cause: it is compiled anew for each number. Remedy: the number is traced.
"""

import functools
import itertools

import jax
import jax.numpy as jnp

from pairs import main

numbers = itertools.count(1)


def update(w, x, number):
    rate = 1e-3 / (1 + 0.01 * number)
    gradient = jax.grad(lambda w: jnp.square(jnp.tanh(x @ w)).mean())(w)
    return w - rate * gradient


def build(remedy):
    x, w = jax.random.normal(jax.random.key(1), (2, 2048, 2048)) * 0.02
    compiled = jax.jit(update) if remedy else functools.partial(jax.jit, static_argnums=2)(update)
    return lambda: compiled(w, x, next(numbers))


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
