"""What the parts of APEX gain for a program, separately and together, beside `torch.compile`: ratios of windows in turns, and compared outputs.

    together.py measure --apex BIN [--train PROGRAM] [--out DIR] [--windows N] [--rounds N] [--seconds S] [PROGRAM]…
    together.py tables|ratios|rust|accounts FILE

The PyTorch programs (programs/together.py) are training and inference of a decoder-only transformer and of a vision transformer, in bf16.
They are measured one after the other, each in one process for each way to run it: bare; bare again, which shows how much two equal processes differ; under `apex run`; with
`--fast`; with `--fast=memory`; patched (`apex_cuda.patch`); all of these together; and compiled by PyTorch, without and with CUDA graphs. The
processes of a program exist at the same time and take windows of steps in turns, in a random order in each round; a window is compared with
the bare window of its round. A way that fails is left out, and its error is recorded.

`apex tune` runs on a decoder and on the Rust transformer first; if it finds a faster shape, `--tuned` becomes a way, and a part of "all together".

The Rust transformer (the example `train` of apex-kernels) runs once for each way in each round, and prints its speed and its losses.
Raw figures go to DIR/together.json after each part. `APEX_LIB_DIR` names the folder of libapex_kernels_c.so. DEVICE=cpu tries the script.
"""

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench import ratio_interval
from fast import Process as Turns
from fast import machine
from figures import read_results, table

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "programs" / "together.py"
# The programs, and the steps of a window: some 0.3 s.
STEPS = {"decoder-training": 4, "decoder-inference": 60, "vision-training": 12, "vision-inference": 60}
TITLES = {
    "decoder-training": "decoder, training",
    "decoder-inference": "decoder, a token of 4 sequences",
    "vision-training": "vision transformer, training",
    "vision-inference": "vision transformer, one image",
}
QUIET = ["run", "--quiet"]
# How the model is changed, and the arguments of `apex` before the program.
WAYS = {
    "bare": ("plain", None),
    "again": ("plain", None),
    "recorded": ("plain", QUIET),
    "fast": ("plain", [*QUIET, "--fast"]),
    "memory": ("plain", [*QUIET, "--fast=memory"]),
    "tuned": ("plain", [*QUIET, "--tuned"]),
    "patch": ("patch", None),
    "all": ("patch", [*QUIET, "--fast=queue,memory"]),
    "compile": ("compile", None),
    "graphs": ("graphs", None),
}
NAMES = {
    "bare": "bare",
    "again": "bare again",
    "recorded": "`apex run`",
    "fast": "`--fast`",
    "memory": "`--fast=memory`",
    "tuned": "`--tuned`",
    "patch": "`apex_cuda.patch`",
    "all": "all together",
    "compile": "`torch.compile`",
    "graphs": "`torch.compile`, CUDA graphs",
}
PARTS = ("fast", "memory", "tuned", "patch")
RUST = ("bare", "again", "recorded", "fast", "memory", "tuned", "all")
START_SECONDS = 150


class Process(Turns):
    """A program that takes a window of steps when it is asked."""

    def __init__(self, program, way, options):
        self.apex, self.folder = options.apex, Path(tempfile.mkdtemp())
        how, before = WAYS[way]
        command = [sys.executable, str(PROGRAM), program, how, str(self.folder / "result.json")]
        self.errors = (self.folder / "errors").open("w+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors, "text": True}
        command = [*under(before, way, options, options.profiles.get(program), self.folder), *command]
        self.process = subprocess.Popen(command, env=environment(), **pipes)
        self.late = threading.Timer(START_SECONDS, self.process.kill)
        self.late.start()

    def ready(self):
        self.line()
        self.late.cancel()

    def finish(self):
        """The hashes of what was computed, how the process ended, and what it wrote."""
        self.process.stdin.close()
        first, last = self.line().split()
        status, written = self.process.wait(), json.loads((self.folder / "result.json").read_text())
        return {"first_hash": first, "last_hash": last, "status": status} | written

    def end(self):
        self.late.cancel()
        super().end()


def environment():
    """That of programs: the module apex_cuda, and the same hashes each time."""
    paths = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": ":".join(paths), "TORCHINDUCTOR_COMPILE_THREADS": "4"}


def under(before, way, options, profile, folder):
    """The command of `apex` before a program's."""
    if before is None:
        return []
    tuned = [str(profile)] if way == "tuned" else ["--tuned", str(profile)] if way == "all" and profile else []
    return [options.apex, *before, *tuned, "-o", str(folder / "session"), "--"]


def in_turns(program, options, ends):
    """The windows of all ways of a program, which take turns, and what they computed."""
    ways = [way for way in options.ways if way != "tuned" or options.profiles.get(program)]
    row, processes = {"program": program, "ways": {}, "failed": {}}, {}

    def tried(way, work):
        """The result of `work` with a process; a process that fails is left out from then on."""
        try:
            return work(processes[way])
        except (RuntimeError, OSError, ValueError) as error:
            row["failed"][way] = str(error)
            processes.pop(way).end()
            return None

    # A process that hangs is killed.
    late = threading.Timer(ends + 20 - time.monotonic(), lambda: [process.process.kill() for process in list(processes.values())])
    late.start()
    try:
        # Those that compile begin first, because they take longest.
        for way in sorted(ways, key=lambda way: way not in ("compile", "graphs")):
            processes[way] = Process(program, way, options)
        for way in ways:
            tried(way, lambda process: process.ready())
        options.tuning.join()  # Tuning would compete with windows for the GPU.
        for way in list(processes):
            tried(way, lambda process: process.window(STEPS[program]))
        row["ways"] = {way: {"windows_ms": []} for way in processes}
        for _ in range(options.windows):
            if time.monotonic() > ends:
                break
            for way in random.sample(list(processes), len(processes)):
                ms = tried(way, lambda process: process.window(STEPS[program]))
                if ms is not None:
                    row["ways"][way]["windows_ms"].append(ms)
        for way in list(processes):
            found = tried(way, lambda process: process.finish())
            if found is not None:
                row["ways"][way] |= found
    finally:
        late.cancel()
        for process in processes.values():
            process.end()
    return compared(row)


def compared(row):
    """A row with the difference of each way's first step from the bare one's, in place of what they computed."""
    bare = row["ways"].get("bare", {}).get("first")
    for found in row["ways"].values():
        first = found.pop("first", None)
        if bare is not None and first is not None:
            found["difference"] = difference(first, bare)
    return row


def difference(one, other):
    """The relative difference of two lists of numbers, in the Frobenius norm; infinite if a number is not finite."""
    distance = math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(one, other, strict=True)))
    norm = math.sqrt(math.fsum(b * b for b in other))
    return distance / norm if norm and math.isfinite(distance) else math.inf


