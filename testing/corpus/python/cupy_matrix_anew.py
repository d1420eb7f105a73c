"""Power iteration with a sparse matrix in CuPy that is assembled from its entries in each step.

Cause: entries are sorted and summed anew in each step. Remedy: the matrix is assembled once.
"""

import cupy
from cupyx.scipy import sparse

from pairs import main


def build(remedy):
    n, entries = 200_000, 4_000_000
    rows, columns = cupy.random.randint(0, n, (2, entries), dtype=cupy.int32)
    values = cupy.random.rand(entries, dtype=cupy.float32)
    x = cupy.random.rand(n, dtype=cupy.float32)

    def assemble():
        return sparse.coo_matrix((values, (rows, columns)), shape=(n, n)).tocsr()

    once = assemble()

    def step():
        y = (once if remedy else assemble()) @ x
        return y / cupy.abs(y).max()

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
