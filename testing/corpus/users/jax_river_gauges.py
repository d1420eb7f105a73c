"""Estimates the discharge of many rivers from a year of rain, with one small network."""

import argparse
import time

import jax
import jax.numpy as jnp

RIVERS, DAYS, FEATURES, HIDDEN = 768, 365, 24, 128


def weights(key):
    a, b, c = jax.random.split(key, 3)
    return {
        "in": jax.random.normal(a, (FEATURES, HIDDEN)) / FEATURES ** 0.5,
        "mid": jax.random.normal(b, (HIDDEN, HIDDEN)) / HIDDEN ** 0.5,
        "out": jax.random.normal(c, (HIDDEN, 1)) / HIDDEN ** 0.5,
    }


def discharge(network, river):
    rain, basin = river
    x = jnp.tanh(rain @ network["in"] + basin)
    x = jnp.tanh(x @ network["mid"]) + x
    flow = jax.nn.softplus(x @ network["out"])[:, 0]
    stored = jnp.cumsum(flow - flow.mean())
    return flow.max(), stored[-1], jnp.argmax(flow)


@jax.jit
def yearly(network, rain, basins):
    return jax.lax.map(lambda river: discharge(network, river), (rain, basins))


@jax.jit
def yearly_together(network, rain, basins):
    return jax.vmap(lambda *river: discharge(network, river))(rain, basins)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    key = jax.random.PRNGKey(0)
    network = weights(key)
    rain = jax.random.gamma(key, 0.6, (RIVERS, DAYS, FEATURES))
    basins = 0.1 * jax.random.normal(key, (RIVERS, HIDDEN))
    estimate = yearly_together if args.remedied else yearly
    for _ in range(3):
        peaks, stored, days = jax.block_until_ready(estimate(network, rain, basins))
    began, years = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        peaks, stored, days = estimate(network, rain, basins)
        years += 1
        basins = basins + 1e-6 * stored[:, None]
        if years % 20 == 0:
            print(f"{years} years: highest flow {float(peaks.max()):.2f}, on day {int(days[0])}")
    jax.block_until_ready(basins)
    print(f"{years / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