def tuned(command, options, folder, name):
    """What `apex tune` finds of a program: its document, and the profile if a shape is faster."""
    profile = folder / f"{name}.json"
    call = [options.apex, "tune", "--json", "--budget", "5", "-o", str(profile), "--", *command]
    try:
        done = subprocess.run(call, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=True)
        document = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"failed": f"{error}: {getattr(error, 'stderr', '') or ''}"[-600:]}
    sizes = [size for kernel in document["kernels"] for size in kernel["sizes"]]
    if any(size["change"] for size in sizes):
        options.profiles[name] = profile
    refused = {}
    for kernel in document["refused"]:
        refused[kernel["reason"]] = refused.get(kernel["reason"], 0) + 1
    return {"kernels": len(document["kernels"]), "changes": sum(bool(size["change"]) for size in sizes), "refused": refused, "document": document}


def trained(options, way, folder):
    """A run of the Rust transformer: tokens per second, and the lines of its losses."""
    session = Path(tempfile.mkdtemp(dir=folder))
    _, before = WAYS[way]
    if way == "all":
        before = [*QUIET, "--fast=queue,memory"]
    call = [*under(before, way, options, options.profiles.get("rust"), session), *options.training]
    done = subprocess.run(call, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False)
    shutil.rmtree(session, ignore_errors=True)
    lines = done.stdout.splitlines()
    speed = [line.split()[0] for line in lines if "tokens per second" in line]
    if done.returncode or not speed:
        return {"way": way, "failed": done.stderr[-600:]}
    return {"way": way, "tokens_per_second": float(speed[0]), "losses": [line for line in lines if line.startswith("step")]}


