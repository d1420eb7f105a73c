"""Many lakes through the seasons, hour by hour: the sun warms them, and once a day their layers settle anew."""

import argparse
import functools
import time

import jax
import jax.numpy as jnp

LAKES, LAYERS, ROUNDS = 1024, 1024, 120


def mixing_matrix(key):
    depth = jnp.arange(LAYERS)
    near = jnp.exp(-jnp.abs(depth[:, None] - depth[None, :]) / 12.0)
    near = near * jax.random.uniform(key, (LAYERS, LAYERS), minval=0.8, maxval=1.2)
    return near / near.sum(1, keepdims=True)


def warm(layers, sun):
    light = jnp.exp(-jnp.arange(LAYERS) / 40.0)
    return layers + 0.02 * sun * light - 1e-3 * (layers - 6.0)


def settle(layers, matrix):
    def a_round(_, current):
        heavy = jnp.maximum(jnp.roll(current, 1) - current, 0.0)
        return 0.7 * (matrix @ current) + 0.3 * current - 0.05 * heavy

    return jax.lax.fori_loop(0, ROUNDS, a_round, layers)


def hour_of(lake, clock, sun, matrix):
    lake = warm(lake, sun)
    return jax.lax.cond(clock % 24 == 0, lambda layers: settle(layers, matrix), lambda layers: layers, lake)


@functools.partial(jax.jit, static_argnums=4)
def next_hour(lakes, clocks, suns, matrix, remedied):
    if remedied:
        lakes = jax.vmap(hour_of, in_axes=(0, None, 0, None))(lakes, clocks[0], suns, matrix)
    else:
        lakes = jax.vmap(hour_of, in_axes=(0, 0, 0, None))(lakes, clocks, suns, matrix)
    return lakes, clocks + 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    key = jax.random.PRNGKey(21)
    matrix = mixing_matrix(key)
    lakes = 8.0 + 4.0 * jax.random.uniform(key, (LAKES, LAYERS))
    clocks = jnp.zeros(LAKES, jnp.int32)
    suns = jax.random.uniform(jax.random.fold_in(key, 1), (24, LAKES))
    for hour in range(3):
        lakes, clocks = next_hour(lakes, clocks, suns[hour], matrix, args.remedied)
    jax.block_until_ready(lakes)
    began, hours = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        lakes, clocks = next_hour(lakes, clocks, suns[hours % 24], matrix, args.remedied)
        hours += 1
        if hours % 96 == 0:
            print(f"day {hours // 24}: surfaces have {float(lakes[:, 0].mean()):.2f} degrees")
    jax.block_until_ready(lakes)
    print(f"{hours / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
