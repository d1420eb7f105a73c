"""Predicts what laboratories will measure in mixtures: a layer over all substances, with a bend of its own after it."""

import argparse
import time

import torch
import triton
import triton.language as tl

MIXTURES, SUBSTANCES, FEATURES, RESULTS = 8192, 4096, 4096, 16


@triton.jit
def bent_layer(
    x, w, bias, out, M, N, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EXACT: tl.constexpr, GROUP: tl.constexpr,
):
    number = tl.program_id(0)
    wide = tl.cdiv(N, BN)
    group = number // (GROUP * wide)
    first = group * GROUP
    high = min(tl.cdiv(M, BM) - first, GROUP)
    row = first + number % (GROUP * wide) % high
    column = number % (GROUP * wide) // high
    rows = row * BM + tl.arange(0, BM)
    columns = column * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    xs = x + rows[:, None] * K + depth[None, :]
    ws = w + depth[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(xs)
        b = tl.load(ws)
        if EXACT:
            total += tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
        else:
            total += tl.dot(a, b)
        xs += BK
        ws += BK * N
    total += tl.load(bias + columns)[None, :]
    bent = tl.where(total > 0, total, 0.1 * total)
    tl.store(out + rows[:, None] * N + columns[None, :], bent.to(tl.float16))


class Laboratory:
    def __init__(self, remedied):
        self.weights = torch.randn(SUBSTANCES, FEATURES, device="cuda", dtype=torch.float16) / SUBSTANCES**0.5
        self.bias = 0.1 * torch.randn(FEATURES, device="cuda")
        self.last = torch.randn(FEATURES, RESULTS, device="cuda", dtype=torch.float16) / FEATURES**0.5
        self.bent = torch.empty(MIXTURES, FEATURES, device="cuda", dtype=torch.float16)
        self.remedied = remedied

    def predict(self, mixtures):
        m, k = mixtures.shape
        n = FEATURES
        blocks = (triton.cdiv(m, 128) * triton.cdiv(n, 128),)
        if self.remedied:
            bent_layer[blocks](mixtures, self.weights, self.bias, self.bent, m, n, k, 128, 128, 64, False, 8, num_warps=8, num_stages=3)
        else:
            bent_layer[blocks](mixtures, self.weights, self.bias, self.bent, m, n, k, 128, 128, 32, True, 8, num_warps=8, num_stages=3)
        return self.bent @ self.last


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(48)
    laboratory = Laboratory(args.remedied)
    mixtures = [torch.rand(MIXTURES, SUBSTANCES, device="cuda", dtype=torch.float16) for _ in range(3)]
    for number in range(3):
        results = laboratory.predict(mixtures[number])
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        results = laboratory.predict(mixtures[steps % 3])
        steps += 1
        if steps % 50 == 0:
            print(f"{steps * MIXTURES} mixtures: first result {results[:, 0].float().mean().item():+.4f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
