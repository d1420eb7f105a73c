"""BERT learns to score reviews. Most have some dozens of words; each batch comes as 512 columns with a mask.

Cause: nine of ten tokens are padding. Remedy: each batch is as wide as its longest review.
"""

import torch
from transformers import BertConfig, BertForSequenceClassification

from harness import main, small


def collate(reviews, width):
    """Numbers of words as a rectangle, and which of them are words."""
    words = torch.zeros(len(reviews), width, dtype=torch.long)
    known = torch.zeros(len(reviews), width, dtype=torch.long)
    for row, review in enumerate(reviews):
        words[row, : len(review)] = review
        known[row, : len(review)] = 1
    return words, known


def batches(count, size, longest, fitted):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        lengths = torch.randint(longest // 25, longest // 4, (size,), generator=generator).tolist()
        reviews = [torch.randint(5, 1024, (length,), generator=generator) for length in lengths]
        scores = torch.randint(0, 5, (size,), generator=generator)
        yield *collate(reviews, -(-max(lengths) // 8) * 8 if fitted else longest), scores


def build(remedy, device):
    width, longest = small(device, 768, 32), small(device, 512, 64)
    config = BertConfig(vocab_size=1024, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=small(device, 6, 1),
                        num_attention_heads=small(device, 12, 2), max_position_embeddings=longest, num_labels=5)
    model = BertForSequenceClassification(config).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=device.type == "cuda")
    data = [tuple(part.to(device) for part in batch) for batch in batches(32, small(device, 48, 2), longest, remedy)]
    state = {"step": 0}

    def step():
        words, known, scores = data[state["step"] % len(data)]
        state["step"] += 1
        model(input_ids=words, attention_mask=known, labels=scores).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
