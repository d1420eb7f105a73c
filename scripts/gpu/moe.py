"""Checks and measures the Hopper form of a mixture of experts beside PyTorch's own kernels, in one process.

    scripts/gpu/moe.py OUT     # writes OUT/moe.md and OUT/moe.json

It needs a Hopper GPU and PyTorch. The kernels are those that are checked in (crates/kernels/kernels/binaries), launched through the
driver as src/moe does it. Every output and every buffer between the kernels is poisoned before. Errors are relative, in the
Frobenius norm, against float64 on the same random inputs. Times are those of bench.py (docs/results/method.md), whose rounds take
the layers in random order: a GPU that has reached its power limit is slower, and what ran before decides when it does.

A layer's time counts all steps: the router's product (cuBLAS, the same for all), routing, both products, combination.
"""

import ctypes as ct
import json
import pathlib
import sys

import torch
import torch.nn.functional as F

import bench
import hopper_tables
from attention import BINARIES, check, distance, driver, facts, load_ptx, random

TILE_ROWS, WEIGHTS, STEP, PANEL, CHUNK, STAGES = 128, 256, 64, 64, 64, 4
SHARED = 1024 + STAGES * (TILE_ROWS + WEIGHTS) * 2 * STEP + 256
hopper, portable, backward = ct.c_void_p(), load_ptx("moe_portable"), load_ptx("moe_backward_portable")
check(driver.cuModuleLoadData(ct.byref(hopper), (BINARIES / "moe_hopper.fatbin").read_bytes()))
PROPERTIES = torch.cuda.get_device_properties(0)


class Problem(ct.Structure):
    _fields_ = [(name, ct.c_int) for name in "tokens experts top_k dim hidden chunks sigmoid renormalise".split()]


def tensor_map(x, sizes, tile):
    """Of a contiguous tensor; sizes innermost first."""
    memory = (ct.c_byte * 192)()
    start = (ct.addressof(memory) + 63) // 64 * 64
    sizes, tile = list(sizes) + [1] * (5 - len(sizes)), list(tile) + [1] * (5 - len(tile))
    strides = [2]
    for size in sizes[:3]:
        strides.append(strides[-1] * size)
    strides = (ct.c_uint64 * 4)(*strides[1:], strides[-1])
    kind = 9 if x.dtype == torch.bfloat16 else 6
    check(driver.cuTensorMapEncodeTiled(ct.c_void_p(start), kind, 5, ct.c_void_p(x.data_ptr()), (ct.c_uint64 * 5)(*sizes),
                                        strides, (ct.c_uint32 * 5)(*tile), (ct.c_uint32 * 5)(*[1] * 5), 0, 3, 3, 0))
    return memory, start


def launcher(module, name, grid, threads, shared, *arguments):
    """A function that launches. Arguments are tensors, tensor maps and structures."""
    function = ct.c_void_p()
    check(driver.cuModuleGetFunction(ct.byref(function), module, name.encode()))
    if shared > 48 * 1024:
        check(driver.cuFuncSetAttribute(function, 8, shared))
    pointers = [ct.c_void_p(x.data_ptr()) if isinstance(x, torch.Tensor) else x for x in arguments]
    addresses = [x[1] if isinstance(x, tuple) else ct.addressof(x) for x in pointers]
    array = (ct.c_void_p * len(addresses))(*addresses)
    stream = ct.c_void_p(torch.cuda.current_stream().cuda_stream)

    def launch(keep=(arguments, pointers)):
        check(driver.cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, shared, stream, array, None))

    return launch


class Layer:
    """Random tensors: tokens, the router, and experts' weights."""

    def __init__(self, tokens, experts, top_k, dim, hidden, dtype=torch.bfloat16):
        self.sizes = tokens, experts, top_k, dim, hidden
        self.x = random(tokens, dim, dtype=dtype)
        self.router = random(experts, dim, dtype=dtype) * dim**-0.5
        self.up = torch.randn(experts, 2 * hidden, dim, device="cuda", dtype=dtype).mul_(dim**-0.5)
        self.down = torch.randn(experts, dim, hidden, device="cuda", dtype=dtype).mul_(hidden**-0.5)
        self.operations = 6 * tokens * top_k * dim * hidden

    def logits(self):
        return F.linear(self.x, self.router).float()


