"""Fine-tuning of BERT (Hugging Face) for classification, as its tutorials write it, without mixed precision.

Cause: matrix products in FP32. Remedy: autocast to BF16.
"""

import contextlib

import torch
from transformers import BertConfig, BertForSequenceClassification

from harness import main, small


def build(remedy, device):
    config = BertConfig(
        hidden_size=small(device, 768, 32), num_hidden_layers=small(device, 6, 1), num_attention_heads=small(device, 12, 2),
        intermediate_size=small(device, 3072, 64), num_labels=2,
    )
    model = BertForSequenceClassification(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    shape = (small(device, 64, 2), small(device, 256, 8))
    tokens = torch.randint(0, config.vocab_size, shape, device=device)
    labels = torch.randint(0, 2, shape[:1], device=device)
    mask = torch.ones(shape, dtype=torch.long, device=device)

    def step():
        torch.set_float32_matmul_precision("highest")
        with torch.autocast(device.type, torch.bfloat16) if remedy else contextlib.nullcontext():
            loss = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
