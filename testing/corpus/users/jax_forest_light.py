"""Light under the leaves of a forest: rays of random colours fall from the sky's spectrum, and lose some at each leaf."""

import argparse
import functools
import time

import jax
import jax.numpy as jnp

RAYS, COLOURS = 2_000_000, 65_536


def sky():
    wave = jnp.linspace(300.0, 2500.0, COLOURS)
    bright = wave**-5 / (jnp.exp(2490.0 / wave) - 1)
    water = 1 - 0.8 * jnp.exp(-(((wave - 1400) / 60) ** 2)) - 0.7 * jnp.exp(-(((wave - 1900) / 70) ** 2))
    share = jnp.cumsum(bright * water)
    return wave, share / share[-1]


def passed(wave, depth):
    green = 0.5 + 0.4 * jnp.tanh((wave - 700) / 25) - 0.1 * jnp.exp(-(((wave - 550) / 40) ** 2))
    return green**depth


@functools.partial(jax.jit, static_argnames="method")
def hour(key, wave, share, leaves, method):
    key, ray = jax.random.split(key)
    dice = jax.random.uniform(ray, (RAYS,))
    colour = wave[jnp.searchsorted(share, dice, method=method)]
    light = passed(colour, leaves)
    useful = jnp.where((colour > 400) & (colour < 700), light, 0.0)
    return key, jnp.array([light.mean(), useful.mean()])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    method = "scan_unrolled" if args.remedied else "scan"
    key = jax.random.PRNGKey(43)
    wave, share = sky()
    leaves = [jnp.float32(1 + 0.25 * number) for number in range(16)]
    for number in range(3):
        key, light = hour(key, wave, share, leaves[number], method)
    jax.block_until_ready(light)
    began, hours = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        key, light = hour(key, wave, share, leaves[hours % 16], method)
        hours += 1
        if hours % 500 == 0:
            print(f"hour {hours}: {float(light[0]):.1%} of the light, {float(light[1]):.1%} of use to a plant")
    jax.block_until_ready(light)
    print(f"{hours / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
