"""The module `apex_cuda.kernels` with PyTorch, on a GPU: right, in captures and under torch.compile, and how fast.

    PYTHONPATH=python APEX_LIB_DIR=FOLDER scripts/gpu/python_kernels.py OUT

FOLDER holds libapex_kernels_c.so. Writes OUT/python-kernels.json and OUT/python-kernels.md, and exits with status 1 when a
check fails. Errors are relative, in the Frobenius norm, against float64 on the same random inputs, beside those of PyTorch's
own function. Times are those of bench.py (docs/results/method.md), of as many calls as take 20 ms: `us` is the GPU's time,
whose host is hidden, and `host_us` what the host takes to issue a call. Those of `host` are of calls on tensors so small that the GPU waits; "an empty node" is
what PyTorch itself needs for a backward pass whose only function returns the gradient that it is given. What runs on the GPU
in a call is by PyTorch's profiler. DEVICE=cpu tries the script without a GPU: operators are then those of the tests, in
float64, and nothing is timed.
"""

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

import bench
import python_kernels_tables as tables
from apex_cuda import kernels
from apex_cuda.kernels import _torch
from python_kernels_tables import TINY

DEVICE = os.environ.get("DEVICE", "cuda")
ON_GPU = DEVICE == "cuda"
WORST = 1.2  # our error over PyTorch's, at most
failures = []
timed = {}  # our calls, by what they are


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=DEVICE).to(dtype).requires_grad_()


def distance(found, expected):
    found, expected = found.detach(), expected.detach()
    return float((found.double() - expected).norm() / expected.norm().clamp_min(1e-30))


def gradients(function, leaves, given):
    found = function(*leaves)
    found = found if isinstance(found, tuple) else (found,)
    of = torch.autograd.grad(found, leaves, [x.to(y.dtype) for x, y in zip(given, found)])
    return [*found, *of]


def compare(name, ours, theirs, leaves):
    """Errors of outputs and gradients, ours and PyTorch's, against PyTorch's function in float64."""
    doubles = [x.detach().double().requires_grad_() for x in leaves]
    outputs = theirs(*doubles)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    given = [torch.randn_like(x) for x in outputs]
    right = gradients(theirs, doubles, given)
    row = {"what": name}
    for who, function in (("ours", ours), ("pytorch", theirs)):
        found = gradients(function, leaves, given)
        row[who] = [distance(x, y) for x, y in zip(found, right)]
    row["ok"] = all(a <= max(WORST * b, TINY) for a, b in zip(row["ours"], row["pytorch"]))
    if not row["ok"]:
        failures.append(name)
    return row


