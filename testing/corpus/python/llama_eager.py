"""Training of a Llama (Hugging Face) in BF16, eager, at a size that fills the device: norms, rotary embeddings and SwiGLU are
chains of elementwise kernels.

Cause: layers of many kernels. Remedy: torch.compile.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from harness import main, small


def build(remedy, device):
    config = LlamaConfig(
        hidden_size=small(device, 1024, 32), intermediate_size=small(device, 2816, 64), num_hidden_layers=2,
        num_attention_heads=small(device, 16, 2), num_key_value_heads=small(device, 16, 2), vocab_size=4096, use_cache=False,
    )
    model = LlamaForCausalLM(config).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    tokens = torch.randint(0, config.vocab_size, (small(device, 32, 1), small(device, 1024, 8)), device=device)
    forward = torch.compile(model) if remedy and device.type == "cuda" else model

    def step():
        forward(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
