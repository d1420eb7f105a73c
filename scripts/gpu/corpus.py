#!/usr/bin/env python3
"""The programs of testing/corpus on a GPU: a session of each, and what its remedy saves.

    corpus.py run --apex BIN --out OUT [--kinds torch,python,cuda,names,ddp] [--only NAME,…] [--pairs 5] [--deadline SECONDS]
    corpus.py pack FOLDER SESSION…      # one compressed file of each session folder
    corpus.py keep DATA OUT…            # what is committed of results: sessions (packed by `recorded-session`) and DATA/times.json
    corpus.py table [DATA]              # first findings against what the remedies saved, as Markdown
    corpus.py host-stacks [FILE]        # what sampling host stacks took, and what advise said first with them
    corpus.py idle FILE                 # how much of the idle time has a known function
    corpus.py first-sight [DATA]        # what advise printed first about programs before a rule was changed for them
    corpus.py claims [DATA]             # claimed against achieved savings, of all sets whose remedies were measured

Every program is recorded once, with its options, and then run bare: in one process that takes turns without and
with the remedy, so that both see the same clocks. Results are written as they come:

    OUT/corpus.json    iteration times of every pair, what advise printed, hardware, driver, date, command; what failed, and how
    OUT/sessions.tar   NAME.tar.xz for each session
    OUT/kernels.tsv    every kernel of every session: GPU time, launches, symbol

Python programs of one process import their packages and make their context while the one before them runs. Those that
call torch.compile run once beforehand, while nvcc works, so that its cache is full.
"""

import argparse
import collections
import concurrent.futures
import datetime
import io
import json
import lzma
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

from figures import read_results, table

CORPUS = Path(__file__).resolve().parents[2] / "testing/corpus"
DISTRIBUTED = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
PAIR_SECONDS = {"torch": "0.25", "python": "0.25", "cuda": "0.15", "ddp": "0.3"}
# Times of pairs that need longer: what lies in queues when a run begins is a small part of it.
SLOW = {"slow_loader": "1.5", "sleep_between": "0.5", "numpy_augmentation": "0.5", "jax_recompiles": "0.8",
        "sensor_windows": "1.5", "memory_curve": "0.6", "learner_and_actor": "0.6", "stored_patches": "0.5"}
PATIENCE = 80
# Times in committed sessions are multiples of this many ticks, 2 µs on the machines that recorded them; of 8,192 in those that had over 36 KB and kept their first finding.
TICKS = "4096"
# How programs are judged for which no rule was changed yet: by what advise printed when they were recorded.
FIRST_SIGHT = "first sight"


