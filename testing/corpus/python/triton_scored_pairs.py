"""All questions are scored against all answers by a kernel in Triton, and the best answer of each is kept.

Cause: the kernel multiplies blocks element by element and adds them up. Remedy: tl.dot, which uses tensor cores.
"""

import torch
import triton
import triton.language as tl

from harness import main

COUNT, WIDTH = 4096, 512


@triton.jit
def scores_of_pairs(questions, answers, scores, count, width, dot: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, PART)
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, width, PART):
        q = tl.load(questions + rows[:, None] * width + start + part[None, :])
        a = tl.load(answers + columns[:, None] * width + start + part[None, :])
        if dot:
            sums = tl.dot(q, tl.trans(a), sums)
        else:
            sums += tl.sum(q[:, None, :].to(tl.float32) * a[None, :, :].to(tl.float32), 2)
    tl.store(scores + rows[:, None] * count + columns[None, :], sums)


def build(remedy, device):
    questions = torch.randn(4, COUNT, WIDTH, device=device, dtype=torch.bfloat16)
    answers = torch.randn(COUNT, WIDTH, device=device, dtype=torch.bfloat16)
    scores = torch.empty(COUNT, COUNT, device=device)
    sizes = {"BLOCK": 64, "PART": 64, "num_warps": 4} if remedy else {"BLOCK": 32, "PART": 16, "num_warps": 4}
    grid = (COUNT // sizes["BLOCK"],) * 2
    state = {"batch": 0}

    def step():
        state["batch"] += 1
        scores_of_pairs[grid](questions[state["batch"] % 4], answers, scores, COUNT, WIDTH, remedy, **sizes)
        return scores.argmax(1)

    return step


if __name__ == "__main__":
    main(build)
