"""Learns how strongly each feature of a forecast's words counts: the way back through a norm over long batches."""

import argparse
import time

import torch
import triton
import triton.language as tl

WORDS, FEATURES, BATCHES = 262_144, 512, 3


@triton.jit
def back_by_word(x, grad, weight, grad_x, grad_weight, SIZE: tl.constexpr):
    word = tl.program_id(0)
    places = tl.arange(0, SIZE)
    values = tl.load(x + word * SIZE + places).to(tl.float32)
    slopes = tl.load(grad + word * SIZE + places).to(tl.float32)
    strong = tl.load(weight + places)
    scale = 1 / tl.sqrt(tl.sum(values * values, 0) / SIZE + 1e-6)
    normal = values * scale
    wanted = slopes * strong
    change = (wanted - normal * (tl.sum(wanted * normal, 0) / SIZE)) * scale
    tl.store(grad_x + word * SIZE + places, change.to(tl.bfloat16))
    tl.atomic_add(grad_weight + places, slopes * normal)


@triton.jit
def back_by_part(x, grad, weight, grad_x, partial, OWN: tl.constexpr, SIZE: tl.constexpr):
    part = tl.program_id(0)
    places = tl.arange(0, SIZE)
    strong = tl.load(weight + places)
    total = tl.zeros((SIZE,), tl.float32)
    for number in range(OWN):
        word = part * OWN + number
        values = tl.load(x + word * SIZE + places).to(tl.float32)
        slopes = tl.load(grad + word * SIZE + places).to(tl.float32)
        scale = 1 / tl.sqrt(tl.sum(values * values, 0) / SIZE + 1e-6)
        normal = values * scale
        wanted = slopes * strong
        change = (wanted - normal * (tl.sum(wanted * normal, 0) / SIZE)) * scale
        tl.store(grad_x + word * SIZE + places, change.to(tl.bfloat16))
        total += slopes * normal
    tl.store(partial + part * SIZE + places, total)


class Norm:
    def __init__(self, parts):
        self.weight = torch.ones(FEATURES, device="cuda")
        self.parts = parts
        self.partial = torch.empty(max(parts, 1), FEATURES, device="cuda")
        self.grad_x = torch.empty(WORDS, FEATURES, device="cuda", dtype=torch.bfloat16)

    def back(self, x, grad):
        if self.parts:
            back_by_part[(self.parts,)](x, grad, self.weight, self.grad_x, self.partial, WORDS // self.parts, FEATURES, num_warps=4)
            return self.grad_x, self.partial.sum(0)
        grad_weight = torch.zeros(FEATURES, device="cuda")
        back_by_word[(WORDS,)](x, grad, self.weight, self.grad_x, grad_weight, FEATURES, num_warps=4)
        return self.grad_x, grad_weight


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(49)
    norm = Norm(2048 if args.remedied else 0)
    inputs = torch.randn(BATCHES, WORDS, FEATURES, device="cuda", dtype=torch.bfloat16)
    grads = torch.randn(BATCHES, WORDS, FEATURES, device="cuda", dtype=torch.bfloat16)

    def train(step):
        _, grad_weight = norm.back(inputs[step % BATCHES], grads[step % BATCHES])
        norm.weight -= 1e-5 * grad_weight
        return grad_weight

    for step in range(3):
        train(step)
    torch.cuda.synchronize()
    began, step = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        grad_weight = train(step)
        step += 1
        if step % 200 == 0:
            print(f"step {step}: steepest {grad_weight.abs().max().item():.1f}")
    torch.cuda.synchronize()
    print(f"{step / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
