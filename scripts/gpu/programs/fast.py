"""One PyTorch program by name. For each number of steps read from its input it takes that many and prints their median and mean in
ms; at the end of its input it prints a hash of what the first five and the last step computed.

    fast.py decode|mlp|cnn|gpt2|generate|resnet50|matmul|compiled|graphs|waits

All but the last four are bound by launches. The last four have nothing to gain from a launch queue: large matrix products, a
compiled model, a CUDA graph, and one launch for each synchronisation.
"""

import hashlib
import statistics
import sys
import time

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda"


def decode():
    """A decode step of a transformer: 12 layers, width 512, batch 4, a cache of 64 rows."""
    width, heads, batch, past = 512, 8, 4, 64
    layers = [
        {
            "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
            "norm2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
        }
        for _ in range(12)
    ]  # fmt: skip
    for layer in layers:
        for module in layer.values():
            module.to(device).half()
    cache = [torch.randn(2, batch, heads, past, width // heads, device=device).half() for _ in layers]
    x0 = torch.randn(batch, 1, width, device=device).half()

    def step():
        with torch.no_grad():
            x = x0
            for layer, kv in zip(layers, cache):
                q, k, v = layer["qkv"](layer["norm1"](x)).view(batch, 1, 3, heads, -1).permute(2, 0, 3, 1, 4)
                k, v = torch.cat([kv[0], k], 2), torch.cat([kv[1], v], 2)
                weights = torch.softmax(q @ k.transpose(-1, -2) / 8.0, -1)
                x = x + layer["out"]((weights @ v).transpose(1, 2).reshape(batch, 1, width))
                x = x + layer["down"](torch.nn.functional.gelu(layer["up"](layer["norm2"](x))))
            return x

    return step


def training(model, batch, optimizer, loss):
    x, y = batch

    def step():
        optimizer.zero_grad(set_to_none=False)
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return torch.cat([p.detach().flatten()[:64].float() for p in model.parameters()])

    return step


def mlp():
    """12 layers of 256, AdamW without fusion: some 520 launches in a step."""
    layers = [m for _ in range(12) for m in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    batch = torch.randn(64, 256, device=device), torch.randn(64, 256, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False, fused=False)
    return training(model, batch, optimizer, nn.functional.mse_loss)


def cnn():
    blocks = [m for c in ((3, 32), (32, 32), (32, 64), (64, 64)) for m in (nn.Conv2d(*c, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(device)
    torch.backends.cudnn.deterministic = True
    batch = torch.randn(32, 3, 32, 32, device=device), torch.randint(0, 10, (32,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)
    return training(model, batch, optimizer, nn.functional.cross_entropy)


def gpt2_model():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)).to(device)


def gpt2():
    """GPT-2 (124 M), mixed precision, a training step of 4 sequences of 128 tokens."""
    model = gpt2_model()
    tokens = torch.randint(0, 50257, (4, 128), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return torch.cat([p.detach().flatten()[:8].float() for p in model.parameters()])

    return step


def generate():
    """GPT-2 generating 64 tokens."""
    model = gpt2_model().half().eval()
    tokens = torch.randint(0, 50257, (1, 16), device=device)
    return lambda: model.generate(tokens, max_new_tokens=64, min_new_tokens=64, do_sample=False, pad_token_id=0)


def resnet50():
    import timm

    torch.backends.cudnn.deterministic = True
    model = timm.create_model("resnet50").to(device)
    batch = torch.randn(16, 3, 224, 224, device=device), torch.randint(0, 1000, (16,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            value = nn.functional.cross_entropy(model(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        return torch.cat([p.detach().flatten()[:8].float() for p in model.parameters()])

    return step


def matmul():
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    return lambda: torch.relu(a @ b)[:8, :8]


def compiled():
    step = decode()
    return torch.compile(step)


def graphs():
    step = decode()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay():
        graph.replay()
        return result

    return replay


def waits():
    x = torch.randn(1024, device=device)

    def step():
        for _ in range(100):
            x.mul_(1.0)
            torch.cuda.synchronize()
        return x

    return step


def digest(*results):
    """A hash of the bytes of all results."""
    hashed = hashlib.sha256()
    for result in results:
        hashed.update(result.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()[:16]


def main():
    step = globals()[sys.argv[1]]()
    for _ in range(5):
        result = step()
    torch.cuda.synchronize()
    first = result.detach().clone()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begun = time.perf_counter()
            result = step()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begun) * 1e3)
        print(f"{statistics.median(times):.4f} {statistics.fmean(times):.4f}", flush=True)
    print(digest(first, result), flush=True)


if __name__ == "__main__":
    main()
