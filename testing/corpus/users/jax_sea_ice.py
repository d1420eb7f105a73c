"""Ice on a wide sea, seen from above: heat spreads through it by a filter of all wavelengths, and it melts and grows."""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

ROWS, COLUMNS = 8192, 8192
STEP, COLD = 0.2, 0.35


def filter_of_waves():
    down = np.fft.fftfreq(ROWS)[:, None].astype(np.float32)
    across = np.fft.fftfreq(COLUMNS)[None, :].astype(np.float32)
    return jnp.asarray(np.exp(-60.0 * (down**2 + across**2)))


def spread(heat, waves):
    return jnp.fft.ifft2(jnp.fft.fft2(heat) * waves).real


@functools.partial(jax.jit, donate_argnums=0)
def day(heat, waves, sun):
    heat = spread(heat, waves)
    ice = jax.nn.sigmoid(8 * (COLD - heat))
    return heat + STEP * (sun * (1 - 0.6 * ice) - 0.5 * heat)


@jax.jit
def covered(heat):
    return jnp.mean(heat < COLD)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    waves = filter_of_waves()
    heat = jax.random.uniform(jax.random.key(11), (ROWS, COLUMNS), jnp.float32)
    suns = [np.float32(0.25 + 0.1 * np.sin(2 * np.pi * d / 365)) for d in range(365)]
    for d in range(3):
        heat = day(heat, waves, suns[d])
    heat.block_until_ready()
    float(covered(heat))
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        heat = day(heat, waves, suns[steps % 365])
        steps += 1
        if steps % 20 == 0:
            heat.block_until_ready()
        if steps % 200 == 0:
            print(f"day {steps}: {float(covered(heat)):.2%} under ice")
    heat.block_until_ready()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
