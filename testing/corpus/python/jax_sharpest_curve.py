"""How sharply does a loss bend? Power iteration finds the direction in which its gradient changes most.

Cause: the whole matrix of second derivatives is computed, to be multiplied by one vector. Remedy: the derivative of the gradient
along that vector.
"""

import jax
import jax.numpy as jnp

from pairs import main

INSIDE, HIDDEN, SAMPLES = 32, 32, 1024


def loss(weights, x, y):
    first = weights[: INSIDE * HIDDEN].reshape(INSIDE, HIDDEN)
    last = weights[INSIDE * HIDDEN :]
    return ((jnp.tanh(x @ first) @ last - y) ** 2).mean()


def bend_whole(weights, x, y, direction):
    return jax.hessian(loss)(weights, x, y) @ direction


def bend_along(weights, x, y, direction):
    return jax.jvp(lambda w: jax.grad(loss)(w, x, y), (weights,), (direction,))[1]


def build(remedy):
    keys = jax.random.split(jax.random.key(1), 4)
    weights = jax.random.normal(keys[0], (INSIDE * HIDDEN + HIDDEN,)) * 0.2
    x, y = jax.random.normal(keys[1], (8, SAMPLES, INSIDE)), jax.random.normal(keys[2], (8, SAMPLES))
    bend = jax.jit(bend_along if remedy else bend_whole)
    state = {"direction": jax.random.normal(keys[3], weights.shape), "batch": 0}

    @jax.jit
    def unit(bent):
        return bent / jnp.linalg.norm(bent)

    def step():
        state["batch"] += 1
        at = state["batch"] % 8
        state["direction"] = unit(bend(weights, x[at], y[at], state["direction"]))

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
