#!/usr/bin/env python3
"""Checks and measures generated kernels beside PyTorch, in one process.

    scripts/gpu/fusion.py run PTX OUT        # writes OUT/fusion.json; needs a Hopper GPU, ptxas and PyTorch
    scripts/gpu/fusion.py clusters PTX OUT   # writes OUT/clusters.json: only schedules with clusters, beside the rule
    scripts/gpu/fusion.py gradients PTX OUT  # writes OUT/gradients.json: the gradients of norms, in all schedules
    scripts/gpu/fusion.py peers PTX OUT      # writes OUT/peers.json: only the rule, beside all peers
    scripts/gpu/fusion.py peers-gradients PTX OUT   # the same of the gradients of norms
    scripts/gpu/fusion.py table FILE         # prints the table of a file of `peers`
    scripts/gpu/fusion.py tried FILE         # prints what each schedule takes
    scripts/gpu/fusion.py change OLD NEW     # prints what the rule took in each of two such files

PTX is a folder that the example fusion_forms has filled (--emit). Outputs are poisoned before; errors are relative, in the
Frobenius norm, against float64 on the same random inputs, with PyTorch's own beside. Times are those of bench.py
(docs/results/method.md); each launch takes the next of several sets of tensors, which together are larger than the L2 cache. A
copy moves as many bytes, by cudaMemcpyAsync within the device, in the same rounds. Where little is moved, launches are replayed
from a CUDA graph. Cases that begin more than FUSION_SECONDS (the environment's, else 600) after the start are left out.

"eager" is PyTorch's function for the work where it has one (F.rms_norm, F.layer_norm and their autograd, softmax, F.gelu), and
otherwise its operations one by one. "torch.compile" compiles the formula in operations; "torch.compile, function" compiles
PyTorch's function, whose gradients are then autograd's. Both in the default mode, for fixed sizes.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import bench
import figures
from bench import median, shown_ratio, spread

ROUNDS, REPEATS = 15, 10
L2 = 128 << 20  # more than the cache of an H200
SMALL = 32 << 20
PEERS = ("eager", "torch.compile", "torch.compile, function")
COMMANDS = ("run", "clusters", "gradients", "peers", "peers-gradients")


def assemble(folder, kernels):
    """Adds to each kernel its machine code, and what ptxas says of its registers and spills."""
    ptxas = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"

    def one(kernel):
        source = folder / kernel["file"]
        code = f"/tmp/fusion-{os.getpid()}-{source.stem}.cubin"
        made = subprocess.run([ptxas, "-v", "-arch=sm_90", source, "-o", code], capture_output=True, text=True)
        if made.returncode:
            kernel["failure"] = made.stderr.strip()[-300:]
            return
        number = lambda word: int(made.stderr.split(word)[0].split()[-1])
        kernel["registers"], kernel["spilled"] = number(" registers"), number(" bytes spill stores")
        kernel["code"] = pathlib.Path(code).read_bytes()
        os.remove(code)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, kernels))


def run(folder, out, command="run"):
    began = time.monotonic()
    clusters, gradients, rule_only = command == "clusters", command.endswith("gradients"), command.startswith("peers")
    is_wanted = lambda entry: entry["form"].endswith("gradients") == gradients and (
        entry["schedule"] == "rule" or not rule_only and entry["schedule"].startswith("cluster") == clusters)
    entries = [entry for entry in json.loads((folder / "kernels.json").read_text()) if is_wanted(entry)]
    assemble(folder, [kernel for entry in entries for kernel in entry["kernels"]])
    for entry in entries:
        for kernel in entry["kernels"]:
            if "failure" in kernel or kernel["spilled"]:
                print(entry["form"], entry["length"], entry["schedule"], kernel.get("failure", "spills"), flush=True)
    entries = [entry for entry in entries if all("code" in kernel for kernel in entry["kernels"])]
    print(f"ptxas: {len(entries)} schedules in {time.monotonic() - began:.1f} s", flush=True)

    import ctypes as ct

    import torch
    import torch._functorch.config
    import torch.nn.functional as F

    torch._functorch.config.donated_buffer = False  # or the graph of a compiled function cannot be kept

    from attention import check, distance, driver, facts

    def load(kernel):
        if "function" in kernel:
            return kernel["function"]
        module, function = ct.c_void_p(), ct.c_void_p()
        check(driver.cuModuleLoadData(ct.byref(module), kernel["code"]))
        check(driver.cuModuleGetFunction(ct.byref(function), module, kernel["name"].encode()))
        if kernel["shared"] > 48 << 10:
            check(driver.cuFuncSetAttribute(function, 8, kernel["shared"]))
        kernel["function"] = function
        return function

    def launcher(kernels, tensors, counts):
        """A function that launches on these tensors; what is counted begins with zeros."""
        calls = []
        for kernel in kernels:
            pointers = [ct.c_void_p(tensors[name].data_ptr()) for name in kernel["parameters"]]
            array = (ct.c_void_p * len(pointers))(*[ct.addressof(pointer) for pointer in pointers])
            calls.append((load(kernel), kernel["grid"], kernel["block"], kernel["shared"], array, pointers))

        def launch():
            for count in counts:
                count.zero_()
            stream = ct.c_void_p(torch.cuda.current_stream().cuda_stream)
            for function, grid, block, shared, array, _ in calls:
                check(driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream, array, None))

        return launch

    def bias_gelu(x, bias):
        return F.gelu(x + bias, approximate="tanh")

    def layer_norm(x, residual, weight, bias):
        return F.layer_norm(F.relu(x + residual), x.shape[-1:], weight, bias, 1e-5)

    def rms_norm(x, weight):
        wide = x.float() if x.dtype != torch.float64 else x
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * weight).to(x.dtype)

    def rotary(x, cos, sin):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    def masked(x):
        rows, length = x.shape[-2:]
        seen = torch.ones(rows, length, dtype=torch.bool, device=x.device).tril(length - rows)
        return torch.softmax((x * 0.125).masked_fill(~seen, float("-inf")), -1)

    def softmax(x):
        return torch.softmax(x, -1)

    def gate(x):
        weights, experts = torch.topk(torch.softmax(x, -1), 4)
        loads = torch.zeros(x.shape[-1], dtype=torch.int64, device=x.device)
        loads.scatter_add_(0, experts.flatten(), torch.ones_like(experts.flatten()))
        return weights / weights.sum(-1, keepdim=True), experts, loads

    def through_norm(gradient, normal, scale):
        return (gradient - normal * (gradient * normal).mean(-1, keepdim=True)) * scale

    def rms_norm_gradients(x, weight, gradient, residual=None):
        wide, weight, given = (y if y.dtype == torch.float64 else y.float() for y in (x, weight, gradient))
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        normal = wide * scale
        found = through_norm(given * weight, normal, scale)
        found = found if residual is None else found + residual
        return found.to(x.dtype), (given * normal).sum(0).to(x.dtype)

    def layer_norm_gradients(x, residual, weight, gradient):
        wide, residual, weight, given = (y if y.dtype == torch.float64 else y.float()
                                         for y in (x, residual, weight, gradient))
        total = wide + residual
        centred = F.relu(total) - F.relu(total).mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        of_normal, normal = given * weight, centred * scale
        found = through_norm(of_normal - of_normal.mean(-1, keepdim=True), normal, scale) * (total > 0)
        return found.to(x.dtype), (given * normal).sum(0).to(x.dtype), given.sum(0).to(x.dtype)

    def functions(form):
        """PyTorch's own function for a form, or None; for gradients, the function whose gradients they are."""
        norm = lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-6)
        return {
            "RMSNorm": norm,
            "RMSNorm, gradients": norm,
            # The second output is where the gradient of the residual arrives.
            "residual + RMSNorm, gradients": lambda x, weight: (norm(x, weight), x.view_as(x)),
            "residual + ReLU + LayerNorm, gradients": lambda x, residual, weight, bias: layer_norm(x, residual, weight, bias),
        }.get(form)

    def differentiated(form, function, given):
        """A function that computes the gradients of a form by autograd, of a forward pass that has run."""
        x, *others = given
        if form.startswith("residual + ReLU"):
            residual, weight, gradient = others
            arriving, leaves = [gradient], [x, weight, torch.zeros_like(weight)]
            wanted = [leaf.detach().requires_grad_() for leaf in leaves]
            arguments = [wanted[0], residual, *wanted[1:]]
        else:
            weight, *arriving = others
            arguments = wanted = [leaf.detach().requires_grad_() for leaf in (x, weight)]
        with torch.enable_grad():
            found = function(*arguments)
        return lambda: torch.autograd.grad(found, wanted, arriving, retain_graph=True)

    def tensor(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device="cuda").to(dtype)

    def forms(form, rows, length):
        """PyTorch's function, and a function that makes inputs."""
        x, vector = lambda: tensor(rows, length), lambda: tensor(length)
        heads = max(-(-rows // length), 1)
        return {
            "bias + GELU": (bias_gelu, lambda: [x(), vector()]),
            "residual + ReLU + LayerNorm": (layer_norm, lambda: [x(), x(), vector(), vector()]),
            "RMSNorm": (rms_norm, lambda: [x(), vector()]),
            "rotary embedding": (rotary, lambda: [tensor(1, rows, -(-length // 128), 128), tensor(rows, 1, 128),
                                                  tensor(rows, 1, 128)]),
            "scale + mask + softmax": (masked, lambda: [tensor(heads, rows // heads, length)]),
            "softmax": (softmax, lambda: [x()]),
            "gate softmax + top-k + renormalise + histogram": (gate, lambda: [tensor(rows, 64, dtype=torch.float32)]),
            "RMSNorm, gradients": (rms_norm_gradients, lambda: [x(), vector(), x()]),
            "residual + RMSNorm, gradients": (rms_norm_gradients, lambda: [x(), vector(), x(), x()]),
            "residual + ReLU + LayerNorm, gradients": (layer_norm_gradients, lambda: [x(), x(), vector(), x()]),
        }[form]

    def outputs(function, inputs):
        made = function(*inputs)
        return list(made) if isinstance(made, tuple) else [made]

    def replay(launches):
        """A function that launches on each set of tensors, from a CUDA graph."""
        for launch in launches[:3]:
            launch()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in launches:
                launch()
        return graph

    def times(candidates, sets, is_small):
        """`us`, `mhz` and `hidden` of each candidate, whose launches take a set of tensors each."""
        if is_small:
            turns, calls, each = {name: replay(launches).replay for name, launches in candidates.items()}, 3, sets
        else:
            turns, calls, each = {name: bench.rotating(launches) for name, launches in candidates.items()}, REPEATS, 1
        found = {name: bench.as_us(its) for name, its in bench.in_turns(turns, lambda _: calls, ROUNDS).items()}
        return {"us": {name: [round(us / each, 3) for us in its["us"]] for name, its in found.items()},
                **{key: {name: its[key] for name, its in found.items()} for key in ("mhz", "hidden")}}

    def peers(form, function, inputs):
        """Launches on each set of inputs, by the name of the peer."""
        compiled, own = torch.compile(function, dynamic=False), functions(form)
        found = {"torch.compile": [lambda given=given: compiled(*given) for given in inputs]}
        if own is None:
            return found | {"eager": [lambda given=given: function(*given) for given in inputs]}
        both = {"eager": own, "torch.compile, function": torch.compile(own, dynamic=False)}
        for name, called in both.items():
            found[name] = [differentiated(form, called, given) if gradients else lambda given=given, called=called: called(*given)
                           for given in inputs]
        return found

    def measure(form, rows, length, schedules):
        function, make = forms(form, rows, length)
        torch._dynamo.reset()
        bytes_moved = min(entry["after"] for entry in schedules)
        is_small = bytes_moved < SMALL
        sets = max(2, -(-L2 // bytes_moved) + 1)
        inputs = [make() for _ in range(sets)]
        expected_kinds = outputs(function, inputs[0])
        poisoned = lambda y: (torch.full_like(y, -1, dtype=torch.int32) if y.dtype == torch.int64
                              else torch.full_like(y, float("nan")))
        made = [[poisoned(y) for y in expected_kinds] for _ in inputs]
        tensors = [{f"i{place}": x for place, x in enumerate(given)} | {f"o{place}": y for place, y in enumerate(results)}
                   for given, results in zip(inputs, made)]
        sizes = [entry["between"] for entry in schedules]
        for place in range(max(map(len, sizes))):
            most = max(between[place] for between in sizes if place < len(between))
            shared = torch.empty(max(most, 4), dtype=torch.uint8, device="cuda")
            for given in tensors:
                given[f"b{place}"] = shared
        empty = lambda: torch.empty(bytes_moved // 2, dtype=torch.uint8, device="cuda")
        copies = [(empty(), empty().random_()) for _ in range(sets)]
        candidates = {"copy": [lambda to=to, source=source: to.copy_(source) for to, source in copies]}
        if not clusters:
            candidates |= peers(form, function, inputs)
        for entry in schedules:
            candidates[entry["schedule"]] = [launcher(entry["kernels"], given, [] if gradients else results[2:])
                                             for given, results in zip(tensors, made)]
        # float64 of a part, which fits into memory.
        part = [x if gradients else x[:1] if form.startswith("scale") else x[:, :512] if x.dim() == 4
                else x[:512] if x.dim() > 1 else x for x in inputs[0]]
        every = outputs(function, [x.double() for x in part])
        expected = every[0]
        off = lambda y: distance(y.flatten()[: expected.numel()].view(expected.shape), expected)
        case = {"form": form, "rows": rows, "length": length, "before": schedules[0]["before"], "after": bytes_moved,
                "errors": {}, "schedules": {}}
        first = lambda name: outputs(candidates[name][0], [])
        case["errors"] = {name: off(first(name)[0]) for name in PEERS if name in candidates}
        for entry in schedules:
            name, y = entry["schedule"], made[0][0]
            y.fill_(float("nan"))
            candidates[name][0]()
            torch.cuda.synchronize()
            # All that a launch left unwritten is NaN.
            case["errors"][name] = off(y) if not bool(y.isnan().any()) else float("inf")
            case["schedules"][name] = [{key: kernel[key] for key in ("grid", "block", "shared", "registers", "spilled")}
                                       for kernel in entry["kernels"]]
        if gradients:
            # The sums over rows, which are outputs too.
            worst = lambda found: max(distance(y, right) for y, right in zip(found[1:], every[1:]))
            case["sums"] = {"eager": worst(first("eager"))}
            for entry in schedules:
                [y.fill_(float("nan")) for y in made[0]]
                candidates[entry["schedule"]][0]()
                case["sums"][entry["schedule"]] = worst(made[0])
            del every
        elif len(made[0]) > 2:
            wanted = first("eager")
            case["choices agree"] = float((wanted[1] == made[0][1]).float().mean())
            case["loads differ"] = int((wanted[2] != made[0][2]).sum())
        return case | times(candidates, sets, is_small)

    cases = {}
    for entry in entries:
        cases.setdefault((entry["form"], entry["rows"], entry["length"]), []).append(entry)
    results = {"facts": facts(f"scripts/gpu/fusion.py {command}"), "cases": []}
    # The sizes of the goals first: time may end.
    for (form, rows, length), schedules in sorted(cases.items(), key=lambda case: case[0][2] != 4096):
        if len(schedules) < 2 and not rule_only or time.monotonic() - began > float(os.environ.get("FUSION_SECONDS", 600)):
            continue
        try:
            with torch.no_grad():
                case = measure(form, rows, length, schedules)
        except Exception as error:  # The next case may succeed.
            print(f"{form} {rows}x{length}: {type(error).__name__}: {str(error)[-300:]}", flush=True)
            continue
        results["cases"].append(case)
        us = medians(case)
        best = min(case["schedules"], key=us.get)
        names = [name for name in ("copy", *PEERS, "rule", best) if name in us]
        print(f"{form} {rows}x{length}: " + ", ".join(f"{name} {us[name]:.1f}" for name in names)
              + f" us ({best}); worst error {max(case['errors'][name] for name in case['schedules']):.2e}, eager "
              f"{case['errors'].get('eager', 0):.2e}; {time.monotonic() - began:.0f} s", flush=True)
        (out / ("fusion.json" if command == "run" else f"{command}.json")).write_text(json.dumps(results))
        torch.cuda.empty_cache()


def medians(case):
    return {name: median(times) for name, times in case["us"].items()}


def table(path):
    results = figures.read_results(path)
    rows, pairs, is_waiting = [], [], False
    for case in results["cases"]:
        us, errors, times = medians(case), case["errors"], case["us"]
        ours, best = us["rule"], bench.fastest(times, PEERS)
        waits = {name: not bench.is_hidden(case["hidden"][name], times[name]) for name in ("rule", *PEERS) if name in times}
        is_waiting |= any(waits.values())
        pairs.append((times[best], times["rule"]))
        cells = [f"{us[name]:.1f}{'*' if waits[name] else ''}" if name in us else "–" for name in ("rule", *PEERS)]
        rows.append([case["form"], f"{case['rows']} × {case['length']}", *cells, best, shown_ratio(times[best], times["rule"]),
                     f"{case['after'] / ours / 1e3:.0f}", f"{us['copy'] / ours:.2f}", f"{spread(times['rule']):.0%}",
                     f"{errors['rule'] / errors['eager']:.2f}", f"{1 - case['after'] / case['before']:.0%}"])
    header = ["form", "rows × length", "ours, µs", *(f"{name}, µs" for name in PEERS), "fastest peer", "its time / ours [95%]",
              "GB/s of ours", "share of copy", "spread", "error / eager's", "bytes saved"]
    print(figures.table(header, rows), end="")
    if is_waiting:
        print(f"\n{bench.HOST_SHOWS}")
    print(f"\n{bench.tally(pairs)}")


def tried(path):
    results = figures.read_results(path)
    print("| form | rows × length | rule, µs | other schedules, by time over that of the rule |")
    print("| --- | --- | --- | --- |")
    for case in results["cases"]:
        us = medians(case)
        ours = us["rule"]
        others = sorted((name for name in case["schedules"] if name != "rule"), key=us.get)
        print(f"| {case['form']} | {case['rows']} × {case['length']} | {ours:.1f} | "
              + ", ".join(f"{name} {us[name] / ours:.2f}" for name in others) + " |")


def change(old, new):
    old, new = (figures.read_results(path)["cases"] for path in (old, new))
    print("| form | rows × length | threads, registers: before | after | share of copy: before | after |")
    print("| --- | --- | --- | --- | --- | --- |")
    launched = lambda case: "; ".join(f"{kernel['block']}, {kernel['registers']}" for kernel in case["schedules"]["rule"])
    # Bytes of the same number, where a plan of one file has more kernels.
    share = lambda case, moved: medians(case)["copy"] / case["after"] * moved / medians(case)["rule"]
    for before, after in zip(old, new):
        moved = min(before["after"], after["after"])
        print(f"| {after['form']} | {after['rows']} × {after['length']} | {launched(before)} | {launched(after)} | "
              f"{share(before, moved):.2f} | {share(after, moved):.2f} |")


if __name__ == "__main__":
    arguments = [pathlib.Path(argument) for argument in sys.argv[2:]]
    if sys.argv[1] in COMMANDS:
        arguments[1].mkdir(parents=True, exist_ok=True)
        run(*arguments, sys.argv[1])
    else:
        {"table": table, "tried": tried, "change": change}[sys.argv[1]](*arguments)
