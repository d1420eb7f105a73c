"""Projects tokens into the vocabulary of another model, with a kernel for its scale and clamp."""

import argparse
import time

import torch
import triton
import triton.language as tl

TOKENS, WIDTH, OUT = 8192, 8192, 4096


@triton.jit
def project(x, w, y, scale, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    program = tl.program_id(0)
    across = tl.cdiv(N, BLOCK_N)
    group = program // (GROUP * across)
    first = group * GROUP
    rows_in_group = min(tl.cdiv(M, BLOCK_M) - first, GROUP)
    row = first + (program % (GROUP * across)) % rows_in_group
    column = (program % (GROUP * across)) // rows_in_group
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + k[:, None] * N + n[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _start in range(0, K, BLOCK_K):
        total = tl.dot(tl.load(x_at), tl.load(w_at), total)
        x_at += BLOCK_K
        w_at += BLOCK_K * N
    total = tl.minimum(tl.maximum(total * scale, -30.0), 30.0)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(2, TOKENS, WIDTH, device="cuda", dtype=torch.float16)
    w = torch.randn(WIDTH, OUT, device="cuda", dtype=torch.float16) / WIDTH ** 0.5
    y = torch.empty(TOKENS, OUT, device="cuda", dtype=torch.float16)
    grid = (triton.cdiv(TOKENS, 128) * triton.cdiv(OUT, 128),)
    stages = 4 if args.remedied else 1

    def step(i):
        project[grid](x[i % 2], w, y, 0.5, TOKENS, OUT, WIDTH, 128, 128, 64, 8, num_warps=4, num_stages=stages)

    for i in range(5):
        step(i)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        step(steps)
        steps += 1
        if steps % 500 == 0:
            print(f"{steps}: {y.abs().max().item():.3f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
