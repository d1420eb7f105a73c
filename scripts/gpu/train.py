"""Trains the transformer of the example `train` and a PyTorch model of the same sizes on the same text, one after the other.

    scripts/gpu/train.py OUT                    # writes OUT/train.md, OUT/train.json and OUT/curve-*.csv
    scripts/gpu/train.py OUT --device cpu       # a few steps of a tiny model, to see that this script works

It needs PyTorch, and the example (`cargo build --release -p apex-kernels --example train`); PROGRAM names it. Both models have
weights in bf16 for products and in float32 for AdamW, learn with the same rates, and read random places of the text: the same
distribution, not the same bytes. PyTorch runs eagerly and under `torch.compile`. Tokens per second count all that a step does,
after the first steps; losses are means over the last tenth of the steps.
"""

import argparse
import csv
import json
import math
import os
import pathlib
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = 64
LARGE = {"layers": 8, "dim": 512, "heads": 8, "key-heads": 2, "hidden": 1408, "batch": 16, "length": 512}
WIDE = {"layers": 8, "dim": 2048, "heads": 32, "key-heads": 8, "hidden": 5632, "batch": 8, "length": 2048}
TINY = {"layers": 2, "dim": 64, "heads": 2, "key-heads": 1, "hidden": 128, "batch": 2, "length": 32}
RATE, BETAS, DECAY = 3e-3, (0.9, 0.95), 0.1


