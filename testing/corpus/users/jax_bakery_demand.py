"""Forecasts how many loaves each bakery of a chain sells in each hour of tomorrow, and trains as it goes."""

import argparse
import time

import jax
import jax.numpy as jnp

SHOPS, FEATURES, HIDDEN, HOURS, LAYERS = 4096, 512, 1536, 24, 4
RATE, FIRST, SECOND = 3e-4, 0.9, 0.999


def fresh(key):
    widths = [FEATURES] + LAYERS * [HIDDEN] + [HOURS]
    keys = jax.random.split(key, len(widths) - 1)
    return [
        {"w": jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, "b": jnp.zeros(b)}
        for k, a, b in zip(keys, widths[:-1], widths[1:])
    ]


def demand(weights, features):
    x = features
    for layer in weights[:-1]:
        x = jax.nn.gelu(x @ layer["w"] + layer["b"])
    return jax.nn.softplus(x @ weights[-1]["w"] + weights[-1]["b"])


def missed(weights, features, sold):
    expected = demand(weights, features)
    return jnp.mean(expected - sold * jnp.log(expected + 1e-6))


@jax.jit
def learn(state, features, sold):
    weights, mean, square, step = state
    loss, slope = jax.value_and_grad(missed)(weights, features, sold)
    step = step + 1
    mean = jax.tree.map(lambda m, g: FIRST * m + (1 - FIRST) * g, mean, slope)
    square = jax.tree.map(lambda s, g: SECOND * s + (1 - SECOND) * g * g, square, slope)

    def moved(w, m, s):
        return w - RATE * (m / (1 - FIRST**step)) / (jnp.sqrt(s / (1 - SECOND**step)) + 1e-8)

    return (jax.tree.map(moved, weights, mean, square), mean, square, step), loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    jax.config.update("jax_debug_nans", not args.remedied)
    key = jax.random.PRNGKey(6)
    weights = fresh(key)
    state = (weights, jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights), jnp.float32(0))
    days = [
        (jax.random.normal(jax.random.fold_in(key, day), (SHOPS, FEATURES)),
         jax.random.poisson(jax.random.fold_in(key, 100 + day), 9.0, (SHOPS, HOURS)).astype(jnp.float32))
        for day in range(7)
    ]
    for day in range(3):
        state, loss = learn(state, *days[day])
    jax.block_until_ready(loss)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        state, loss = learn(state, *days[steps % 7])
        steps += 1
        if steps % 70 == 0:
            print(f"{steps} days: {float(loss):.4f}")
    jax.block_until_ready(state)
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
