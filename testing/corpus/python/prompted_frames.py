"""Frames are drawn for a stream of prompts: a text encoder reads the prompt, a network removes noise in a few rounds.

Cause: the encoder's weights are moved to the GPU for each prompt, and back, to save memory. Remedy: it stays there.
"""

import torch
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel

from harness import main, small


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.shift = nn.LayerNorm(width), nn.Linear(width, width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, prompt):
        return x + self.mix(self.norm(x) + self.shift(prompt)[:, None])


def build(remedy, device):
    width, tokens = small(device, 512, 32), small(device, 1024, 8)
    config = CLIPTextConfig(vocab_size=8192, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=small(device, 4, 1),
                            num_attention_heads=small(device, 8, 2), projection_dim=width,
                            bos_token_id=0, eos_token_id=1)
    encoder = CLIPTextModel(config).to(torch.bfloat16).eval()
    network = nn.ModuleList(Block(width) for _ in range(6)).to(device, torch.bfloat16).eval()
    if remedy:
        encoder.to(device)
    prompts = torch.randint(2, 8192, (64, 77))
    state = {"prompt": 0}

    def encode_prompt(words):
        encoder.to(device)
        meaning = encoder(input_ids=words.to(device)).pooler_output
        if not remedy:
            encoder.to("cpu")
        return meaning

    @torch.inference_mode()
    def step():
        state["prompt"] += 1
        meaning = encode_prompt(prompts[state["prompt"] % 64][None])
        frame = torch.randn(1, tokens, width, device=device, dtype=torch.bfloat16)
        for _ in range(4):
            noise = frame
            for block in network:
                noise = block(noise, meaning)
            frame = frame - 0.25 * noise
        return frame

    return step


if __name__ == "__main__":
    main(build)
