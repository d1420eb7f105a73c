"""A keyboard proposes the five likeliest next words for each of eight texts, by a small Llama with a large vocabulary.

Cause: all words are scored at each place of a text, and the last place is used. Remedy: the head sees the last place only.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from harness import main, small


class Keyboard:
    def __init__(self, model, narrow):
        self.model, self.narrow = model, narrow

    def chances(self, texts):
        """How likely each word is to be the next, for each text."""
        if self.narrow:
            return self.model.lm_head(self.model.model(input_ids=texts).last_hidden_state[:, -1]).float().softmax(-1)
        return self.model(input_ids=texts).logits.float().softmax(-1)[:, -1]

    @torch.inference_mode()
    def propose(self, texts):
        return self.chances(texts).topk(5).indices


def build(remedy, device):
    words, length = small(device, 128_256, 256), small(device, 1024, 16)
    config = LlamaConfig(vocab_size=words, hidden_size=small(device, 768, 32), intermediate_size=small(device, 2048, 64),
                         num_hidden_layers=small(device, 4, 1), num_attention_heads=small(device, 12, 2),
                         num_key_value_heads=small(device, 12, 2), use_cache=False)
    keyboard = Keyboard(LlamaForCausalLM(config).to(device, torch.bfloat16).eval(), remedy)
    texts = torch.randint(0, words, (16, 8, length), device=device)
    state = {"step": 0}

    def step():
        state["step"] += 1
        return keyboard.propose(texts[state["step"] % len(texts)])

    return step


if __name__ == "__main__":
    main(build)