class Block(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        dim, self.heads, self.key_heads = sizes["dim"], sizes["heads"], sizes["key-heads"]
        linear = lambda inputs, outputs: torch.nn.Linear(inputs, outputs, bias=False)
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(dim, 1e-6) for _ in range(2))
        self.query, self.output = linear(dim, self.heads * HEAD), linear(self.heads * HEAD, dim)
        self.key, self.value = linear(dim, self.key_heads * HEAD), linear(dim, self.key_heads * HEAD)
        self.gate, self.up = linear(dim, sizes["hidden"]), linear(dim, sizes["hidden"])
        self.down = linear(sizes["hidden"], dim)

    def forward(self, x, cos, sin):
        heads = lambda y, count: y.unflatten(-1, (count, HEAD)).transpose(1, 2)
        rotate = lambda y: y * cos + torch.cat((-y[..., HEAD // 2:], y[..., : HEAD // 2]), -1) * sin
        normal = self.norms[0](x)
        q, k = rotate(heads(self.query(normal), self.heads)), rotate(heads(self.key(normal), self.key_heads))
        v = heads(self.value(normal), self.key_heads)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.output(attended.transpose(1, 2).flatten(-2))
        normal = self.norms[1](x)
        return x + self.down(F.silu(self.gate(normal)) * self.up(normal))


class Model(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        dim = sizes["dim"]
        self.embedding, self.head = torch.nn.Embedding(256, dim), torch.nn.Linear(dim, 256, bias=False)
        self.blocks = torch.nn.ModuleList(Block(sizes) for _ in range(sizes["layers"]))
        self.norm = torch.nn.RMSNorm(dim, 1e-6)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        angles = torch.outer(torch.arange(sizes["length"]), 10_000.0 ** (-torch.arange(HEAD // 2) / (HEAD // 2)))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos().bfloat16())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin().bfloat16())

    def forward(self, inputs, targets):
        x = self.embedding(inputs)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def pytorch(sizes, text, steps, device, compiled):
    """Losses of all steps, tokens per second after the first, and the number of parameters."""
    torch.manual_seed(1)
    # Weights in bf16, and their masters, which learn, in float32.
    model = Model(sizes).to(device)
    masters = [parameter.detach().clone() for parameter in model.parameters()]
    for master in masters:
        master.grad = torch.zeros_like(master)
    model.bfloat16()
    weights = list(model.parameters())
    adamw = torch.optim.AdamW(
        [{"params": [m for m in masters if m.dim() > 1], "weight_decay": DECAY},
         {"params": [m for m in masters if m.dim() == 1], "weight_decay": 0.0}],
        betas=BETAS, fused=device == "cuda")
    compute = torch.compile(model) if compiled else model
    place = torch.arange(sizes["length"] + 1, device=device)
    losses, first = [], min(10, steps // 2)
    for step in range(1, steps + 1):
        start = torch.randint(len(text) - sizes["length"], (sizes["batch"], 1), device=device)
        tokens = text[start + place]
        loss = compute(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        with torch.no_grad():
            torch._foreach_copy_([master.grad for master in masters], [weight.grad for weight in weights])
            model.zero_grad()
            for group in adamw.param_groups:
                group["lr"] = RATE * min(step / 10, 1)
            adamw.step()
            torch._foreach_copy_(weights, masters)
        losses.append(loss.detach())
        if step == first:
            synchronize(device)
            began = time.perf_counter()
    synchronize(device)
    speed = (steps - first) * sizes["batch"] * sizes["length"] / (time.perf_counter() - began)
    return [float(loss) for loss in losses], speed, sum(master.numel() for master in masters)


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def ours(sizes, text, steps, device, out, *more):
    """The same of the example, and the lines that it printed."""
    program = os.environ.get("PROGRAM", ROOT / "target/release/examples/train")
    curve = out / "curve.csv"
    shape = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    call = [program, "--device", "gpu" if device == "cuda" else "cpu", "--text", text, "--steps", str(steps), *shape, *more]
    # One run for the speed, in which no step waits for its loss, and one for the losses.
    lines = subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()
    subprocess.run([*call, "--curve", curve], check=True, capture_output=True)
    with curve.open() as rows:
        losses = [float(row["loss"]) for row in csv.DictReader(rows)]
    curve.unlink()
    number = lambda mark: float(next(line for line in lines if mark in line).split(mark)[0].split()[-1])
    return losses, number(" tokens per second"), int(number(" parameters")), lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int)
    arguments = parser.parse_args()
    out, device = arguments.out, arguments.device
    out.mkdir(parents=True, exist_ok=True)
    steps = arguments.steps or (500 if device == "cuda" else 4)
    source = b"".join(path.read_bytes() for path in sorted((ROOT / "docs").glob("*.md")))
    text = out / "text"
    text.write_bytes(source)
    on_device = torch.tensor(list(source), device=device)
    rows = []

    def add(sizes, what, found, more=()):
        losses, speed, parameters, *lines = found
        tail = losses[-max(len(losses) // 10, 1):]
        finite = all(map(math.isfinite, losses))
        rows.append({"sizes": sizes, "what": what, "parameters": parameters, "tokens_per_second": speed, "first": losses[0],
                     "last": statistics.mean(tail), "finite": finite, "lines": lines, "more": more})
        with (out / f"curve-{len(rows)}.csv").open("w") as file:
            file.writelines(["step,loss\n", *(f"{step},{loss}\n" for step, loss in enumerate(losses, 1))])
        print(rows[-1]["what"], f"{speed:.0f} tokens/s, loss {losses[0]:.3f} to {rows[-1]['last']:.3f}", flush=True)

    for sizes in [LARGE, WIDE] if device == "cuda" else [TINY]:
        its_steps = steps if sizes is not WIDE else max(steps // 5, 20)
        add(sizes, "apex-kernels, dense", ours(sizes, text, its_steps, device, out))
        add(sizes, "PyTorch, dense", pytorch(sizes, on_device, its_steps, device, False))
        if device == "cuda":
            add(sizes, "PyTorch compiled, dense", pytorch(sizes, on_device, its_steps, device, True))
    sparse = (LARGE | {"hidden": 704}) if device == "cuda" else TINY
    for balance in ["free", "auxiliary", "none"]:
        more = ["--experts", "8", "--top-k", "2", "--balance", balance]
        add(sparse, f"apex-kernels, 8 experts, balance {balance}", ours(sparse, text, steps, device, out, *more), more)

    text.unlink()
    (out / "train.json").write_text(json.dumps({"pytorch": torch.__version__, "device": device, "rows": rows}, indent=1))
    table = ["| model | layers x dim, batch x length | parameters | tokens/s | first loss | last loss |",
             "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        shape = "{layers} x {dim}, {batch} x {length}".format(**row["sizes"])
        table.append(f"| {row['what']} | {shape} | {row['parameters']} | {row['tokens_per_second']:.0f} | {row['first']:.3f} "
                     f"| {row['last']:.3f} |")
    (out / "train.md").write_text("\n".join(table) + "\n")
    # A model that learns says less than log(256) soon; a few steps on the CPU do not show it.
    wrong = [row["what"] for row in rows if not row["finite"] or device == "cuda" and row["last"] > 3]
    raise SystemExit(f"does not learn: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
