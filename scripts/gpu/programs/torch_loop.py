"""A training loop of many small kernels: 12 x (Linear 256, LayerNorm, GELU), batch 64, AdamW unfused.

    torch_loop.py CHUNKS [ON OFF]

Times CHUNKS chunks of 20 steps, each ended by a synchronisation, and prints the milliseconds of a step in each chunk as
JSON. With two shell commands, ON is run before every even chunk and OFF before every odd one, outside the timed part.
"""

import json
import subprocess
import sys
import time

import torch

STEPS = 20

torch.manual_seed(0)
blocks = [m for _ in range(12) for m in (torch.nn.Linear(256, 256), torch.nn.LayerNorm(256), torch.nn.GELU())]
model = torch.nn.Sequential(*blocks).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False, fused=False)
x = torch.randn(64, 256, device="cuda")
y = torch.randn(64, 256, device="cuda")


def chunk(steps):
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps * 1e3


chunk(40)
milliseconds = []
for i in range(int(sys.argv[1])):
    if len(sys.argv) > 2:
        subprocess.run(sys.argv[2 + i % 2], shell=True, check=True, stdout=subprocess.DEVNULL)
        chunk(2)
    milliseconds.append(chunk(STEPS))
json.dump(milliseconds, sys.stdout)
