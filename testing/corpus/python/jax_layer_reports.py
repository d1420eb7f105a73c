"""A network in JAX is trained, and each step reports the size of the gradient of every layer.

Cause: jnp.array of a list of 240 scalars on the GPU handles each of them alone. Remedy: they are stacked in the compiled step.
"""

import jax
import jax.numpy as jnp

from pairs import main

LAYERS, WIDTH, RATE = 120, 128, 1e-3


def loss(layers, x, y):
    for layer in layers:
        x = x + 0.1 * jax.nn.relu(x @ layer["w"] + layer["b"])
    return ((x - y) ** 2).mean()


def changed(layers, x, y):
    gradients = jax.grad(loss)(layers, x, y)
    sizes = [jnp.linalg.norm(part) for part in jax.tree.leaves(gradients)]
    return jax.tree.map(lambda weight, change: weight - RATE * change, layers, gradients), sizes


@jax.jit
def update(layers, x, y):
    return changed(layers, x, y)


@jax.jit
def update_and_report(layers, x, y):
    layers, sizes = changed(layers, x, y)
    return layers, jnp.stack(sizes)


def build(remedy):
    keys = jax.random.split(jax.random.key(1), LAYERS + 2)
    layers = [{"w": jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5, "b": jnp.zeros(WIDTH)} for key in keys[2:]]
    x, y = jax.random.normal(keys[0], (4, 256, WIDTH)), jax.random.normal(keys[1], (4, 256, WIDTH))
    state = {"layers": layers, "step": 0, "report": jnp.zeros(2 * LAYERS)}

    def step():
        state["step"] += 1
        at = state["step"] % 4
        if remedy:
            state["layers"], report = update_and_report(state["layers"], x[at], y[at])
        else:
            state["layers"], sizes = update(state["layers"], x[at], y[at])
            report = jnp.array(sizes)
        state["report"] = 0.9 * state["report"] + 0.1 * report

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
