"""A network in JAX learns to read digits. A setting that once helped to find an error is still on.

Cause: with jax_debug_nans, every result is copied to the host and searched for NaN. Remedy: the setting is off.
"""

import jax
import jax.numpy as jnp

from pairs import main

WIDTHS = (784, 2048, 2048, 2048, 10)
RATE = 1e-3


def fresh(key):
    layers = []
    for inside, outside in zip(WIDTHS[:-1], WIDTHS[1:]):
        key, own = jax.random.split(key)
        layers.append({"w": jax.random.normal(own, (inside, outside)) * (2 / inside) ** 0.5, "b": jnp.zeros(outside)})
    return layers


def loss(layers, x, y):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    scores = jax.nn.log_softmax(x @ layers[-1]["w"] + layers[-1]["b"])
    return -jnp.take_along_axis(scores, y[:, None], 1).mean()


@jax.jit
def update(layers, speeds, x, y):
    gradients = jax.grad(loss)(layers, x, y)
    speeds = jax.tree.map(lambda speed, change: 0.9 * speed + change, speeds, gradients)
    return jax.tree.map(lambda weight, speed: weight - RATE * speed, layers, speeds), speeds


def build(remedy):
    layers = fresh(jax.random.key(1))
    pictures = jax.random.normal(jax.random.key(2), (8, 512, WIDTHS[0]))
    digits = jax.random.randint(jax.random.key(3), (8, 512), 0, 10)
    state = {"layers": layers, "speeds": jax.tree.map(jnp.zeros_like, layers), "batch": 0}

    def step():
        state["batch"] += 1
        at = state["batch"] % 8
        with jax.debug_nans(not remedy):
            state["layers"], state["speeds"] = update(state["layers"], state["speeds"], pictures[at], digits[at])

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
