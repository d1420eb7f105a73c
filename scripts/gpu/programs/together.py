"""PyTorch models as users write them, in bf16. For each number of steps that the program reads, it takes these steps and prints
their median and mean in ms; at the end of its input it prints hashes of the results of the first and of the last step.

    together.py PROGRAM plain|patch|compile|graphs FILE

`patch` is `apex_cuda.patch(model)`, `compile` is `torch.compile(model)`, and `graphs` the same with `mode="reduce-overhead"`.
FILE receives what the first step computed, and the account of `patch`. DEVICE=cpu runs small models on the CPU.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from fast import digest
from torch import nn

device = os.environ.get("DEVICE", "cuda")
small = device == "cpu"
SAMPLE = 4096


class Attention(nn.Module):
    """Attention of heads, with a cache of keys if it is given one."""

    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=bias) for _ in range(4))

    def forward(self, x, rotate=None, causal=False, cache=None, place=None, mask=None):
        q, k, v = (linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for linear in (self.q, self.k, self.v))
        if rotate is not None:
            q, k = rotated(q, *rotate), rotated(k, *rotate)
        if cache is not None:
            k, v = cache[0].index_copy_(2, place, k), cache[1].index_copy_(2, place, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.out(y.transpose(1, 2).flatten(-2))


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class DecoderBlock(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.attention = Attention(width, heads, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, *options):
        x = x + self.attention(self.norm1(x), *options)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """A decoder-only transformer: RMSNorm, rotary positions, causal attention, SwiGLU."""

    def __init__(self, width, heads, layers, hidden, vocabulary, length, batch=None):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        dim = width // heads
        angles = torch.outer(torch.arange(length), 10_000.0 ** (-torch.arange(0, dim, 2) / dim)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.layers = layers
        for layer in range(layers if batch else 0):
            self.register_buffer(f"cache{layer}", torch.randn(2, batch, heads, length, dim) * 0.1)

    def forward(self, tokens, targets):
        """The loss, and some of the logits."""
        x, rotate = self.embedding(tokens), (self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x, rotate, True)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits[:, ::64, :8].detach()


class Step(Decoder):
    """The same decoder, generating one token from a cache of keys and values."""

    def forward(self, tokens, place):
        x, rotate = self.embedding(tokens), (self.cos[place], self.sin[place])
        mask = torch.arange(self.cos.shape[0], device=tokens.device)[None] <= place
        for layer, block in enumerate(self.blocks):
            x = block(x, rotate, False, getattr(self, f"cache{layer}"), place, mask)
        return self.head(self.norm(x))


class VisionBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, bias=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Vision(nn.Module):
    """A vision transformer: patches of 16, LayerNorm, GELU."""

    def __init__(self, width, heads, layers, side):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.places = nn.Parameter(torch.randn(1, (side // 16) ** 2, width) * 0.02)
        self.blocks = nn.Sequential(*(VisionBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, images, targets=None):
        x = self.blocks(self.patches(images).flatten(2).transpose(1, 2) + self.places)
        logits = self.head(self.norm(x).mean(1))
        return logits if targets is None else (F.cross_entropy(logits, targets), logits.detach())


def training(model, how, batch):
    """A step of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=not small)
    model, account = changed(model, how)

    def step():
        optimizer.zero_grad()
        loss, logits = model(*batch)
        loss.backward()
        optimizer.step()
        return torch.cat([loss.detach().flatten().float(), logits.flatten().float()])

    return step, account


def changed(model, how):
    """The model as it runs, and the account of what was replaced."""
    if how == "patch":
        import apex_cuda

        return model, apex_cuda.patch(model)
    if how == "plain":
        return model, ""
    options = {"mode": "reduce-overhead"} if how == "graphs" else {}
    return torch.compile(model, **options), ""


def on_device(model):
    return model.to(device, torch.bfloat16)


def decoder_training(how):
    """Two layers as wide as those of a model of 7 B parameters; 8 sequences of 2,048 tokens."""
    batch, length, vocabulary = (2, 128, 64) if small else (8, 2048, 8192)
    sizes = (128, 2, 1, 128) if small else (4096, 32, 2, 8192)
    model = on_device(Decoder(*sizes, vocabulary, length))
    tokens = torch.randint(0, vocabulary, (batch, length + 1), device=device)
    return training(model, how, (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()))


def decoder_inference(how):
    """Tokens of 4 sequences, one after the other: 12 layers of 768, a cache of 512."""
    vocabulary, length = 8192, 512
    sizes = (128, 2, 1, 128) if small else (768, 12, 12, 2048)
    model = on_device(Step(*sizes, vocabulary, length, 4)).eval()
    tokens = torch.randint(0, vocabulary, (4, 1), device=device)
    place, count = torch.tensor([length // 2], device=device), 0
    model, account = changed(model, how)

    @torch.no_grad()
    def step():
        nonlocal tokens, count
        logits = model(tokens, place)
        tokens = logits[:, -1:].argmax(-1)
        place.add_(1)
        count += 1
        if count % 128 == 0:
            place.fill_(length // 2)
        return logits

    return step, account


def vision_training(how):
    """A vision transformer of the size B, 4 images of 768 x 768: 2,304 patches of each."""
    sizes, side, batch = ((128, 2, 1), 64, 2) if small else ((768, 12, 12), 768, 4)
    model = on_device(Vision(*sizes, side))
    images = torch.randn(batch, 3, side, side, device=device, dtype=torch.bfloat16)
    return training(model, how, (images, torch.randint(0, 1000, (batch,), device=device)))


def vision_inference(how):
    """The same model on one image of 224 x 224: 196 patches."""
    sizes, side = ((128, 2, 1), 64) if small else ((768, 12, 12), 224)
    model, account = changed(on_device(Vision(*sizes, side)).eval(), how)
    images = torch.randn(1, 3, side, side, device=device, dtype=torch.bfloat16)

    @torch.inference_mode()
    def step():
        return model(images)

    return step, account


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


def main():
    program, how, file = sys.argv[1:]
    torch.manual_seed(0)
    step, account = globals()[program.replace("-", "_")](how)
    first = step().clone()
    for _ in range(4):
        result = step()
    wait()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begun = time.perf_counter()
            result = step()
            wait()
            times.append((time.perf_counter() - begun) * 1e3)
        print(f"{statistics.median(times):.4f} {statistics.fmean(times):.4f}", flush=True)
    sample = first.flatten().float()[:SAMPLE].tolist()
    peak = torch.cuda.max_memory_reserved() if device == "cuda" else 0
    Path(file).write_text(json.dumps({"first": sample, "account": str(account), "peak_bytes": peak}))
    print(digest(first), digest(result), flush=True)


if __name__ == "__main__":
    main()