def plain(q, k, v, causal, window=None):
    """Attention in operations of PyTorch's: SDPA's causal mask begins at the first key, ours ends at the last."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    queries, keys = q.shape[2], k.shape[2]
    place = torch.arange(queries, device=q.device)[:, None] + keys - queries
    key = torch.arange(keys, device=q.device)[None]
    left, right = window or (None, 0 if causal else None)
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device=q.device)
    if right is not None:
        hidden |= key > place + right
    if left is not None:
        hidden |= key < place - left
    scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(hidden, -math.inf)
    return torch.softmax(scores.float() if q.dtype != torch.float64 else scores, 3).to(q.dtype) @ v


def rms(x, weight):
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def add_rms(x, residual, weight):
    return x + residual, rms(x + residual, weight)


def add_relu_norm(x, residual, weight, bias):
    return F.layer_norm(torch.relu(x + residual), weight.shape, weight, bias, 1e-5)


def errors():
    rows = []
    shapes = [(2, 4, 2, 200, 333), (1, 2, 2, 129, 129), (1, 2, 1, 1, 2000), (1, 4, 2, 1000, 1000)]
    shapes = shapes if ON_GPU else [(1, 2, 1, 5, 9)]
    for dtype in (torch.bfloat16, torch.float16):
        for dim in (64, 128, 256) if ON_GPU else (64,):
            for batch, heads, key_heads, queries, keys in shapes:
                for options in ({}, {"causal": True}, {"window": (50, 3)}):
                    if queries > keys and options:
                        continue
                    leaves = [random(batch, h, n, dim, dtype=dtype)
                              for h, n in ((heads, queries), (key_heads, keys), (key_heads, keys))]
                    for form in (None, "flash") if queries < 1000 else (None,):
                        rows.append(compare(
                            f"attention {dtype} d{dim} {batch}x{heads}/{key_heads}x{queries}x{keys} {options} {form}",
                            lambda q, k, v: kernels.attention(q, k, v, form=form, **options),
                            lambda q, k, v: plain(q, k, v, options.get("causal", False), options.get("window")),
                            leaves))
                        rows[-1]["backward"] = kernels.attention_backward_form(*leaves[:2], form=form, **options)
        for count, length in ((64, 4096), (7, 257), (33, 16384)) if ON_GPU else ((3, 33),):
            x, residual = random(count, length, dtype=dtype), random(count, length, dtype=dtype)
            weight, bias = random(length, dtype=dtype), random(length, dtype=dtype)
            size = f"{dtype} {count}x{length}"
            rows.append(compare(f"rms_norm {size}", kernels.rms_norm, rms, [x, weight]))
            rows.append(compare(f"residual_rms_norm {size}", kernels.residual_rms_norm, add_rms, [x, residual, weight]))
            rows.append(compare(f"residual_relu_layer_norm {size}", kernels.residual_relu_layer_norm, add_relu_norm,
                                [x, residual, weight, bias]))
            rows.append(compare(f"softmax {size}", kernels.softmax, lambda x: torch.softmax(x, -1), [x]))
    return rows


def check(name, work):
    """Runs a check; what it says, or that it failed."""
    try:
        said = work() or "ok"
    except Exception as error:  # the others are still to be run
        failures.append(name)
        said = f"failed: {type(error).__name__}: {error}"
    print(f"{name}: {said}", flush=True)
    return {"what": name, "result": said}


def same(found, expected, most=0.0):
    off = distance(found, expected.double())
    assert off <= most, f"{off} away"


def block(q, k, v, weight):
    out = kernels.attention(q, k, v, causal=True)
    total, y = kernels.residual_rms_norm(out, q, weight)
    return kernels.softmax(y) + total


def sizes(rows=512):
    return [random(2, 4, rows, 64), random(2, 2, rows, 64), random(2, 2, rows, 64), random(64)]


def repeated():
    """Gradients of norms are the same in each run, bit for bit, also while another stream computes them."""
    for count, length in ((5000, 4096), (9000, 257)) if ON_GPU else ((3, 33),):
        leaves = [random(count, length), random(count, length), random(length), random(length)]
        given = [torch.randn(count, length, device=DEVICE)]
        first = gradients(kernels.residual_relu_layer_norm, leaves, given)
        for _ in range(5):
            if ON_GPU:
                with torch.cuda.stream(torch.cuda.Stream()):
                    gradients(kernels.residual_relu_layer_norm, leaves, given)
            for one, other in zip(gradients(kernels.residual_relu_layer_norm, leaves, given), first):
                assert torch.equal(one, other)


def compiled():
    function = torch.compile(block, fullgraph=True, backend="inductor" if ON_GPU else "aot_eager")
    for rows in (512, 384, 640) if ON_GPU else (5, 6, 7):  # the later ones with dynamic shapes
        leaves = sizes(rows)
        given = [torch.randn_like(leaves[0])]
        for one, other in zip(gradients(function, leaves, given), gradients(block, leaves, given)):
            same(one, other, 0.01)


def compiled_with_graphs():
    """Inductor captures what it compiles into CUDA graphs."""
    function = torch.compile(block, fullgraph=True, mode="reduce-overhead")
    leaves = sizes()
    for _ in range(4):
        given = [torch.randn_like(leaves[0])]
        torch.compiler.cudagraph_mark_step_begin()
        found = [x.clone() for x in gradients(function, leaves, given)]
        for one, other in zip(found, gradients(block, leaves, given)):
            same(one, other, 0.01)


def captured(queries, keys):
    """A graph of a shape that has not run before: kernels are loaded during the capture."""
    def work():
        q, k, v = random(1, 4, queries, 128), random(1, 4, keys, 128), random(1, 4, keys, 128)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad():
            with torch.cuda.graph(graph):
                out = kernels.rms_norm(kernels.attention(q, k, v), torch.ones_like(q[0, 0, 0]))
            other = torch.cuda.Stream()
            for _ in range(20):
                q.copy_(torch.randn_like(q))
                graph.replay()
                with torch.cuda.stream(other):  # beside it, on another stream
                    kernels.attention(k, k, v)
                torch.cuda.synchronize()
                same(out, kernels.rms_norm(kernels.attention(q, k, v), torch.ones_like(q[0, 0, 0])))
    return work


def streams():
    """Work is in the order of the stream that is current: a long kernel stands before it."""
    q, k, v = (random(1, 2, 256, 64).detach() for _ in range(3))
    expected = kernels.attention(q, k, v)
    stream = torch.cuda.Stream()
    for _ in range(20):
        late = torch.full_like(q, math.nan)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            late.copy_(q)
            found = kernels.attention(late, k, v)
        stream.synchronize()
        same(found, expected)


def poisoned():
    """Every output and the workspace hold NaN before."""
    for form in ("flash", "hopper", "decode"):
        queries, keys = (1, 3000) if form == "decode" else (333, 517)
        q, k, v = (random(2, 2, n, 128).detach() for n in (queries, keys, keys))
        out, sums = torch.full_like(q, math.nan), torch.full(q.shape[:3], math.nan, device=DEVICE)
        needed = kernels.attention_workspace(q.shape, k.shape, form=form)
        workspace = torch.full((needed,), math.nan, device=DEVICE)
        assert kernels.attention_into(q, k, v, out, sums, form=form, workspace=workspace) == form
        same(out, plain(q.double(), k.double(), v.double(), False), 0.01)
        if form != "decode":
            given = [torch.full_like(x, math.nan) for x in (q, k, v)]
            needed = kernels.attention_workspace(q.shape, k.shape, form=form, backward=True)
            workspace = torch.full((needed,), math.nan, device=DEVICE)
            kernels.attention_backward_into(q, k, v, out, sums, torch.ones_like(q), *given, form=form, workspace=workspace)
            assert not any(x.isnan().any() for x in given)


def backward_forms():
    """On Hopper our own kernels run for every head dimension."""
    said = []
    for dim in (64, 128, 256):
        x = random(1, 2, 128, dim)
        said.append(f"d{dim} {kernels.attention_backward_form(x, x, causal=True)}")
    assert torch.cuda.get_device_capability() != (9, 0) or said == ["d64 hopper", "d128 hopper", "d256 hopper"], said
    return ", ".join(said)


def context():
    """The thread's device is the same after a call on another one."""
    if torch.cuda.device_count() < 2:
        return "there is one device"
    x = torch.ones(4, 64, device="cuda:1", dtype=torch.bfloat16)
    kernels.softmax(x)
    assert torch.cuda.current_device() == 0
    torch.ones(1, device="cuda")