def measure(options):
    began = time.monotonic()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    options.profiles = {}
    steps = "3" if os.environ.get("DEVICE") == "cpu" else "150"
    device = os.environ.get("DEVICE", "gpu")
    options.training = [options.train, "--device", device, "--text", str(ROOT / "docs"), "--steps", steps] if options.train else None
    about = {"trial": "without a GPU"} if os.environ.get("DEVICE") == "cpu" else machine()
    result = {"machine": about, "command": " ".join(["together.py", *sys.argv[1:]]), "tune": {}, "programs": [], "rust": []}

    def save():
        (out / "together.json").write_text(json.dumps(result, indent=1) + "\n")
        print(f"{time.monotonic() - began:.0f} s", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def tune():
            script = [sys.executable, str(PROGRAM), "decoder-inference", "plain", str(folder / "tuning.json")]
            result["tune"]["decoder-inference"] = tuned(script, options, folder, "decoder-inference")
            result["tune"]["rust"] = tuned([*options.training[:-1], "3" if device == "cpu" else "30"], options, folder, "rust")

        options.tuning = threading.Thread(target=tune if options.training else int)
        options.tuning.start()
        share = (0.8 if options.training else 0.92) * options.seconds / len(options.programs)
        for number, program in enumerate(options.programs, 1):
            row = in_turns(program, options, began + number * share)
            result["programs"].append(row)
            print(json.dumps(row | {"ways": {way: found["windows_ms"] for way, found in row["ways"].items()}}), flush=True)
            save()
        ways = [way for way in RUST if way != "tuned" or options.profiles.get("rust")]
        for _ in range(options.rounds if options.training else 0):
            if time.monotonic() - began > options.seconds - 15:
                break
            result["rust"].append([trained(options, way, folder) for way in random.sample(ways, len(ways))])
            save()
    tables(out / "together.json")
    rust(out / "together.json")


def ratio(row, way):
    """Bare windows and those of a way, of the same rounds."""
    bare, other = row["ways"]["bare"]["windows_ms"], row["ways"][way]["windows_ms"]
    count = min(len(bare), len(other))
    return bare[:count], other[:count]


def shown_ratio(numerators, denominators):
    return "{:.3f} [{:.3f}, {:.3f}]".format(*ratio_interval(numerators, denominators))


def bits(row, way):
    """Whether a way computed the bits of the bare run: in its first step, and in its last."""
    bare, same = row["ways"]["bare"], []
    for member in ("first_hash", "last_hash"):
        known = row["ways"].get("again", {}).get(member) == bare[member]
        same.append("yes" if row["ways"][way][member] == bare[member] else "no" if known else "differ in bare runs, too")
    return same


def tables(file):
    """Each program, each way: its time, how much faster than bare, and its outputs."""
    cells = []
    for row in read_results(file)["programs"]:
        for way, name in NAMES.items():
            if way in row["failed"]:
                cells.append([TITLES[row["program"]], name, "failed", "", "", "", ""])
            if way not in row["ways"]:
                continue
            found = row["ways"][way]
            times = found["windows_ms"]
            if not times or "difference" not in found:
                continue
            shown = [shown_ratio(*ratio(row, way)), *bits(row, way)] if way != "bare" else ["", "", ""]
            apart = f"{found['difference']:.1e}" if way != "bare" else ""
            cells.append([TITLES[row["program"]], name, f"{statistics.median(times):.3f}", *shown, apart])
        cells += whole(row)
    titles = ["program", "run", "step, ms", "times faster than bare [95%]", "same bits, first step", "last step", "difference of the first step"]
    print(table(titles, cells), end="")


def ratios(file):
    """Each program, each way: how much faster than bare, without the outputs."""
    rows = read_results(file)["programs"]
    names = [way for way in NAMES if way != "bare" and any(way in row["ways"] for row in rows)]
    cells = []
    for row in rows:
        bare = statistics.median(row["ways"]["bare"]["windows_ms"])
        cells.append([TITLES[row["program"]], f"{bare:.2f}", *(shown_ratio(*ratio(row, way)) if way in row["ways"] else "" for way in names)])
    print(table(["program", "bare step, ms", *(NAMES[way] for way in names)], cells), end="")


def whole(row):
    """The product of the parts' ratios (`PARTS`), to compare with all together."""
    parts = [way for way in PARTS if row["ways"].get(way, {}).get("windows_ms")]
    if not row["ways"].get("all", {}).get("windows_ms") or not parts:
        return []
    product = math.prod(ratio_interval(*ratio(row, way))[0] for way in parts)
    return [[TITLES[row["program"]], "the parts multiplied (computed)", "", f"{product:.3f}", "", "", ""]]


def rust(file):
    """The Rust transformer: tokens per second of each way."""
    rounds = [{run["way"]: run for run in turn} for turn in read_results(file)["rust"]]
    cells = []
    for way in RUST:
        both = [(turn["bare"], turn[way]) for turn in rounds if way in turn and "failed" not in turn[way] and "failed" not in turn["bare"]]
        if not both:
            continue
        speeds = [[run["tokens_per_second"] for run in pair] for pair in both]
        shown = shown_ratio([after for _, after in speeds], [before for before, _ in speeds]) if way != "bare" else ""
        same = "yes" if all(one["losses"] == other["losses"] for one, other in both) else "no"
        cells.append([NAMES[way], f"{statistics.median(after for _, after in speeds):.0f}", shown, same if way != "bare" else "", len(both)])
    print(table(["run", "tokens per second", "times faster than bare [95%]", "same losses", "runs"], cells), end="")


def accounts(file):
    """What `apex_cuda.patch` replaced and left alone."""
    print("```text")
    for row in read_results(file)["programs"]:
        if "account" in row["ways"].get("patch", {}):
            print(f"# {TITLES[row['program']]}\n{row['ways']['patch']['account']}")
    print("```")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--apex", required=True)
    measuring.add_argument("--train", help="the example `train` of apex-kernels, built for release")
    measuring.add_argument("--out", default=os.environ.get("OUT", "out"))
    measuring.add_argument("--windows", type=int, default=12)
    measuring.add_argument("--rounds", type=int, default=6, help="of the Rust transformer")
    measuring.add_argument("--seconds", type=float, default=400.0)
    measuring.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    measuring.add_argument("programs", nargs="*", default=list(STEPS), metavar="PROGRAM", help=", ".join(STEPS))
    measuring.set_defaults(work=measure)
    for name, work in (("tables", tables), ("ratios", ratios), ("rust", rust), ("accounts", accounts)):
        tabled = commands.add_parser(name)
        tabled.add_argument("file")
        tabled.set_defaults(work=lambda options, work=work: work(options.file))
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
