"""Training and generation with GPT-2 of Hugging Face Transformers, with random weights."""

import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

device = torch.device("cuda")
torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(n_layer=6, attn_implementation="sdpa")).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, 50000, (4, 128), device=device)
began = time.perf_counter()
for _ in range(20):
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.2f}")
model.eval()
with torch.no_grad():
    model.generate(tokens[:1, :8], max_new_tokens=24, do_sample=False, pad_token_id=0)
torch.cuda.synchronize()
print(f"{time.perf_counter() - began:.1f} s")
