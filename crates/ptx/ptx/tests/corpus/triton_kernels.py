#!/usr/bin/env python3
"""Compiles three Triton kernels to PTX, which needs no GPU: `triton_kernels.py` with triton 3.9.0 writes the
triton_*.ptx.zst files beside this script, for sm_80 and sm_90a."""

import pathlib
import re
import subprocess

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def vector_add(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(a + at, mask=mask) + tl.load(b + at, mask=mask), mask=mask)


@triton.jit
def softmax(rows, out, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(rows + row * stride + at, mask=mask, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + at, powers / tl.sum(powers, axis=0), mask=mask)


@triton.jit
def matmul(a, b, c, k, stride_a, stride_b, stride_c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        left = tl.load(a + rows[:, None] * stride_a + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * stride_b + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * stride_c + columns[None, :], total.to(tl.float16))


KERNELS = [
    (vector_add, {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 256}),
    (softmax, {"rows": "*fp32", "out": "*fp32", "stride": "i32", "columns": "i32"}, {"BLOCK": 512}),
    (
        matmul,
        {"a": "*fp16", "b": "*fp16", "c": "*fp16", "k": "i32", "stride_a": "i32", "stride_b": "i32", "stride_c": "i32"},
        {"M": 64, "N": 64, "K": 32},
    ),
]


def main():
    here = pathlib.Path(__file__).parent
    for capability, name in ((80, "sm_80"), (90, "sm_90a")):
        for kernel, signature, constants in KERNELS:
            types = signature | {key: "constexpr" for key in constants}
            # Pointers and strides are multiples of 16, as in real launches.
            aligned = {(index,): [["tt.divisibility", 16]] for index, ty in enumerate(types.values()) if ty != "constexpr"}
            source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned)
            options = {"num_warps": 4, "num_stages": 2}
            compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            # Only file names: paths of the machine say nothing. Debugging sections hold little else.
            ptx = re.sub(r'(\.file\s+\d+ ")[^"]*/', r"\1", compiled.asm["ptx"])
            ptx = re.sub(r"\n\t\.section.*?\n\t}", "", ptx, flags=re.S)
            packed = subprocess.run([here / "../../../../../scripts/zstd", "compress"], input=ptx.encode(), stdout=subprocess.PIPE, check=True)
            (here / f"triton_{kernel.__name__}.{name}.ptx.zst").write_bytes(packed.stdout)


main()
