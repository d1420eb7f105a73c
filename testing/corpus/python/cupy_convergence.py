"""Conjugate gradients in CuPy that look at the residual in every iteration.

Cause: a synchronisation in every iteration. Remedy: the residual is looked at after 50 iterations.
"""

import cupy

from pairs import main


def build(remedy):
    n = 2048
    q = cupy.random.rand(n, n, dtype=cupy.float32)
    a, b = q @ q.T / n + cupy.eye(n, dtype=cupy.float32), cupy.ones(n, dtype=cupy.float32)

    def step():
        x, r = cupy.zeros_like(b), b.copy()
        p, rr = r.copy(), r @ r
        for _ in range(50):
            ap = a @ p
            alpha = rr / (p @ ap)
            if not remedy:
                alpha = float(alpha)
            x += alpha * p
            r -= alpha * ap
            new = r @ r
            if not remedy and float(cupy.sqrt(new)) < 1e-30:
                break
            p, rr = r + (new / rr) * p, new
        return float(cupy.sqrt(rr))

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
