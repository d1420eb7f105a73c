"""Documents of many lengths are packed into one row, and a word sees only words of its own document before it.

Cause: create_block_mask compares all pairs of places, in each layer of each step. Remedy: one mask for each row of documents, which
all layers use.
"""

import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from harness import main, small

attend = torch.compile(flex_attention, dynamic=False)


def mask_of(documents):
    def same_document_before(batch, head, query, key):
        return (query >= key) & (documents[query] == documents[key])

    length = len(documents)
    return create_block_mask(same_document_before, None, None, length, length, device=documents.device)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, x, documents, mask):
        q, k, v = self.qkv(self.norm(x)).view(1, len(documents), 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = attend(q, k, v, block_mask=mask_of(documents) if mask is None else mask)
        return x + self.out(seen.transpose(1, 2).reshape(x.shape))


def build(remedy, device):
    length, width, heads = small(device, 8192, 256), small(device, 512, 32), small(device, 8, 2)
    layers = nn.ModuleList(Layer(width, heads) for _ in range(6)).to(device, torch.bfloat16)
    rows = torch.randn(4, 1, length, width, device=device, dtype=torch.bfloat16)
    ends = torch.rand(4, length, device=device) < 8 / length
    state = {"row": 0}

    @torch.no_grad()
    def step():
        state["row"] += 1
        documents = ends[state["row"] % 4].cumsum(0)
        mask = mask_of(documents) if remedy else None
        x = rows[state["row"] % 4]
        for layer in layers:
            x = layer(x, documents, mask)
        return x

    return step


if __name__ == "__main__":
    main(build)
