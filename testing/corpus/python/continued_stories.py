"""A language model continues stories by a few words. It was trained with checkpoints, which turned a setting off.

Cause: with use_cache=False, each new word computes all words before it once more. Remedy: use_cache=True.
"""

import torch
import transformers

from harness import main, small


def build(remedy, device):
    words, count, place = small(device, 32_000, 128), small(device, 24, 2), small(device, 1024, 16)
    sizes = {"n_embd": small(device, 768, 32), "n_layer": small(device, 12, 2), "n_head": small(device, 12, 2)}
    config = transformers.GPT2Config(vocab_size=words, n_positions=2048, bos_token_id=0, eos_token_id=None, pad_token_id=0, **sizes)
    model = transformers.GPT2LMHeadModel(config).to(device, torch.bfloat16).eval()
    model.config.use_cache = model.generation_config.use_cache = remedy
    stories = torch.randint(1, words, (4, count, place), device=device)
    seen = torch.ones(count, place, dtype=torch.long, device=device)
    state = {"story": 0}

    @torch.no_grad()
    def step():
        state["story"] += 1
        return model.generate(stories[state["story"] % 4], attention_mask=seen, max_new_tokens=8, do_sample=False)

    return step


if __name__ == "__main__":
    main(build)
