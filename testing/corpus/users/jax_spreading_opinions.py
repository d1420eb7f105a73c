"""Opinions on many topics spread through a dense network of people, who each listen to all others."""

import argparse
import time

import jax
import jax.numpy as jnp

PEOPLE, TOPICS = 20480, 8192


@jax.jit
def network_of(key):
    trust = jax.random.exponential(key, (PEOPLE, PEOPLE), jnp.float32)
    return (trust / trust.sum(1, keepdims=True)).astype(jnp.bfloat16)


@jax.jit
def listen(network, opinions):
    return network @ opinions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true", help="the same")
    args = parser.parse_args()
    key = jax.random.PRNGKey(17)
    network = network_of(key)
    groups = [jax.random.normal(jax.random.fold_in(key, group), (PEOPLE, TOPICS), jnp.bfloat16) for group in range(4)]
    heard = list(groups)
    for group in range(4):
        heard[group] = listen(network, groups[group])
    jax.block_until_ready(heard)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        heard[steps % 4] = listen(network, groups[steps % 4])
        steps += 1
        if steps % 50 == 0:
            print(f"{steps}: the first topic stands at {float(heard[0][0, 0]):+.4f}")
    jax.block_until_ready(heard)
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
