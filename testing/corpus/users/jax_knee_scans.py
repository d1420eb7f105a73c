"""Scans of knees without their noise: a scanner's noise follows Rice's law, and is taken away by expectation and maximization."""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

ROWS, COLUMNS, LAYERS, ROUNDS = 512, 512, 2, 2


def bessel_ratio(z):
    """I1(z) / I0(z), which is what Rice's law asks for."""

    def ratio(values):
        values = np.asarray(values)
        return (special.i1e(values) / special.i0e(values)).astype(values.dtype)

    return jax.pure_callback(ratio, jax.ShapeDtypeStruct(z.shape, z.dtype), z)


def smoothed(picture):
    around = sum(jnp.roll(picture, by, axis) for axis in (1, 2) for by in (-1, 1))
    return 0.6 * picture + 0.1 * around


@jax.jit
def cleaned(scan, guess, noise):
    for _ in range(ROUNDS):
        guess = scan * bessel_ratio(scan * guess / noise**2)
        guess = smoothed(guess)
        noise = jnp.sqrt(jnp.maximum(1e-4, 0.5 * jnp.mean(scan**2 - guess**2)))
    return guess, noise


def scanned(key):
    across, real, imaginary = jax.random.split(key, 3)
    down, along = jnp.meshgrid(jnp.linspace(-1, 1, ROWS), jnp.linspace(-1, 1, COLUMNS), indexing="ij")
    knee = jnp.exp(-3 * (down**2 + 2 * along**2)) * (1 + 0.3 * jnp.sin(20 * down) * jnp.cos(14 * along))
    knee = knee * jax.random.uniform(across, (LAYERS, 1, 1), minval=0.6, maxval=1.0)
    shape = (LAYERS, ROWS, COLUMNS)
    return jnp.hypot(knee + 0.1 * jax.random.normal(real, shape), 0.1 * jax.random.normal(imaginary, shape))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    scans = [scanned(key) for key in jax.random.split(jax.random.key(12), 4)]
    start = jnp.float32(0.12)
    for scan in scans[:3]:
        guess, noise = cleaned(scan, scan, start)
    guess.block_until_ready()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        scan = scans[steps % len(scans)]
        guess, noise = cleaned(scan, scan, start)
        guess.block_until_ready()
        steps += 1
        if steps % 50 == 0:
            print(f"scan {steps}: noise {float(noise):.4f}")
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