CALLS_MS = 20.0
MOST_CALLS = 300  # the driver's queue has about 1,000 places, and a call launches up to three kernels


def calls_of(function):
    """How many calls take CALLS_MS on the GPU."""
    function(), function()
    ms, *_ = bench.elapsed(function, 3, bench.SHORTEST_DELAY_MS)
    return min(max(3, math.ceil(CALLS_MS / ms)), MOST_CALLS)


def launched(function, calls=5):
    """What runs on the GPU in a call, and for how many microseconds."""
    from torch.profiler import ProfilerActivity, profile

    function()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        for _ in range(calls):
            function()
        torch.cuda.synchronize()
    found = {}
    for event in watched.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name] = found.get(event.name, 0) + event.device_time_total / calls
    return [{"kernel": name, "us": us} for name, us in found.items()]


def profiled():
    return [{"what": what, "kernels": launched(function)} for what, function in timed.items()]


def backward_of(function, leaves):
    found = function(*leaves)
    found = found if isinstance(found, tuple) else (found,)
    given = [torch.randn_like(x) for x in found]
    return lambda: torch.autograd.grad(found, leaves, given, retain_graph=True)


def times():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def sdpa(backend, causal):
        def attention(q, k, v):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return attention

    rows = []
    for dim, length in ((64, 2048), (128, 512), (128, 2048), (128, 8192), (256, 2048)):
        for causal in (False, True):
            leaves = [random(16384 // length, 2048 // dim, length, dim) for _ in range(3)]
            functions = {
                "ours": lambda q, k, v, causal=causal: kernels.attention(q, k, v, causal=causal),
                "cuDNN": sdpa(SDPBackend.CUDNN_ATTENTION, causal),
                "FA-2": sdpa(SDPBackend.FLASH_ATTENTION, causal),
            }
            name = f"attention d{dim} s{length}{' causal' if causal else ''}"
            rows += pair(name, functions, leaves)
    x, residual = random(16384, 4096), random(16384, 4096)
    weight, bias = random(4096), random(4096)
    for name, ours, theirs, leaves in (
        ("rms_norm", kernels.rms_norm, rms, [x, weight]),
        ("residual_rms_norm", kernels.residual_rms_norm, add_rms, [x, residual, weight]),
        ("residual_relu_layer_norm", kernels.residual_relu_layer_norm, add_relu_norm, [x, residual, weight, bias]),
        ("softmax", kernels.softmax, lambda x: torch.softmax(x, -1), [x]),
    ):
        rows += pair(f"{name} 16384x4096", {"ours": ours, "PyTorch": theirs, "torch.compile": torch.compile(theirs)}, leaves)
    return rows


def pair(name, functions, leaves):
    """Rows of the forward and the backward pass."""
    def forward(function):
        def run():
            with torch.no_grad():
                function(*leaves)
        return run

    rows = []
    for what, calls in (
        (name, {who: forward(function) for who, function in functions.items()}),
        (f"{name}, backward", {who: backward_of(function, leaves) for who, function in functions.items()}),
    ):
        counts = {who: calls_of(call) for who, call in calls.items()}
        measured = {who: bench.as_us(its) for who, its in bench.in_turns(calls, counts.get).items()}
        row = {"what": what, "us": {who: bench.median(its["us"]) for who, its in measured.items()},
               "host_us": {who: bench.median(its["host_us"]) for who, its in measured.items()}}
        rows.append(row | {"rounds": measured})
        timed[what] = calls["ours"]
    return rows


class Empty(torch.autograd.Function):
    """A node of Python's that computes nothing."""

    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def host_times():
    """Microseconds that the host spends on a call."""
    q, k, v = (random(1, 1, 64, 64).detach() for _ in range(3))
    x, weight = random(4, 64).detach(), random(64).detach()
    out, sums = torch.empty_like(q), torch.empty(1, 1, 64, device=DEVICE)
    leaves, rows = [random(1, 1, 64, 64) for _ in range(3)], [random(4, 64), random(64)]
    functions = {
        "attention": lambda: kernels.attention(q, k, v),
        "attention_into": lambda: kernels.attention_into(q, k, v, out, sums),
        "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(q, k, v),
        "attention, gradients wanted": lambda: kernels.attention(*leaves),
        "attention, backward": backward_of(kernels.attention, leaves),
        "scaled_dot_product_attention, backward": backward_of(F.scaled_dot_product_attention, leaves),
        "rms_norm": lambda: kernels.rms_norm(x, weight),
        "F.rms_norm": lambda: rms(x, weight),
        "rms_norm, gradients wanted": lambda: kernels.rms_norm(*rows),
        "rms_norm, backward": backward_of(kernels.rms_norm, rows),
        "F.rms_norm, backward": backward_of(rms, rows),
        "an empty node, backward": backward_of(Empty.apply, rows[:1]),
    }
    found = {}
    for name, function in functions.items():
        rounds = []
        for _ in range(7):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(500):
                function()
            rounds.append((time.perf_counter() - start) / 500 * 1e6)
        found[name] = statistics.median(rounds)
    return found


def facts():
    found = {"torch": torch.__version__, "command": "scripts/gpu/python_kernels.py"}
    if ON_GPU:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        found["device"] = subprocess.run(query, capture_output=True, text=True).stdout.strip()
        found["cudnn"] = torch.backends.cudnn.version()
    return found


def summary(document):
    lines = [f"{document['facts'].get('device', 'no GPU')}; PyTorch {document['facts']['torch']}.\n", tables.checks(document)]
    if ON_GPU:
        lines += [tables.times(document), tables.host(document), tables.launched(document)]
    return "\n".join(lines)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(5)
    document = {"facts": facts(), "checks": []}
    gpu_only = [
        # First, while nothing is loaded.
        ("captured, the decode form", captured(1, 4096)),
        ("captured, the Hopper form", captured(300, 300)),
        ("streams", streams),
        ("poisoned", poisoned),
        ("what computes the backward pass", backward_forms),
        ("context", context),
        ("torch.compile with CUDA graphs", compiled_with_graphs),
    ]
    for name, work in (gpu_only if ON_GPU else []) + [("gradients of norms, repeated", repeated), ("torch.compile", compiled)]:
        document["checks"].append(check(name, work))
    document["errors"] = errors()
    if ON_GPU:
        document["host"], document["times"] = host_times(), times()
        # Last: a program is slower once it has been profiled.
        document["checks"].append(check("profiled", lambda: document.update(launched=profiled())))
    (out / "python-kernels.json").write_text(json.dumps(document, indent=1) + "\n")
    (out / "python-kernels.md").write_text(summary(document))
    print(summary(document))
    print("failed: " + ("; ".join(failures) or "nothing"))
    sys.exit(1 if failures else 0)


if not ON_GPU:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python/tests"))
    from test_kernels_torch import Reference

    _torch._launch = Reference()
    _torch._plan = lambda *_arguments: (0, 2)
if __name__ == "__main__":
    main()