def pack(session, file):
    """One session folder as a compressed tar file, without owners, dates and the folder that the program ran in."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for path in sorted(session.iterdir()):
            content = path.read_bytes()
            if path.name == "session.json":
                content = (json.dumps(json.loads(content) | {"cwd": "."}, indent=1) + "\n").encode()
            member = tarfile.TarInfo(path.name)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 3, "pb": 3}]
    file.write_bytes(lzma.compress(data.getvalue(), filters=filters))


class Job:
    """One process: a recording of a program, or its pairs."""

    def __init__(self, runner, program, recorded):
        self.program, self.recorded = program, recorded
        name, kind = program["name"], program["kind"]
        self.id = f"{kind}-{name}"
        self.session = runner.work / self.id
        self.gated = kind in ("torch", "python", "names")
        seconds = SLOW.get(name, PAIR_SECONDS.get(kind))
        own = shlex.split(program["options"]) if recorded else ["--pairs", str(runner.a.pairs), "--seconds", seconds]
        if kind == "cuda":
            command, self.folder = [str(runner.programs), name, *own], runner.work
        elif kind == "names":
            gate = "import sys; sys.stdin.readline(); import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
            imports = {"jax_training": "jax", "cupy_triton": "cupy, torch", "gpt2": "torch, transformers"}.get(name, "torch, torchvision")
            command, self.folder = [sys.executable, "-c", f"import {imports}; {gate}", f"{name}.py"], CORPUS / "names"
        else:
            command = [sys.executable, *(DISTRIBUTED if kind == "ddp" else []), f"{name}.py", *own, *(["--gate"] if self.gated else [])]
            self.folder = CORPUS / "python"
        if recorded:
            command = [str(runner.a.apex / "apex"), "run", "--quiet", "-o", str(self.session), "--", *command]
        self.command, self.process = command, None

    def start(self):
        if self.process is None:
            environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "4"}
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )

    def end(self):
        """Ends the process and its children, if they still run."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def finish(self):
        """Lets it go on, and waits. Returns its lines, or raises with what it said."""
        self.start()
        try:
            out, error = self.process.communicate(b"\n", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.end()
            out, error = self.process.communicate()
            raise RuntimeError(f"it took more than {PATIENCE} s: {error.decode(errors='replace')[-600:]}") from None
        if self.process.returncode:
            raise RuntimeError(f"exit status {self.process.returncode}: {error.decode(errors='replace')[-900:]}")
        return [json.loads(line) for line in out.decode(errors="replace").splitlines() if line.startswith("{")]


class Runner:
    def __init__(self, arguments):
        self.a = arguments
        self.work = Path(os.environ.get("TMPDIR", "/tmp")) / f"apex-corpus-{os.getpid()}"
        self.work.mkdir(parents=True)
        self.programs = self.work / "programs"
        self.results = {"command": " ".join(sys.argv), "date": datetime.date.today().isoformat(), "programs": {}}
        self.lock, self.pool = threading.Lock(), concurrent.futures.ThreadPoolExecutor(6)
        self.kernels = []

    def hardware(self):
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        self.results["hardware"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
        version = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=False)
        self.results["torch"] = version.stdout.strip()

    def build(self):
        source = self.work / "all.cu"
        source.write_bytes(subprocess.run([sys.executable, CORPUS / "cuda/all.py"], capture_output=True, check=True).stdout)
        options = ["-std=c++17", "-O2", "-lineinfo", "-arch=sm_90", "-I", CORPUS / "cuda", "-o", self.programs]
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        subprocess.run([nvcc, *options, source], check=True)

    def prime(self, programs):
        """Starts the programs that compile, with and without their remedies; they end in their own time."""
        compiling = [p for p in programs if "torch.compile(" in (CORPUS / "python" / f"{p['name']}.py").read_text()]
        commands = [[sys.executable, f"{p['name']}.py", "--steps", "1", *remedy] for p in compiling for remedy in ([], ["--remedy"])]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": CORPUS / "python"}
        return [subprocess.Popen(command, **quiet) for command in commands]

    def save(self):
        with self.lock:
            (self.a.out / "corpus.json").write_text(json.dumps(self.results, indent=1) + "\n")
            lines = ["gpu_ns\tlaunches\tprogram\tsymbol\n", *self.kernels]
            (self.a.out / "kernels.tsv").write_text("".join(lines))
            with tarfile.open(self.a.out / "sessions.tar", "w") as tar:
                for file in sorted(self.work.glob("*.tar.xz")):
                    tar.add(file, arcname=file.name)

    def keep(self, job):
        """What remains of a recording: its session in a small file, and its kernels."""
        pack(job.session, self.work / f"{job.id}.tar.xz")
        done = subprocess.run([self.a.apex / "apex", "report", "--json", job.session], capture_output=True, check=True)
        advice = subprocess.run([self.a.apex / "apex", "advise", job.session], capture_output=True, text=True, check=True)
        sums = {}
        for kernel in json.loads(done.stdout)["profile"]["kernels"]:
            launches = kernel["launches"]["calls"] + kernel["launches"]["by_graphs"]
            time_ns = ((kernel["gpu"] or {}).get("total_ns") or {}).get("value") or 0
            before = sums.get(kernel["symbol"], (0, 0))
            sums[kernel["symbol"]] = (before[0] + time_ns, before[1] + launches)
        with self.lock:
            self.kernels += [f"{t:.0f}\t{n}\t{job.id}\t{symbol}\n" for symbol, (t, n) in sorted(sums.items(), key=lambda kv: -kv[1][0])]
            self.results["programs"][job.id]["advice"] = advice.stdout.splitlines()
            self.results["programs"][job.id]["idle"] = idle(json.loads(done.stdout)["profile"])
            self.results["programs"][job.id]["session_bytes"] = (self.work / f"{job.id}.tar.xz").stat().st_size
        self.save()

    def order(self, programs):
        """The programs that were asked for."""
        kinds = self.a.kinds.split(",")
        order = sorted((p for p in programs if p["kind"] in kinds), key=lambda p: kinds.index(p["kind"]))
        if self.a.only:
            order = [p for p in order if p["name"] in self.a.only.split(",")]
        if self.a.unseen:
            order = [p for p in order if p.get("unseen") == self.a.unseen]
        return order

    def run(self, order):
        began = time.monotonic()
        jobs = []
        for program in order:
            jobs.append(Job(self, program, recorded=True))
            if self.a.pairs and program["kind"] != "names" and program["remedy"] != "none":
                jobs.append(Job(self, program, recorded=False))
        pending = []
        for at, job in enumerate(jobs):
            if time.monotonic() - began > self.a.deadline:
                self.results["cut_short"] = f"the deadline came before {job.id}"
                break
            job.start()
            for following in jobs[at + 1 : at + 4]:
                if following.gated:
                    following.start()
            started = time.monotonic()
            entry = self.results["programs"].setdefault(job.id, {})
            try:
                lines = job.finish()
                entry["recorded" if job.recorded else "pairs"] = lines
                if job.recorded:
                    pending.append(self.pool.submit(self.keep, job))
            except Exception as error:
                entry["recording failed" if job.recorded else "pairs failed"] = str(error)
                print(f"{job.id}: {error}", flush=True)
            print(f"{job.id} {'session' if job.recorded else 'pairs'}: {time.monotonic() - started:.1f} s", flush=True)
            self.save()
        for job in jobs:
            job.end()
        for future in pending:
            try:
                future.result()
            except Exception as error:
                print(f"a session was not kept: {error}", flush=True)
        self.save()


def idle(profile):
    """The steady state's idle time by its cause, ns: all of it, and that of which a sample of the host's stacks names the function."""
    whole, known = collections.Counter(), collections.Counter()
    for activity in profile["activities"]:
        for phase in activity["phases"]:
            if phase["kind"] == "steady":
                whole.update({cause: figure["value"] for cause, figure in phase["accounts"]["idle"].items()})
        for part in activity.get("host_samples", []):
            if part["phase"] == "steady" and part["read"]:
                known[part["cause"]] += part["sampled_ns"]
    return {cause: [whole[cause], min(known[cause], whole[cause])] for cause in whole}


def programs():
    return json.loads((CORPUS / "programs.json").read_text())


def keep_session(packed, archive):
    """Writes the archive as it is committed: in columns, with rounded times."""
    with tempfile.TemporaryDirectory() as session:
        with tarfile.open(fileobj=packed) as files:
            files.extractall(session, filter="data")
        subprocess.run(["cargo", "run", "-q", "-p", "test-recorded", "--", "pack", session, archive, TICKS], check=True)


def keep(data, outs):
    """Sessions that are judged, and the times of all pairs; what was kept before and is not renewed stays."""
    data.mkdir(parents=True, exist_ok=True)
    judged = {f"{p['kind']}-{p['name']}.tar.xz" for p in programs() if p["judged"] in ("gpu", FIRST_SIGHT)}
    file = data / "times.json"
    kept = json.loads(file.read_text()) if file.exists() else {"commands": [], "programs": {}}
    times = kept.pop("programs")
    for out in outs:
        results = json.loads((out / "corpus.json").read_text())
        kept["commands"].append(results["command"])
        kept |= {"date": results["date"], "torch": results["torch"]}
        for name, entry in results["programs"].items():
            if "pairs" in entry:
                remedies = {what: [run["step_ms"] for run in entry["pairs"] if run["remedy"] == with_it] for what, with_it in
                            (("plain_ms", False), ("remedy_ms", True))}
                times[name] = {"hardware": results["hardware"], **remedies, "recorded": (entry["recorded"] or [None])[0]}
        with tarfile.open(out / "sessions.tar") as tar:
            for member in tar.getmembers():
                if member.name in judged:
                    keep_session(tar.extractfile(member), data / member.name)
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in kept.items()]
    lines.append('"programs": {\n ' + ",\n ".join(f"{json.dumps(name)}: {json.dumps(times[name])}" for name in sorted(times)) + "\n}")
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def percent(share):
    return f"{share * 100:.0f}%"


