"""Plankton of a large lake: storms touch some places of it each hour, where all kinds of plankton grow or die."""

import argparse
import time

import jax
import jax.numpy as jnp

PLACES, KINDS, TOUCHED = 16_000_000, 64, 65_536


def grown(here, light, warmth):
    """What an hour makes of the plankton at some places."""
    eaten = here @ jnp.roll(jnp.eye(KINDS), 1, axis=0) * 0.02
    food = 1 - here.mean(axis=1, keepdims=True) / 4
    return here * (1 + 0.05 * food * light[:, None] * warmth) - eaten * here


@jax.jit
def hour(lake, key, number):
    key, where, how = jax.random.split(key, 3)
    places = jax.random.randint(where, (TOUCHED,), 0, PLACES)
    light = jnp.maximum(0, jnp.sin(0.26 * number)) + 0.2 * jax.random.uniform(how, (TOUCHED,))
    here = lake[places]
    change = grown(here, light, jnp.linspace(0.5, 1.5, KINDS)) - here
    lake = lake.at[places].add(change)
    return lake, key, jnp.abs(change).mean()


def commonest(lake):
    """The kind that there is most of at the first places, and how much of it."""
    seen = lake[:1024].mean(axis=0)
    kind = int(seen.argmax())
    return kind, float(seen[kind])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    key = jax.random.key(12)
    lake = jnp.ones((PLACES, KINDS), dtype=jnp.float32)
    for number in range(3):
        lake, key, change = hour(lake, key, number)
    change.block_until_ready()
    began, hours = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        lake, key, change = hour(lake, key, hours)
        hours += 1
        if hours % 10 == 0:
            change.block_until_ready()
        if hours % 500 == 0:
            kind, much = commonest(lake)
            print(f"hour {hours}: {float(change):.5f} changed, most of kind {kind}: {much:.3f}")
    change.block_until_ready()
    print(f"{hours / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
