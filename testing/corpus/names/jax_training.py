"""A training step in JAX: what XLA's fusions and libraries are called."""

import jax
import jax.numpy as jnp


def loss(weights, x):
    for w, b in weights:
        x = jax.nn.gelu(x @ w + b)
        x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return jnp.mean(x**2)


@jax.jit
def step(weights, x):
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return value, jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradients)


for dtype in (jnp.float32, jnp.bfloat16):
    keys = jax.random.split(jax.random.key(1), 5)
    weights = [(jax.random.normal(k, (1024, 1024), dtype) * 0.02, jnp.zeros(1024, dtype)) for k in keys[:4]]
    x = jax.random.normal(keys[4], (4096, 1024), dtype)
    for _ in range(30):
        value, weights = step(weights, x)
    pictures, filters = jnp.ones((16, 32, 32, 64), dtype), jnp.ones((3, 3, 64, 64), dtype)
    convolve = jax.jit(lambda p, f: jax.lax.conv_general_dilated(p, f, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    for _ in range(10):
        convolve(pictures, filters)
        jnp.sort(x[:64], axis=1), jnp.cumsum(x, axis=1), jax.nn.softmax(x)
    jax.block_until_ready(value)