def saved(times):
    """Share of a step that the remedy saves: the median of the pairs, the least and the most."""
    shares = [1 - after / before for before, after in zip(times["plain_ms"], times["remedy_ms"], strict=True)]
    return statistics.median(shares), min(shares), max(shares)


# Programs whose first finding names a part of the planted cause, or its consequence, though `rules` of programs.json has it.
PARTLY = {
    "managed_ping_pong": "the finding names the host's code, not the pages of managed memory that move",
    "small_solves": "the finding names the synchronisations of a loop that is launch-bound",
}


class Tally:
    """What is counted of the programs that the rules were tuned on, or of a set that was written after them."""

    def __init__(self):
        self.verdicts, self.within, self.widths, self.from_zero, self.pairs = collections.Counter(), [], [], 0, collections.Counter()

    def row(self, name):
        names = ("yes", "partly", "**no**")
        pairs = ", ".join(f"{count} × {pairs}" for pairs, count in sorted(self.pairs.items()))
        return [name, sum(self.verdicts.values()), *(self.verdicts[verdict] for verdict in names),
                f"{sum(self.within)} of {len(self.within)}", f"{100 * statistics.median(self.widths):.0f} points",
                f"{self.from_zero} of {len(self.widths)}", pairs]

    def __add__(self, other):
        both = Tally()
        both.verdicts, both.within, both.widths = self.verdicts + other.verdicts, self.within + other.within, self.widths + other.widths
        both.from_zero, both.pairs = self.from_zero + other.from_zero, self.pairs + other.pairs
        return both


