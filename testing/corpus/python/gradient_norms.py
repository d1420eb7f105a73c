"""Training of GPT-2 (Hugging Face) that logs the norm of each parameter's gradient.

Cause: the host waits for each of 76 norms in every step. Remedy: one norm of all, which stays on the device.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from harness import main, small


def build(remedy, device):
    config = GPT2Config(n_layer=small(device, 6, 1), n_embd=small(device, 512, 32), n_head=small(device, 8, 2), vocab_size=8192)
    model = GPT2LMHeadModel(config).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    tokens = torch.randint(0, config.vocab_size, (small(device, 16, 1), small(device, 512, 16)), device=device)
    history = []

    def step():
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        if remedy:
            history.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        else:
            norms = {name: p.grad.norm().item() for name, p in model.named_parameters()}
            history.append((loss.item(), sum(norms.values())))
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
