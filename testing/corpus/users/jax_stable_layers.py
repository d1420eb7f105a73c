"""Trains a network whose layers may not stretch any vector by more than a limit."""

import argparse
import functools
import time

import jax
import jax.numpy as jnp

WIDTH, DEPTH, BATCH, LIMIT = 512, 4, 1024, 1.2


def forward(layers, x):
    for weight in layers[:-1]:
        x = jax.nn.relu(x @ weight)
    return x @ layers[-1]


def loss_of(layers, x, y):
    return jnp.mean((forward(layers, x) - y) ** 2)


def largest_stretch(weight, vector, remedied):
    if not remedied:
        return jnp.linalg.norm(weight, 2), vector
    for _ in range(2):
        image = weight @ vector
        vector = weight.T @ (image / jnp.linalg.norm(image))
        stretch = jnp.linalg.norm(vector)
        vector = vector / stretch
    return stretch, vector


@functools.partial(jax.jit, static_argnames="remedied", donate_argnums=(0, 1))
def train(layers, vectors, x, y, remedied):
    loss, slopes = jax.value_and_grad(loss_of)(layers, x, y)
    kept, next_vectors = [], []
    for weight, slope, vector in zip(layers, slopes, vectors):
        weight = weight - 1e-2 * slope
        stretch, vector = largest_stretch(weight, vector, remedied)
        kept.append(weight * jnp.minimum(1.0, LIMIT / stretch))
        next_vectors.append(vector)
    return kept, next_vectors, loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    keys = jax.random.split(jax.random.PRNGKey(1), DEPTH + 2)
    layers = [jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH ** 0.5 for key in keys[:DEPTH]]
    vectors = [jnp.ones(WIDTH) / WIDTH ** 0.5 for _ in layers]
    x = jax.random.normal(keys[-1], (8, BATCH, WIDTH))
    y = jnp.sin(x)
    for step in range(2):
        layers, vectors, loss = train(layers, vectors, x[step], y[step], args.remedied)
    jax.block_until_ready(layers)
    batches = [(x[i], y[i]) for i in range(8)]
    began, step = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        layers, vectors, loss = train(layers, vectors, *batches[step % 8], args.remedied)
        step += 1
        if step % 20 == 0:
            print(f"step {step}: {float(loss):.4f}")
    jax.block_until_ready(layers)
    print(f"{step / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
