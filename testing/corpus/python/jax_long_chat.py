"""A JAX program writes one token for each of many chats; keys and values of all tokens are kept in two large arrays.

Cause: a compiled step may not change its arguments, so it copies both arrays to write a row. Remedy: donate_argnums.
"""

import jax
import jax.numpy as jnp

from pairs import main

LAYERS, CHATS, LENGTH, HEADS, SIZE, WINDOW = 4, 8, 8192, 8, 128, 512
WIDTH = HEADS * SIZE


def attend(x, layer, weights, keys, values, at):
    query, key, value = jnp.split((x @ weights["in"][layer]).reshape(CHATS, 3 * HEADS, SIZE), 3, axis=1)
    keys = jax.lax.dynamic_update_slice(keys, key[None, :, None], (layer, 0, at, 0, 0))
    values = jax.lax.dynamic_update_slice(values, value[None, :, None], (layer, 0, at, 0, 0))
    shape, start = (1, CHATS, WINDOW, HEADS, SIZE), (layer, 0, at - WINDOW + 1, 0, 0)
    near_keys, near_values = (jax.lax.dynamic_slice(kept, start, shape)[0] for kept in (keys, values))
    weight = jax.nn.softmax(jnp.einsum("bhd,bthd->bht", query, near_keys) * SIZE**-0.5, axis=-1)
    read = jnp.einsum("bht,bthd->bhd", weight, near_values)
    return x + read.reshape(CHATS, WIDTH) @ weights["out"][layer], keys, values


def write_token(keys, values, x, at, weights):
    for layer in range(LAYERS):
        x, keys, values = attend(x, layer, weights, keys, values, at)
    x = x / (1e-3 + jnp.abs(x).max(-1, keepdims=True))
    return keys, values, x, jnp.where(at + 1 < LENGTH, at + 1, WINDOW)


def build(remedy):
    shape = (LAYERS, CHATS, LENGTH, HEADS, SIZE)
    keys, values = jnp.zeros(shape, jnp.bfloat16), jnp.zeros(shape, jnp.bfloat16)
    one, other = jax.random.split(jax.random.key(1))
    weights = {
        "in": jax.random.normal(one, (LAYERS, WIDTH, 3 * WIDTH), jnp.bfloat16) * WIDTH**-0.5,
        "out": jax.random.normal(other, (LAYERS, WIDTH, WIDTH), jnp.bfloat16) * WIDTH**-0.5,
    }
    write = jax.jit(write_token, donate_argnums=(0, 1) if remedy else ())
    state = {"kept": (keys, values, jnp.ones((CHATS, WIDTH), jnp.bfloat16), jnp.int32(WINDOW))}

    def step():
        state["kept"] = write(*state["kept"], weights)

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
