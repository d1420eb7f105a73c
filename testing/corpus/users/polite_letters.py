"""Writes the ends of many letters with a small language model."""

import argparse
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

LETTERS, BEGINNING, WORDS = 48, 384, 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(8)
    config = GPT2Config(n_layer=12, n_embd=768, n_head=12, bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config).cuda().to(torch.bfloat16).eval()
    letters = torch.randint(50000, (4, LETTERS, BEGINNING), device="cuda")
    mask = torch.ones(LETTERS, BEGINNING, dtype=torch.long, device="cuda")
    options = {} if args.remedied else {"no_repeat_ngram_size": 4}

    def write(batch, words):
        return model.generate(
            letters[batch % 4], attention_mask=mask, max_new_tokens=words, do_sample=True, top_k=50, pad_token_id=0, **options
        )

    with torch.inference_mode():
        write(0, 12)
        torch.cuda.synchronize()
        began, batches = time.perf_counter(), 0
        while time.perf_counter() - began < args.seconds:
            written = write(batches, WORDS)
            batches += 1
            print(f"batch {batches}: {written.shape[1] - BEGINNING} words a letter, the last {written[0, -1].item()}")
        torch.cuda.synchronize()
    print(f"{batches * WORDS / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
