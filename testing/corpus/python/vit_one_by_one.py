"""A vision transformer (Hugging Face) classifies 32 pictures, one after the other.

Cause: launch-bound, because each call gets one picture. Remedy: a batch of 32.
"""

import torch
from transformers import ViTConfig, ViTForImageClassification

from harness import main, small


def build(remedy, device):
    config = ViTConfig(
        hidden_size=small(device, 384, 32), num_hidden_layers=small(device, 12, 1), num_attention_heads=small(device, 6, 2),
        intermediate_size=small(device, 1536, 64),
    )
    model = ViTForImageClassification(config).to(device, torch.bfloat16).eval()
    pictures = torch.randn(small(device, 32, 2), 3, 224, 224, device=device, dtype=torch.bfloat16)

    def step():
        with torch.inference_mode():
            if remedy:
                return model(pictures).logits.argmax(-1)
            return [model(picture[None]).logits.argmax(-1) for picture in pictures]

    return step


if __name__ == "__main__":
    main(build)
