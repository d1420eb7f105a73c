"""Moves a cloud of dust through a rotating disc of gas."""

import argparse
import time

import cupy as cp

GRAINS = 100_000_000

drift = cp.ElementwiseKernel(
    "float32 dt, float32 drag, float32 spin",
    "float32 x, float32 y, float32 u, float32 v",
    """
    float wind_u = -spin * y;
    float wind_v = spin * x;
    float next_u = u + dt * drag * (wind_u - u);
    float next_v = v + dt * drag * (wind_v - v);
    x = x + dt * next_u;
    y = y + dt * next_v;
    u = next_u;
    v = next_v;
    """,
    "drift",
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true", help="the same")
    args = parser.parse_args()
    random = cp.random.default_rng(2)
    x, y = (random.standard_normal(GRAINS, dtype=cp.float32) for _ in range(2))
    u, v = cp.zeros(GRAINS, dtype=cp.float32), cp.zeros(GRAINS, dtype=cp.float32)
    time_step, drag, spin = cp.float32(1e-3), cp.float32(0.5), cp.float32(0.1)
    for _ in range(5):
        drift(time_step, drag, spin, x, y, u, v)
    cp.cuda.Device().synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        drift(time_step, drag, spin, x, y, u, v)
        steps += 1
        if steps % 1000 == 0:
            print(f"{steps}: {float(x[:1000].mean()):.4f}")
    cp.cuda.Device().synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
