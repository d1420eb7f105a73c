"""Follows a whale that is heard now and then: thousands of guesses swim along, and the likely ones stay."""

import argparse
import functools
import time

import jax
import jax.numpy as jnp

GUESSES = 16_384
BUOYS = jnp.array([[0.0, 0.0], [40.0, 5.0], [18.0, 37.0], [-25.0, 22.0]])


def swim(key, guesses):
    turn, push = jax.random.normal(key, (2, GUESSES))
    place, heading, speed = guesses[:, :2], guesses[:, 2] + 0.15 * turn, guesses[:, 3]
    speed = jnp.clip(speed + 0.05 * push, 0.1, 3.0)
    place = place + speed[:, None] * jnp.stack((jnp.cos(heading), jnp.sin(heading)), 1)
    return jnp.concatenate((place, heading[:, None], speed[:, None]), 1)


def likely(guesses, heard):
    apart = jnp.linalg.norm(guesses[:, None, :2] - BUOYS[None], axis=-1)
    return -0.5 * jnp.sum(((apart - heard) / 2.5) ** 2, 1)


def survivors(key, logs, remedied):
    if remedied:
        return jax.random.choice(key, GUESSES, (GUESSES,), p=jax.nn.softmax(logs))
    return jax.random.categorical(key, logs, shape=(GUESSES,))


@functools.partial(jax.jit, static_argnames="remedied")
def minute(key, guesses, heard, remedied):
    key, swimming, staying = jax.random.split(key, 3)
    guesses = swim(swimming, guesses)
    logs = likely(guesses, heard)
    guesses = guesses[survivors(staying, logs, remedied)]
    return key, guesses, guesses[:, :2].mean(0)


def sounds(minutes):
    path = jnp.stack((0.6 * jnp.arange(minutes) % 30, 12 + 6 * jnp.sin(jnp.arange(minutes) / 20)), 1)
    return jnp.linalg.norm(path[:, None] - BUOYS[None], axis=-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    key = jax.random.PRNGKey(42)
    guesses = jax.random.normal(key, (GUESSES, 4)) * jnp.array([20.0, 20.0, 2.0, 0.5]) + jnp.array([0.0, 0.0, 0.0, 1.0])
    heard = list(sounds(50))
    for number in range(3):
        key, guesses, place = minute(key, guesses, heard[number], args.remedied)
    jax.block_until_ready(guesses)
    began, minutes = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        key, guesses, place = minute(key, guesses, heard[minutes % 50], args.remedied)
        minutes += 1
        if minutes % 100 == 0:
            print(f"minute {minutes}: near {float(place[0]):+.1f} km, {float(place[1]):+.1f} km")
    jax.block_until_ready(guesses)
    print(f"{minutes / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
