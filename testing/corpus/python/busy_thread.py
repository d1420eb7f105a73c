"""While a model generates, a thread of the same process counts words of its log in Python.

Cause: the thread holds the GIL. Remedy: the words are counted in another process.
"""

import threading

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 512, 16)
    layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 8, 2 * width, batch_first=True, dropout=0.0) for _ in range(12))
    layers = layers.to(device, torch.bfloat16).eval()
    x = torch.randn(4, 64, width, device=device, dtype=torch.bfloat16)
    running = threading.Event()

    def count_words():
        words = "the quick brown fox jumps over the lazy dog".split() * 500
        while True:
            running.wait()
            counts = {}
            for word in words:
                counts[word] = counts.get(word, 0) + 1

    if not remedy:
        threading.Thread(target=count_words, daemon=True, name="words").start()

    def step():
        running.set()
        with torch.no_grad():
            y = x
            for layer in layers:
                y = layer(y)
        running.clear()
        return y

    return step


if __name__ == "__main__":
    main(build)
