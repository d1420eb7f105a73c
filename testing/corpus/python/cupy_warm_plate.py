"""Heat spreads in a plate that is heated from changing sides. An implicit step solves one sparse system of equations.

Cause: spsolve factorises the same matrix in each step. Remedy: factorized, once; a step solves with the factors.
"""

import cupy
from cupyx.scipy import sparse
from cupyx.scipy.sparse.linalg import factorized, spsolve

from pairs import main

SIDE, PACE = 48, 0.2


def system():
    """The matrix of one implicit step: each place is tied to its four neighbours."""
    line = sparse.diags([-PACE, 2 * PACE, -PACE], [-1, 0, 1], (SIDE, SIDE))
    one = sparse.identity(SIDE)
    return (sparse.identity(SIDE * SIDE) + sparse.kron(one, line) + sparse.kron(line, one)).tocsr()


def build(remedy):
    cupy.random.seed(1)
    matrix = system()
    solve = factorized(matrix.tocsc()) if remedy else lambda heat: spsolve(matrix, heat)
    edges = cupy.random.random((4, SIDE * SIDE))
    state = {"heat": cupy.zeros(SIDE * SIDE), "step": 0}

    def step():
        state["step"] += 1
        state["heat"] = solve(state["heat"] * 0.99 + 0.01 * edges[state["step"] % 4])

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.runtime.deviceSynchronize)