NOTHING = ct.c_void_p(0)  # no address


def words(*shape):
    return torch.full(shape, -1, dtype=torch.int32, device="cuda")


class Pass:
    """A forward pass of at most so many rows. Subclasses say what routes them and adds them up: `routing` and `summation`."""

    def __init__(self, layer, logits, rows, gate, renormalise, saving):
        tokens, experts, top_k, dim, hidden = layer.sizes
        kind = self.kind = "bf16" if layer.x.dtype == torch.bfloat16 else "f16"
        chunks = -(-tokens // CHUNK)
        self.problem = problem = Problem(tokens, experts, top_k, dim, hidden, chunks, gate == "sigmoid", renormalise)
        nan = lambda *shape: torch.full(shape, float("nan"), dtype=layer.x.dtype, device="cuda")
        self.logits, self.rows = logits, rows
        row_tokens, row_choices = words(rows), words(rows)
        spans, tiles = words(experts, 2), words(rows // TILE_ROWS + min(experts, rows) + 1, 4)
        counters = torch.zeros(2, dtype=torch.int32, device="cuda")
        # What a backward pass needs too.
        self.plan = row_tokens, row_choices, spans, tiles, counters
        self.projections = nan(rows, 2, hidden) if saving else NOTHING
        h, y, self.output = nan(rows, hidden), nan(rows, dim), nan(tokens, dim)
        up_map = tensor_map(layer.up, (dim, hidden, 2, experts), (STEP, WEIGHTS // 2, 2))
        down_map = tensor_map(layer.down, (hidden, dim, 1, experts), (STEP, WEIGHTS))
        h_map = tensor_map(h, (hidden, rows), (STEP, TILE_ROWS))
        blocks, shared = PROPERTIES.multi_processor_count, SHARED
        self.up = launcher(hopper, f"moe_up_hopper_{kind}", blocks, 384, shared, up_map, layer.up, layer.x, row_tokens, tiles,
                           counters, h, self.projections, problem)
        self.down = launcher(hopper, f"moe_down_hopper_{kind}", blocks, 384, shared, down_map, h_map, layer.down, h, tiles,
                             counters, y, problem)
        self.y = y

    def route(self):
        for kernel in self.routing:
            kernel()

    def __call__(self):
        self.route(), self.up(), self.down(), self.combine()
        return self.output


class Ours(Pass):
    """Tokens choose."""

    def __init__(self, layer, logits, gate="softmax", renormalise=True, bias=None, capacity=None, saving=False):
        tokens, experts, top_k, _, _ = layer.sizes
        super().__init__(layer, logits, tokens * top_k, gate, renormalise, saving)
        row_tokens, row_choices, spans, tiles, _ = self.plan
        self.experts, self.loads, self.drops = words(tokens, top_k), words(experts), words(2)
        self.weights = torch.full((tokens, top_k), float("nan"), device="cuda")
        chunks = self.problem.chunks
        counts, self.choice_rows = words(experts, chunks), words(tokens, top_k)
        self.routing = [
            launcher(portable, "moe_route", chunks, 256, 36 * experts, logits, NOTHING if bias is None else bias,
                     self.weights, self.experts, counts, self.drops, self.problem),
            launcher(portable, "moe_scan", experts, 256, 0, counts, self.loads, self.problem),
            launcher(portable, "moe_place", chunks, 256, 4 * (experts + CHUNK * top_k), self.experts, counts, self.loads,
                     row_tokens, row_choices, self.choice_rows, spans, tiles, ct.c_int(min(tokens, capacity or tokens)),
                     self.drops, self.problem),
        ]
        self.combine = self.summation(self.y, self.weights, self.output)

    def summation(self, rows, weights, to):
        return launcher(portable, f"moe_combine_{self.kind}", self.problem.tokens, 256, 0, rows, weights, self.choice_rows, to,
                        self.problem)

    def gate_gradient(self, weight_parts, parts, to):
        return launcher(backward, "moe_gate_gradient", -(-self.problem.tokens // 8), 256, 32 * self.problem.experts, self.logits,
                        self.weights, self.experts, self.choice_rows, weight_parts, ct.c_int(parts), to, self.problem)


def scores_of(logits, gate):
    return torch.softmax(logits, -1) if gate == "softmax" else torch.sigmoid(logits)


def choose(logits, top_k, gate="softmax", renormalise=True, bias=None, capacity=None):
    """Weights, which are 0 for choices that experts do not take, and experts."""
    scores = scores_of(logits, gate)
    experts = torch.topk(scores if bias is None else scores.detach() + bias, top_k).indices
    weights = scores.gather(-1, experts)
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    if capacity:
        before = F.one_hot(experts.flatten(), logits.shape[1]).cumsum(0).gather(1, experts.flatten()[:, None])
        weights = weights * (before <= capacity).view_as(weights)
    return weights, experts


def by_expert(experts, count):
    """The choices in the order of experts, that order's inverse, and where each expert's end. Nothing waits for the GPU."""
    flat = experts.flatten()
    order = torch.argsort(flat, stable=True)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(order.numel(), device="cuda")
    ends = torch.searchsorted(flat[order], torch.arange(count, device="cuda"), right=True)
    return order, inverse, ends.to(torch.int32)


def combine(y, inverse, weights):
    tokens, top_k = weights.shape
    return torch.bmm(weights[:, None].to(y.dtype), y[inverse].view(tokens, top_k, -1))[:, 0]


def grouped(layer, logits, **gate):
    """PyTorch's grouped products."""
    weights, experts = choose(logits, layer.sizes[2], **gate)
    order, inverse, ends = by_expert(experts, layer.sizes[1])
    gates, ups = torch._grouped_mm(layer.x[order // layer.sizes[2]], layer.up.transpose(1, 2), offs=ends).chunk(2, -1)
    return combine(torch._grouped_mm(F.silu(gates) * ups, layer.down.transpose(1, 2), offs=ends), inverse, weights)


def loop(layer, logits, **gate):
    """A loop over experts, with cuBLAS. Weights are unbound and rows split: an index for each expert would make a gradient of
    the size of all experts' for each of them."""
    weights, experts = choose(logits, layer.sizes[2], **gate)
    order, inverse, ends = by_expert(experts, layer.sizes[1])
    counts = ends.diff(prepend=ends.new_zeros(1)).tolist()
    rows = []
    for x, up, down in zip(layer.x[order // layer.sizes[2]].split(counts), layer.up.unbind(), layer.down.unbind()):
        gates, ups = F.linear(x, up).chunk(2, -1)
        rows.append(F.linear(F.silu(gates) * ups, down))
    return combine(torch.cat(rows), inverse, weights)


def reference(layer, logits, **gate):
    weights, experts = choose(logits.double(), layer.sizes[2], **gate)
    output = torch.zeros(layer.x.shape, dtype=torch.float64, device="cuda")
    for expert in range(layer.sizes[1]):
        token, place = (experts == expert).nonzero(as_tuple=True)
        if len(token):
            gates, ups = (layer.x[token].double() @ layer.up[expert].double().t()).chunk(2, -1)
            y = (F.silu(gates) * ups) @ layer.down[expert].double().t()
            output.index_add_(0, token, y * weights[token, place, None])
    return output


def errors():
    """Rows of the table of errors. Few of the sizes have anything in common with a tile's."""
    rows = []
    shapes = [(1, 4, 1, 256, 128), (77, 5, 3, 136, 72), (513, 3, 3, 64, 64), (1000, 8, 2, 512, 384), (3000, 64, 4, 1024, 512),
              (700, 256, 8, 2048, 200), (2000, 2, 1, 8, 8)]
    for shape in shapes:
        for dtype in (torch.bfloat16, torch.float16):
            for gate in ({}, {"gate": "sigmoid"}, {"renormalise": False}):
                layer = Layer(*shape, dtype=dtype)
                logits = 3 * torch.randn(shape[0], shape[1], device="cuda")
                expected = reference(layer, logits, **gate)
                ours = Ours(layer, logits, **gate)
                row = {"shape": shape, "type": str(dtype)[6:], **gate, "ours": distance(ours(), expected),
                       "cuBLAS": distance(loop(layer, logits, **gate), expected)}
                if dtype == torch.bfloat16:  # the only type that PyTorch has grouped products for
                    row["grouped"] = distance(grouped(layer, logits, **gate), expected)
                loads = torch.bincount(ours.experts.flatten().long(), minlength=shape[1])
                row["right"] = (row["ours"] <= 1.2 * min(row[name] for name in ("cuBLAS", "grouped") if name in row)
                                and bool((loads == ours.loads).all()))
                rows.append(row)
    # Logits of thousands, and all tokens with the same experts.
    layer = Layer(1000, 16, 4, 256, 128)
    for what, logits in (("logits of thousands", 1e4 * torch.randn(1000, 16, device="cuda")),
                         ("the same experts for all", torch.arange(16.0, device="cuda").expand(1000, 16).contiguous())):
        off = distance(Ours(layer, logits)(), reference(layer, logits))
        rows.append({"shape": what, "type": "bfloat16", "ours": off, "right": off < 5e-3})
    return rows


def in_any_order(launches, repeats):
    """`us`, `mhz` and `hidden` of bench.in_turns, by the name of a function."""
    measured = {name: bench.as_us(its) for name, its in bench.in_turns(launches, lambda _: repeats).items()}
    return {key: {name: its[key] for name, its in measured.items()} for key in ("us", "mhz", "hidden")}


def timed(sizes, peers, parts=False, repeats=5):
    """What was measured, ours and the peers'."""
    layer = Layer(*sizes)
    ours = Ours(layer, layer.logits())

    def whole():
        ours.logits.copy_(F.linear(layer.x, layer.router))
        ours()

    launches = {"ours": whole} | {name: lambda peer=peer: peer(layer, layer.logits()) for name, peer in peers.items()}
    if parts:
        whole()
        launches |= {"router": layer.logits, "routing": ours.route, "up": ours.up, "down": ours.down, "combine": ours.combine}
    return {"sizes": sizes, "operations": layer.operations} | in_any_order(launches, repeats)


def median(row, name):
    return bench.median(row["us"][name])


def spread(row, name):
    return bench.spread(row["us"][name])


NAMES = "tokens, experts, top-k, dim, hidden"


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    device = facts("scripts/gpu/moe.py")
    checked = errors()
    peers = {"grouped": grouped, "compiled": torch.compile(grouped, dynamic=False), "loop": loop}
    layers = [timed(sizes, peers, parts=True) for sizes in ((32768, 64, 4, 4096, 1024), (8192, 8, 2, 4096, 14336))]
    experts = [timed((32768, count, 4, 4096, 1024), {"grouped": grouped}) for count in (8, 16, 32, 64, 128)]
    small = [timed((tokens, 128, 8, 2816, 704), {"grouped": grouped}, repeats=20) for tokens in (1, 16, 128, 1024, 4096)]
    results = {"facts": device, "errors": checked, "layers": layers, "experts": experts, "small": small}
    (out / "moe.json").write_text(json.dumps(results, indent=1) + "\n")
    peers = [row["ours"] / min(row[name] for name in ("cuBLAS", "grouped") if name in row) for row in checked if "cuBLAS" in row]
    lines = [f"{device['device']}; PyTorch {device['torch']}.", "", hopper_tables.moe(results),
             f"{sum(row['right'] for row in checked)} of {len(checked)} problems are right; our error is at most "
             f"{max(peers):.2f} times the smaller one of PyTorch's."]
    (out / "moe.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    for row in checked:
        if not row["right"]:
            print("WRONG", row)
    sys.exit(not all(row["right"] for row in checked))


if __name__ == "__main__":
    main()
