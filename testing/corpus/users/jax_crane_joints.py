"""A crane's joints are found from marks that a scanner sees along its arm: Gauss and Newton's steps, one fit for each scan."""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

JOINTS, MARKS = 8, 384
LENGTHS = np.linspace(2.4, 0.8, JOINTS)


def turned(angle, tilt):
    c, s = jnp.cos(angle), jnp.sin(angle)
    ct, st = np.cos(tilt), np.sin(tilt)
    return jnp.array([[c, -s * ct, s * st], [s, c * ct, -c * st], [0.0, st, ct]])


def marks_of(angles, along):
    """Where the marks of each arm are, which sit at parts of its length."""
    place, frame = jnp.zeros(3), jnp.eye(3)
    ends, ways = [], []
    for joint in range(JOINTS):
        frame = frame @ turned(angles[joint], 0.3 if joint % 2 else -0.5)
        way = LENGTHS[joint] * frame[:, 0]
        ends.append(place)
        ways.append(way)
        place = place + way
    ends, ways = jnp.stack(ends), jnp.stack(ways)
    part = along[:, :, None]
    bent = 0.02 * jnp.sin(jnp.pi * part) * jnp.tanh(ways)[:, None, :]
    return (ends[:, None, :] + part * ways[:, None, :] + bent).reshape(-1)


@jax.jit
def improved(angles, along, seen):
    apart = marks_of(angles, along) - seen
    slopes = jax.jacrev(marks_of)(angles, along)
    normal = slopes.T @ slopes + 1e-3 * jnp.eye(JOINTS)
    return angles - jnp.linalg.solve(normal, slopes.T @ apart), jnp.mean(apart**2)


def scans(count):
    random = np.random.default_rng(11)
    for _ in range(count):
        angles = random.uniform(-0.6, 0.6, JOINTS).astype(np.float32)
        along = random.uniform(0, 1, (JOINTS, MARKS)).astype(np.float32)
        seen = marks_of(jnp.asarray(angles), jnp.asarray(along))
        yield jnp.asarray(angles + random.normal(0, 0.1, JOINTS).astype(np.float32)), jnp.asarray(along), seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    measured = list(scans(4))
    angles, along, seen = measured[0]
    for _ in range(3):
        angles, error = improved(angles, along, seen)
    error.block_until_ready()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        angles, along, seen = measured[steps % len(measured)]
        for _ in range(4):
            angles, error = improved(angles, along, seen)
        error.block_until_ready()
        steps += 1
        if steps % 100 == 0:
            print(f"scan {steps}: {float(error):.3e} m²")
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
