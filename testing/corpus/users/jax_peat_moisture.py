"""Fits how fast peat dries: the water of 1024 plots follows from rain and heat, hour by hour, for a summer."""

import argparse
import functools
import time

import jax
import jax.numpy as jnp

PLOTS, HOURS = 1024, 2048


def join(earlier, later):
    kept, gained = earlier
    kept_later, gained_later = later
    return kept * kept_later, kept_later * gained + gained_later


def water(kept, gained, together):
    if together:
        return jax.lax.associative_scan(join, (kept, gained))[1]

    def an_hour(level, rates):
        kept_now, gained_now = rates
        level = kept_now * level + gained_now
        return level, level

    return jax.lax.scan(an_hour, jnp.zeros(PLOTS), (kept, gained))[1]


def wrong(soil, rain, heat, measured, together):
    dry, hot, catch = jax.nn.sigmoid(soil)
    kept = jnp.exp(-0.02 * dry - 0.05 * hot * heat)
    levels = water(kept, catch * rain, together)
    return jnp.mean((levels - measured) ** 2)


@functools.partial(jax.jit, static_argnames="together")
def improve(soil, rain, heat, measured, together):
    error, slope = jax.value_and_grad(wrong)(soil, rain, heat, measured, together)
    return soil - 0.5 * slope * PLOTS, error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    falls, warms, drifts = jax.random.split(jax.random.PRNGKey(44), 3)
    rain = jnp.maximum(jax.random.normal(falls, (HOURS, PLOTS)) - 1.2, 0.0)
    heat = jnp.clip(jnp.sin(jnp.arange(HOURS) * 2 * jnp.pi / 24)[:, None] + 0.1 * jax.random.normal(warms, (HOURS, PLOTS)), 0, 1)
    measured = 0.8 + 0.2 * jax.random.normal(drifts, (HOURS, PLOTS))
    soil = jnp.zeros((3, PLOTS))
    for _ in range(2):
        soil, error = improve(soil, rain, heat, measured, args.remedied)
    jax.block_until_ready(soil)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        soil, error = improve(soil, rain, heat, measured, args.remedied)
        steps += 1
        if steps % 10 == 0:
            print(f"step {steps}: error {float(error):.5f}")
    jax.block_until_ready(soil)
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
