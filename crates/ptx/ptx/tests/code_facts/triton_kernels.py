"""Compiles sums of a matrix's columns and an FP32 product in Triton to PTX, as testing/corpus/python has them."""

import pathlib
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def sum_column(x, out, rows, columns, R: tl.constexpr):
    column = tl.program_id(0)
    total = tl.zeros((R,), dtype=tl.float32)
    for at in range(0, rows, R):
        total += tl.load(x + (at + tl.arange(0, R)) * columns + column)
    tl.store(out + column, tl.sum(total, 0))


@triton.jit
def sum_columns(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    column = tl.program_id(0) * C + tl.arange(0, C)
    first = tl.program_id(1) * 512
    total = tl.zeros((R, C), dtype=tl.float32)
    for at in range(first, first + 512, R):
        total += tl.load(x + (at + tl.arange(0, R))[:, None] * columns + column[None, :])
    tl.atomic_add(out + column, tl.sum(total, 0))


@triton.jit
def product(a, b, c, n, M: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    rows = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.program_id(0) * M + tl.arange(0, M)
    inner = tl.arange(0, K)
    total = tl.zeros((M, M), dtype=tl.float32)
    for k in range(0, n, K):
        x = tl.load(a + rows[:, None] * n + k + inner[None, :])
        y = tl.load(b + (k + inner)[:, None] * n + columns[None, :])
        total += tl.dot(x, y, input_precision=PRECISION)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


MATRIX = {"x": "*fp32", "out": "*fp32", "rows": "i32", "columns": "i32"}
FACTORS = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "n": "i32"}
KERNELS = [
    ("sum_column", sum_column, MATRIX, {"R": 1024}),
    ("sum_columns", sum_columns, MATRIX, {"R": 32, "C": 64}),
    ("product_ieee", product, FACTORS, {"M": 32, "K": 32, "PRECISION": "ieee"}),
    ("product_tf32", product, FACTORS, {"M": 32, "K": 32, "PRECISION": "tf32"}),
]


def main():
    here = pathlib.Path(__file__).parent
    for name, kernel, signature, constants in KERNELS:
        types = signature | {key: "constexpr" for key in constants}
        aligned = {(index,): [["tt.divisibility", 16]] for index, ty in enumerate(types.values()) if ty != "constexpr"}
        source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned)
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
        ptx = re.sub(r"\n\t\.section.*?\n\t}", "", compiled.asm["ptx"], flags=re.S)
        (here / f"triton_{name}.ptx").write_text(ptx)


main()