def print_table(data):
    times = read_results(data / "times.json")["programs"]
    findings = json.loads((CORPUS / "findings.json").read_text())
    print("| program | cause | first finding | right | claimed | achieved | within |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    tallies = {unseen: Tally() for unseen in (None, 1, 2, 3)}
    for program in programs():
        name = f"{program['kind']}-{program['name']}"
        if program["judged"] == FIRST_SIGHT:
            continue
        finding = findings[name]
        achieved = saved(times[name]) if name in times else None
        claimed = finding["saves"] if achieved else None
        inside = finding["right"] and claimed and claimed[0] <= achieved[0] <= claimed[2]
        verdict = "**no**" if not finding["right"] else "partly" if program["name"] in PARTLY else "yes"
        tally = tallies[program.get("unseen")]
        tally.verdicts[verdict] += 1
        if finding["right"] and claimed:
            tally.within.append(bool(inside))
            tally.widths.append(claimed[2] - claimed[0])
            tally.from_zero += claimed[0] == 0
        if achieved:
            tally.pairs[len(times[name]["plain_ms"])] += 1
        cells = [
            f"`{program['kind']}/{program['name']}`" + ("ᵘ" if program.get("unseen") else ""), program["cause"],
            f"{finding['first']}: {finding['title']}" if finding["first"] else "none",
            verdict,
            f"{percent(claimed[1])} ({percent(claimed[0])} to {percent(claimed[2])})" if claimed else "-",
            "{} ({} to {})".format(*map(percent, achieved)) if achieved else "-",
            ("yes" if inside else "**no**") if finding["right"] and claimed else "-",
        ]
        print("| " + " | ".join(cells) + " |")
    print()
    titles = ["programs", "number", "right", "partly", "wrong", "achieved within the claim", "median width of the claim", "claims from 0",
              "pairs of runs"]
    rows = [tallies[None].row("tuned on"), tallies[1].row("first unseen set"), tallies[2].row("second unseen set"),
            tallies[3].row("third unseen set"), (tallies[1] + tallies[2] + tallies[3]).row("all unseen sets"), sum(tallies.values(), Tally()).row("all")]
    print(table(titles, rows), end="")


def first_finding(advice):
    """Rule, title and whole text of the first finding in the lines that advise printed; (None, None, "") if it has none. What
    saves nothing comes last, so that no finding follows it."""
    for at, line in enumerate(advice):
        if title := re.match(r" +1 {2,}(.*)", line):
            said = " ".join(advice[at + 1 : at + 4])
            if re.search(r"saves (nothing|<0\.01%)", said):
                break
            ends = (i for i in range(at + 1, len(advice)) if not advice[i].strip())
            text = " ".join(line.strip() for line in advice[at : next(ends, len(advice))])
            return re.search(r"APEX-[A-Z]\d+", said).group(), title.group(1).strip(), text
    return None, None, ""


def names_the_cause(program, rule, text):
    """Whether the first finding is of a rule that names the cause, or holds a word that does (`names`). From the seventh set on, the
    name of the program's own file is none, nor is what every finding says about its check."""
    if program.get("unseen", 0) >= 7:
        text = text.replace("COMMAND", "").replace(f"{program['name']}.py", "")
    return rule in program["rules"] or any(name in text.lower() for name in program.get("names", []))


def print_first_sight(data, unseen):
    times = read_results(data / "times.json")["programs"]
    seen = read_results(data / f"first-sight-{unseen}.json.xz")["programs"]
    print("| program | cause | first finding | right | achieved |")
    print("| --- | --- | --- | --- | --- |")
    right = 0
    for program in programs():
        name = f"{program['kind']}-{program['name']}"
        if name in seen:
            rule, title, text = first_finding(seen[name])
            right += (is_right := names_the_cause(program, rule, text))
            achieved = "{} ({} to {})".format(*map(percent, saved(times[name]))) if name in times else "-"
            cells = [f"`{program['kind']}/{program['name']}`", program["cause"], f"{rule}: {title}" if rule else "none",
                     "yes" if is_right else "**no**", achieved]
            print("| " + " | ".join(cells) + " |")
    print(f"\nThe first finding named the planted cause in {right} of {len(seen)}.")


CLAIM = re.compile(r"saves ([<0-9.]+)% \(([<0-9.]+)%?\D([<0-9.]+)\)")
# What advise printed, by set: at first sight, and after the rules were changed with the set in view. The sets from the eighth on are of whole programs.
SIGHTS = {
    "first sight": {"first-sight-3": "3", "first-sight-4": "4", "first-sight-5": "5", "first-sight-6": "6", "first-sight-7": "7",
                    "../users/first-sight": "8", "../users/first-sight-9": "9", "../users/first-sight-10": "10",
                    "../users/first-sight-11": "11", "../users/first-sight-12": "12"},
    "second sight": {"second-sight-3": "3", "second-sight-4-and-5": "4 and 5", "second-sight-6": "6", "second-sight-7": "7",
                     "../users/second-sight": "8", "../users/second-sight-9": "9", "../users/second-sight-10": "10",
                     "../users/second-sight-11": "11", "../users/second-sight-12": "12"},
    "later sight": {"later-sight": "3 to 7"},
}


def claimed(text):
    """What a printed finding claims to save: the likely share, the least, the most; None where it claims nothing."""
    found = CLAIM.search(text)
    return [float(share.strip("<")) / 100 for share in found.groups()] if found else None


def printed_claims(data, name, times):
    """Program, rule, claim and achieved saving, of each program of a set whose first finding named the cause and claims something."""
    known = {f"{program['kind']}-{program['name']}": program for program in programs() + users()}
    for program, advice in sorted(read_results(data / f"{name}.json.xz")["programs"].items()):
        rule, _, text = first_finding(advice if isinstance(advice, list) else advice["advice"])
        if rule and names_the_cause(known[program], rule, text) and program in times and (claim := claimed(text)):
            yield program, rule, claim, saved(times[program])[0]


def users():
    return json.loads((CORPUS / "users/programs.json").read_text())


def all_times(data):
    """Times of all programs whose remedy was measured; of whole programs by their steps per second."""
    whole = json.loads((data / "../users/times.json").read_text())["programs"]
    rates = {name: (of["bare_steps_per_s"], of["remedied_steps_per_s"]) for name, of in whole.items() if of.get("remedied_steps_per_s")}
    return read_results(data / "times.json")["programs"] | {
        name: {"plain_ms": [1e3 / bare], "remedy_ms": [1e3 / remedied]} for name, (bare, remedied) in rates.items()}


def claims_of_sessions(times):
    """The same of the sessions that are judged in each run of the tests."""
    for program, finding in json.loads((CORPUS / "findings.json").read_text()).items():
        if finding["right"] and finding["saves"] and program in times:
            least, likely, most = finding["saves"]
            yield program, finding["first"], [likely, least, most], saved(times[program])[0]


def claims_row(name, claims):
    """A row of the table: how many claims hold, and how the others miss. A point of a percent is what a step's time is known to."""
    near = 0.01
    few = sum(achieved < claim[1] - near for _, _, claim, achieved in claims)
    many = sum(achieved > claim[2] + near for _, _, claim, achieved in claims)
    half = sum(achieved >= claim[0] / 2 - near for _, _, claim, achieved in claims)
    width = f"{100 * statistics.median(claim[2] - claim[1] for _, _, claim, _ in claims):.0f} points" if claims else "-"
    return [name, len(claims), f"{len(claims) - few - many} ({percent(1 - (few + many) / max(len(claims), 1))})", few, many,
            f"{half} ({percent(half / max(len(claims), 1))})", width]


def print_claims(data):
    times = all_times(data)
    sights = {sight: {number: list(printed_claims(data, name, times)) for name, number in names.items()} for sight, names in SIGHTS.items()}
    rows = [claims_row("the corpus, as judged now", list(claims_of_sessions(times)))]
    for sight, sets in sights.items():
        rows += [claims_row(f"{sight}, set {number}", claims) for number, claims in sets.items()]
        if len(sets) > 1:
            rows.append(claims_row(f"all of {sight}", [claim for claims in sets.values() for claim in claims]))
    titles = ["programs", "claims", "hold", "less achieved", "more achieved", "at least half of the claim achieved", "median width"]
    print(table(titles, rows))
    print("| program | first finding | claimed | achieved |")
    print("| --- | --- | --- | --- |")
    for sight, sets in sights.items():
        for claims in sets.values():
            for program, rule, (likely, least, most), achieved in claims:
                if not least - 0.01 <= achieved <= most + 0.01:
                    interval = f"{percent(likely)} ({percent(least)} to {percent(most)})"
                    print(f"| `{program.replace('-', '/', 1)}`, {sight} | {rule} | {interval} | {percent(achieved)} |")


def print_host_stacks(file):
    """What advise said first with host stacks, and what sampling them took of one core, by the counters of the sessions."""
    print("| program | first finding | samples | unsettled | CPU of one core |")
    print("| --- | --- | --- | --- | --- |")
    for name, entry in read_results(file)["programs"].items():
        rule, title, _ = first_finding(entry["advice"])
        counters = entry["host_stacks"]
        share = counters["cpu_ns"] / counters["wall_ns"] * 100
        cells = [f"`{name.replace('-', '/', 1)}`", f"{rule}: {title}" if rule else "none", f"{counters['samples']:,}",
                 str(counters["unsettled"]), f"{share:.2f}%"]
        print("| " + " | ".join(cells) + " |")


def print_idle(file):
    """How much of each program's idle time has a known function."""
    print("| program | idle time of the steady state | with a known function |")
    print("| --- | --- | --- |")
    sums = collections.Counter()
    for name, entry in json.loads(file.read_text())["programs"].items():
        whole, known = (sum(part[at] for part in entry["idle"].values()) for at in (0, 1))
        sums.update(whole=whole, known=known)
        print(f"| `{name.replace('-', '/', 1)}` | {whole / 1e6:,.0f} ms | {percent(known / whole) if whole else '-'} |")
    print(f"\nOf all idle time, {percent(sums['known'] / sums['whole'])} has a known function.")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="what", required=True)
    run = commands.add_parser("run")
    run.add_argument("--apex", type=lambda p: Path(p).absolute(), required=True)
    run.add_argument("--out", type=lambda p: Path(p).absolute(), required=True)
    run.add_argument("--kinds", default="torch,python,cuda,names")
    run.add_argument("--only")
    run.add_argument("--unseen", type=int, metavar="SET", help="only programs of this set that was written after the rules")
    run.add_argument("--pairs", type=int, default=5, help="0: sessions alone")
    run.add_argument("--deadline", type=float, default=540)
    packing = commands.add_parser("pack")
    packing.add_argument("out", type=Path)
    packing.add_argument("sessions", type=Path, nargs="+")
    keeping = commands.add_parser("keep")
    keeping.add_argument("data", type=Path)
    keeping.add_argument("outs", type=Path, nargs="+")
    table = commands.add_parser("table")
    table.add_argument("data", type=Path, nargs="?", default=Path("data/h200/corpus"))
    first = commands.add_parser("first-sight")
    first.add_argument("data", type=Path, nargs="?", default=Path("data/h200/corpus"))
    first.add_argument("--unseen", type=int, metavar="SET", default=3, help="the set of programs")
    claiming = commands.add_parser("claims")
    claiming.add_argument("data", type=Path, nargs="?", default=Path("data/h200/corpus"))
    stacks = commands.add_parser("host-stacks")
    stacks.add_argument("file", type=Path, nargs="?", default=Path("data/h200/host-stacks/host-stacks.json.xz"))
    idling = commands.add_parser("idle")
    idling.add_argument("file", type=Path)
    a = parser.parse_args()
    if a.what == "idle":
        return print_idle(a.file)
    if a.what == "host-stacks":
        return print_host_stacks(a.file)
    if a.what == "claims":
        return print_claims(a.data)
    if a.what == "first-sight":
        return print_first_sight(a.data, a.unseen)
    if a.what == "keep":
        return keep(a.data, a.outs)
    if a.what == "table":
        return print_table(a.data)
    if a.what == "pack":
        for session in a.sessions:
            pack(session, a.out / f"{session.name}.tar.xz")
        return
    started = time.monotonic()
    a.out.mkdir(parents=True, exist_ok=True)
    everything = programs() + [{"name": p.stem, "kind": "names", "options": ""} for p in sorted((CORPUS / "names").glob("*.py"))]
    runner = Runner(a)
    runner.hardware()
    order = runner.order(everything)
    priming = runner.prime([p for p in order if p["kind"] in ("torch", "python")])
    if any(p["kind"] == "cuda" for p in order):
        runner.build()
    for process in priming:
        process.wait()
    print(f"built after {time.monotonic() - started:.0f} s", flush=True)
    runner.run(order)


if __name__ == "__main__":
    main()
