"""What `apex run --fast` gains: PyTorch programs bare and with the launch queue, interleaved, outputs compared. And what recording costs.

    fast.py measure --apex BIN --out DIR [--sets N] [--copies N] [--windows N] [--shorter N] [--together] [--limit S] [--modes M,…] [PROGRAM]…
    fast.py recording --apex BIN --out DIR [--windows N] [--shorter N] [PROGRAM]…
    fast.py costs --apex BIN --out DIR [--sets N] [--copies N] [--windows N] [--cores N] [--together] [--limit S] [PROGRAM]…
    fast.py placement --apex BIN --out DIR [--copies N] [--windows N] [--limit S] [PROGRAM]…
    fast.py million --apex BIN --out DIR [--rounds N] COMMAND…
    fast.py tables|recording-table|costs-table|placement-table|million-table FILE

A program (programs/fast.py) runs in four processes at once: bare, under `apex run`, and under `apex run` with `--fast` and with
`--fast=batch`; COPIES times as many live at once, because processes of a program differ more than windows of a process. They take turns: while one takes
a window of steps, the others wait for theirs. All take the same number of steps and hash what they computed. Raw figures go to DIR/fast.json after each
program, one run for each copy, so a run that is cut short leaves what it has; another run adds to the file. Intervals resample copies, and windows of each.

`costs` says what APEX costs programs that gain nothing: six processes at once (also with
APEX_DISABLE=1, and recorded without timing) take short windows in turn, on the same few cores from when they are ready.

`placement` says what it matters on which processors a program and the launch queue's thread run: a bare process and one with `--fast` take windows in
turn, and before each window the script moves their threads, or switches recording off (`apex ctl`). So each placement is compared within one process.

`recording` says what recording alone costs a launch in a real program: one process under
`apex run`, in which recording is switched off and on from window to window. `million` times the launches of a program that makes a million of them (programs/million.c).

`tables`, `recording-table`, `costs-table`, `placement-table` and `million-table` print the table of a file of raw
figures: docs/results/fast-h200.md shows them, and a test compares (xtask/tests/figures.rs).
"""

import argparse
import datetime
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import FEWEST_FOR_BOOTSTRAP, mean_interval, median_interval
from figures import read_results, table

# What each program is, and how many steps its window has: about half a second without the queue.
PROGRAMS = {
    "decode": ("transformer decode step, 12 layers", 150),
    "mlp": ("MLP training, unfused AdamW", 75),
    "cnn": ("small CNN training", 150),
    "gpt2": ("GPT-2 training step (Hugging Face)", 12),
    "generate": ("GPT-2 generating 64 tokens", 1),
    "resnet50": ("ResNet-50 training step (timm), batch 16", 20),
    "matmul": ("large matrix products", 250),
    "graphs": ("CUDA graph of the decode step", 750),
    "waits": ("one launch per synchronisation", 250),
    "compiled": ("compiled decode step", 400),
}
# Programs that are kept on a few processors (--cores): their differences are small.
NOTHING_TO_GAIN = {"matmul", "graphs", "waits"}
# What is before a program's command, but for the folder of the session.
MODES = {"bare": None, "recorded": ["run", "--quiet"], "fast": ["run", "--quiet", "--fast"], "batch": ["run", "--quiet", "--fast=batch"]}
# Of `costs`: the ways to run, what they are called, and how many steps a window has: some 30 ms.
WAYS = MODES | {"disabled": ["run", "--quiet"], "untimed": ["run", "--quiet", "--timing", "off"]}
COSTS = {
    "bare": "bare",
    "disabled": "`APEX_DISABLE=1 apex run`",
    "untimed": "`apex run --timing off`",
    "recorded": "`apex run`",
    "fast": "`apex run --fast`",
    "batch": "`apex run --fast=batch`",
}
# Of `placement`: the way to run, where its threads run, and what that is called.
PLACEMENTS = {
    "bare": ("bare", "free", "anywhere"),
    "bare-two": ("bare", "two", "all on two cores"),
    "fast": ("fast", "free", "anywhere"),
    "fast-off": ("fast", "off", "anywhere, recording off"),
    "fast-queue": ("fast", "queue", "the queue's thread on one core"),
    "fast-two": ("fast", "two", "all on two cores"),
    "fast-beside": ("fast", "beside", "the queue's thread on one core, the others on another"),
    "fast-sibling": ("fast", "sibling", "the queue's thread on the other thread of their core"),
}
COSTS_STEPS = {"waits": 20, "decode": 8, "mlp": 6, "cnn": 12, "matmul": 15, "graphs": 50, "gpt2": 2, "generate": 1, "resnet50": 3, "compiled": 20}
PROGRAM = Path(__file__).parent / "programs" / "fast.py"


class Process:
    """A program that takes a window of steps when it is asked."""

    def __init__(self, name, mode, apex):
        self.apex, self.folder = apex, Path(tempfile.mkdtemp())
        command = [sys.executable, str(PROGRAM), name]
        if WAYS[mode]:
            command = [apex, *WAYS[mode], "-o", str(self.folder / "session"), "--", *command]
        self.errors = (self.folder / "errors").open("w+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors, "text": True}
        environment = os.environ | {"PYTHONHASHSEED": "0"} | ({"APEX_DISABLE": "1"} if mode == "disabled" else {})
        self.process = subprocess.Popen(command, env=environment, **pipes)

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError(f"ended with {self.process.wait()}: {self.errors.read()[-600:]}")
        return line.strip()

    def window(self, steps):
        """The median of that many steps, ms."""
        return self.times(steps)[0]

    def times(self, steps):
        """The median and the mean of that many steps, ms."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return [float(ms) for ms in self.line().split()]

    def stay_on(self, cores):
        """Keeps all threads on these processors."""
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)

    def move(self, place):
        """Moves its threads to where a placement has them, and switches recording on or off."""
        everywhere, (first, second) = os.sched_getaffinity(0), cores(2)
        others, queue = {
            "two": ({first, second}, {first, second}),
            "queue": (everywhere, {second}),
            "beside": ({first}, {second}),
            "sibling": ({first}, siblings(first) - {first} or {first}),
        }.get(place, (everywhere, everywhere))
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            is_queue = (thread / "comm").read_text().strip() == "apex-queue"
            os.sched_setaffinity(int(thread.name), queue if is_queue else others)
        if (self.folder / "session").exists():
            switch = "off" if place == "off" else "on"
            subprocess.run([self.apex, "ctl", switch, str(self.folder / "session")], check=True, capture_output=True)

    def launches_in(self, steps):
        """Kernel launches of a step, from those that a window adds to the session, while recording is on."""
        session = str(self.folder / "session")
        subprocess.run([self.apex, "ctl", "on", session], check=True, capture_output=True)
        before = self.launches()
        self.window(steps)
        return (self.launches() - before) / steps

    def launches(self):
        """Kernel launches in the session so far."""
        report = [self.apex, "report", "--json", str(self.folder / "session")]
        done = subprocess.run(report, capture_output=True, text=True, check=True)
        return sum(process["launches"] for process in json.loads(done.stdout)["profile"]["processes"])

    def finish(self):
        """The hash of what was computed, and what the queue did, when the input is closed."""
        digest = self.line()
        status, queue = self.process.wait(), None
        if (self.folder / "session").exists():
            report = [self.apex, "report", "--json", str(self.folder / "session")]
            done = subprocess.run(report, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                processes = json.loads(done.stdout)["profile"]["processes"]
                queue = [process["queue"] for process in processes if process.get("queue")]
        return {"hash": digest, "status": status} | ({"queue": queue} if queue else {})

    def end(self):
        self.process.kill()
        self.process.wait()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def in_turns(names, modes, steps, options):
    """The processes of some programs take turns; returns a row for each copy of each: windows and hashes of each mode, or an error."""
    keys = [(name, copy, mode) for name in names for copy in range(options.copies) for mode in modes]
    processes, rows = {}, {(name, copy): {"program": name} for name, copy, _ in keys}
    ends = time.monotonic() + options.limit
    try:
        for name, copy, mode in random.sample(keys, len(keys)):
            processes[name, copy, mode] = Process(name, mode, options.apex)
        for (name, *_), process in processes.items():
            process.line()
            if name in options.pinned and options.cores:
                process.stay_on(cores(options.cores))
        for (name, *_), process in processes.items():
            process.window(max(steps[name] // 2, 1))
        for name, copy, mode in keys:
            rows[name, copy][mode] = {"windows_ms": [], "means_ms": []}
        for _ in range(options.windows):
            if time.monotonic() > ends:
                break
            for (name, copy), row in random.sample(list(rows.items()), len(rows)):
                for mode in random.sample(list(modes), len(modes)):
                    for times, ms in zip(row[mode].values(), processes[name, copy, mode].times(steps[name]), strict=True):
                        times.append(ms)
        for process in processes.values():
            process.process.stdin.close()  # They end at the same time.
        for name, copy, mode in keys:
            rows[name, copy][mode] |= processes[name, copy, mode].finish()
    except (RuntimeError, OSError, ValueError) as error:
        for row in rows.values():
            row["error"] = str(error)
    finally:
        for process in processes.values():
            process.end()
    return list(rows.values())


def machine():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    import torch

    return {"gpu": gpu, "torch": torch.__version__, "cores": os.cpu_count(), "date": str(datetime.date.today())}


def measure(options):
    options.pinned = NOTHING_TO_GAIN
    steps = {name: max(count // options.shorter, 1) for name, (_, count) in PROGRAMS.items()}
    modes = options.modes.split(",")
    repeat(options, "fast.json", options.programs or list(PROGRAMS), lambda names: in_turns(names, modes, steps, options))


def costs(options):
    options.pinned = COSTS_STEPS
    names = options.programs or ["waits", "decode", "cnn"]
    repeat(options, "fast-costs.json", names, lambda names: in_turns(names, COSTS, COSTS_STEPS, options))


def placement(options):
    """Windows of a bare process and of one with the queue, whose threads are moved before each."""
    file = Path(options.out) / "fast-placement.json"
    result = {"machine": machine() | {"processors": topology()}, "commands": [" ".join(["fast.py", *sys.argv[1:]])], "runs": []}
    ends = time.monotonic() + options.limit
    for name in options.programs or ["cnn", "decode", "mlp"]:
        for _ in range(options.copies):
            if time.monotonic() > ends:
                return
            result["runs"].append(placed(name, options))
            print(json.dumps(result["runs"][-1]), flush=True)
            file.write_text(json.dumps(result, indent=1) + "\n")


def placed(name, options):
    """One program's windows in each placement."""
    processes = {mode: Process(name, mode, options.apex) for mode in ("bare", "fast")}
    row, steps = {"program": name} | {key: {"windows_ms": []} for key in PLACEMENTS}, COSTS_STEPS[name]
    try:
        for process in processes.values():
            process.line()
            process.window(steps * 4)
        for _ in range(options.windows):
            for key in random.sample(list(PLACEMENTS), len(PLACEMENTS)):
                mode, place, _ = PLACEMENTS[key]
                processes[mode].move(place)
                row[key]["windows_ms"].append(processes[mode].window(steps))
        for mode, process in processes.items():
            process.process.stdin.close()
            row[mode] |= process.finish()
    except (RuntimeError, OSError, ValueError, subprocess.CalledProcessError) as error:
        row["error"] = str(error)
    finally:
        for process in processes.values():
            process.end()
    return row


def topology():
    """Which processors are threads of one core, and which share a last-level cache, in the order of their numbers."""
    groups = {}
    for processor in sorted(os.sched_getaffinity(0)):
        caches = sorted(Path(f"/sys/devices/system/cpu/cpu{processor}/cache").glob("index*/shared_cpu_list"))
        last = caches[-1].read_text().strip() if caches else "unknown"
        groups.setdefault(f"cache of {last}", []).append(sorted(siblings(processor)))
    return groups


def siblings(processor):
    """The processors of one core, as the system tells."""
    file = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    listed = file.read_text().strip() if file.exists() else str(processor)
    ranges = [part.split("-") for part in listed.split(",")]
    return {number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)}


def repeat(options, file, names, run):
    """Runs all programs, one after the other or together, while there is time, and adds what they gave to the file."""
    file = Path(options.out) / file
    result = json.loads(file.read_text()) if file.exists() else {"machine": machine(), "commands": [], "runs": []}
    result["commands"].append(" ".join(["fast.py", *sys.argv[1:]]))
    ends = time.monotonic() + options.limit
    for _ in range(options.sets):
        for some in [names] if options.together else [[name] for name in random.sample(names, len(names))]:
            if time.monotonic() > ends:
                return
            for row in run(some):
                print(json.dumps(row), flush=True)
                result["runs"].append(row)
            file.write_text(json.dumps(result, indent=1) + "\n")


def cores(most):
    """So many of the processors that this process may use, of different cores where the system tells."""
    chosen = {}
    for processor in sorted(os.sched_getaffinity(0)):
        chosen.setdefault(min(siblings(processor)), processor)
    return sorted(chosen.values())[:most]


def recording(options):
    """Windows of a recorded process, with recording switched off and on in turns."""
    runs = []
    for name in options.programs or ["decode", "mlp", "cnn"]:
        steps = max(PROGRAMS[name][1] // options.shorter, 1)
        process = Process(name, "recorded", options.apex)
        row = {"program": name, "steps": steps, "off_ms": [], "on_ms": []}
        try:
            process.line()
            process.window(steps)
            for _ in range(options.windows):
                for switch in random.sample(["off", "on"], 2):
                    subprocess.run([options.apex, "ctl", switch, str(process.folder / "session")], check=True, capture_output=True)
                    row[f"{switch}_ms"].append(process.window(steps))
            row["launches_per_step"] = process.launches_in(steps)
        except (RuntimeError, OSError, ValueError, subprocess.CalledProcessError) as error:
            row["error"] = str(error)
        finally:
            process.end()
        print(json.dumps(row), flush=True)
        runs.append(row)
        (Path(options.out) / "fast-recording.json").write_text(json.dumps({"machine": machine(), "runs": runs}, indent=1) + "\n")


def million(options):
    """A program of launches in a row: bare, recorded, with the queue and with batches, in turns."""
    rows = []
    for _ in range(options.rounds):
        for mode in random.sample(list(MODES), len(MODES)):
            folder = Path(tempfile.mkdtemp())
            before = [options.apex, *MODES[mode], "-o", str(folder / "session"), "--"] if MODES[mode] else []
            done = subprocess.run([*before, *options.command_line], capture_output=True, text=True, check=True)
            rows.append({"mode": mode} | json.loads(done.stdout))
            shutil.rmtree(folder, ignore_errors=True)
            print(json.dumps(rows[-1]), flush=True)
            (Path(options.out) / "fast-million.json").write_text(json.dumps({"machine": machine(), "runs": rows}, indent=1) + "\n")


def recording_table(file):
    rows = []
    for row in read_results(file)["runs"]:
        if "error" in row:
            continue
        off, on, launches = row["off_ms"], row["on_ms"], row["launches_per_step"]
        added = [(with_it - without) * 1e6 / launches for without, with_it in zip(off, on, strict=True)]
        percent = [(with_it / without - 1) * 100 for without, with_it in zip(off, on, strict=True)]
        cells = [f"{statistics.median(off):.3f}", f"{statistics.median(on):.3f}", f"{launches:.0f}"]
        rows.append([PROGRAMS[row["program"]][0], *cells, spread(percent, 1), spread(added, 0), len(off)])
    print(table(["program", "off, ms", "on, ms", "launches a step", "added, %", "added, ns a launch", "pairs of windows"], rows))


def costs_table(file):
    """What each way to run costs: by the medians of windows that took turns, and over the whole time."""
    rows = []
    runs = [row for row in read_results(file)["runs"] if "error" not in row]
    for name in dict.fromkeys(row["program"] for row in runs):
        of_program = [row for row in runs if row["program"] == name]
        for mode, title in COSTS.items():
            of_runs = [(row["bare"], row[mode]) for row in of_program]
            lost = [[(b / a - 1) * 100 for a, b in zip(bare["windows_ms"], other["windows_ms"], strict=True)] for bare, other in of_runs]
            means = [list(zip(bare["means_ms"], other["means_ms"], strict=True)) for bare, other in of_runs]
            ms = statistics.median(ms for row in of_program for ms in row[mode]["windows_ms"])
            cells = ["", "", ""]
            if mode != "bare":
                each = ", ".join(f"{statistics.median(of_one):.1f}" for of_one in lost)
                cells = [of_copies(lost, 1), of_copies(means, 1, in_all), each]
            states = sorted({queue["state"] for row in of_program for queue in row[mode].get("queue", [])})
            rows.append([PROGRAMS[name][0], title, f"{ms:.3f}", *cells, sum(map(len, lost)), ", ".join(states)])
    titles = ["program", "run", "step, ms", "lost, %", "lost over all, %", "lost in each process, %", "windows", "queue"]
    print(table(titles, rows))


def placement_table(file):
    data = read_results(file)
    rows = []
    for name, (title, _) in PROGRAMS.items():
        runs = [row for row in data["runs"] if row["program"] == name and "error" not in row]
        for key, (mode, _, where) in PLACEMENTS.items() if runs else ():
            times = [ms for row in runs for ms in row[key]["windows_ms"]]
            gains = ["" if key == base or base == "fast" and mode == "bare" else faster(runs, key, base) for base in ("bare", "fast")]
            rows.append([title, COSTS[mode], where, f"{statistics.median(times):.3f}", *gains, f"{len(times)} ({len(runs)})"])
    titles = ["program", "run", "threads", "step, ms", "times faster than bare", "than `--fast` anywhere", "windows (processes)"]
    print(table(titles, rows))


def in_all(means):
    """What all windows together lost, percent, given pairs of their means: bare, and not."""
    return (sum(after for _, after in means) / sum(before for before, _ in means) - 1) * 100


def million_table(file):
    runs = read_results(file)["runs"]
    rows = []
    titles = {"bare": "bare", "recorded": "`apex run`", "fast": "`apex run --fast`", "batch": "`apex run --fast=batch`"}
    for mode, title in titles.items():
        of_mode = [row for row in runs if row["mode"] == mode]
        if not of_mode:
            continue
        fields = ("p50_ns", "p90_ns", "p99_ns", "mean_ns", "total_ns_per_launch")
        rows.append([title, *(f"{statistics.median(row[field] for row in of_mode):.0f}" for field in fields), len(of_mode)])
    print(table(["", "median, ns", "p90", "p99", "mean", "until the last kernel ends, ns a launch", "runs"], rows))


def spread(values, digits):
    """The median and its 95% interval; of few values, the mean and its own."""
    found = (mean_interval if len(values) < FEWEST_FOR_BOOTSTRAP else median_interval)(values)
    return "{:.{digits}f} ({:.{digits}f} to {:.{digits}f})".format(*found, digits=digits)


def tables(file):
    data = read_results(file)
    # (Files of before there were batches have none.)
    modes = [mode for mode in MODES if any(mode in row for row in data["runs"])]
    rows = []
    for name, (title, _) in PROGRAMS.items():
        runs = [row for row in data["runs"] if row["program"] == name and "error" not in row]
        times = {mode: [ms for row in runs for ms in row.get(mode, {}).get("windows_ms", [])] for mode in modes}
        if not times["bare"]:
            continue
        medians = [f"{statistics.median(times[mode]):.2f}" if times[mode] else "-" for mode in modes]
        gains = [faster(runs, mode) if times[mode] else "-" for mode in ("fast", "recorded", "batch") if mode in modes]
        gains.insert(1, ", ".join(f"{gain:.2f}" for gain in in_each(runs, "fast")))
        rows.append([title, *medians, *gains, f"{len(times['bare'])} ({len(runs)})", same_bits(runs, modes)])
    of_batches = [["`--fast=batch`, ms"], ["`--fast=batch`: times faster"]] if "batch" in modes else [[], []]
    times = ["bare, ms", "recorded, ms", "`--fast`, ms", *of_batches[0]]
    gains = ["`--fast`: times faster", "in each process", "recorded: times faster", *of_batches[1]]
    print(table(["program", *times, *gains, "windows (processes)", "same bits"], rows))


def gains_of(runs, mode, base):
    """The ratios of windows that took turns, of each process."""
    pairs = [zip(row[base]["windows_ms"], row[mode]["windows_ms"], strict=True) for row in runs if mode in row]
    return [[before / after for before, after in of_copy] for of_copy in pairs]


def faster(runs, mode, base="bare"):
    """The median of the ratios of windows that took turns, and its 95% interval."""
    return of_copies(gains_of(runs, mode, base), 2)


def in_each(runs, mode, base="bare"):
    """The median of those ratios in each process."""
    return [statistics.median(gains) for gains in gains_of(runs, mode, base)]


def of_copies(copies, digits, statistic=statistics.median):
    """A statistic of the windows of all copies, and its 95% bootstrap interval: copies are resampled, then windows of each."""
    generator = random.Random(0)

    def resampled():
        chosen = generator.choices(copies, k=len(copies))
        return statistic([value for copy in chosen for value in generator.choices(copy, k=len(copy))])

    values = sorted(resampled() for _ in range(2000))
    value = statistic([value for copy in copies for value in copy])
    return f"{value:.{digits}f} ({values[50]:.{digits}f} to {values[-51]:.{digits}f})"


def same_bits(runs, modes):
    if len({row["bare"]["hash"] for row in runs}) > 1:
        return "differ without APEX, too"
    return "yes" if all(row["bare"]["hash"] == row[mode]["hash"] for row in runs for mode in modes if mode in row) else "**no**"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring, costing, placing = (commands.add_parser(name) for name in ("measure", "costs", "placement"))
    for parsed, copies, windows, limit in ((measuring, 4, 5, 500.0), (costing, 4, 25, 100.0), (placing, 1, 25, 100.0)):
        parsed.add_argument("--copies", type=int, default=copies)
        parsed.add_argument("--windows", type=int, default=windows)
        parsed.add_argument("--limit", type=float, default=limit)
        parsed.add_argument("programs", nargs="*", metavar="PROGRAM")
    for parsed in (measuring, costing):
        parsed.add_argument("--sets", type=int, default=1)
        parsed.add_argument("--cores", type=int, default=2, help="processors that a pinned program may use; 0: all")
        parsed.add_argument("--together", action="store_true", help="all programs at once")
    measuring.add_argument("--modes", default=",".join(MODES))
    measuring.add_argument("--shorter", type=int, default=1, help="windows are so many times shorter than half a second")
    switching = commands.add_parser("recording")
    switching.add_argument("--windows", type=int, default=24)
    switching.add_argument("--shorter", type=int, default=1, help="windows are so many times shorter than half a second")
    switching.add_argument("programs", nargs="*", metavar="PROGRAM")
    launching = commands.add_parser("million")
    launching.add_argument("--rounds", type=int, default=5)
    launching.add_argument("command_line", nargs="+", metavar="COMMAND")
    for measured in (measuring, costing, placing, switching, launching):
        measured.add_argument("--apex", required=True)
        measured.add_argument("--out", required=True)
    tabled = {"tables": tables, "recording-table": recording_table, "costs-table": costs_table, "placement-table": placement_table, "million-table": million_table}
    for name in tabled:
        commands.add_parser(name).add_argument("file")
    options = parser.parse_args()
    if options.command in tabled:
        tabled[options.command](options.file)
    else:
        {"measure": measure, "costs": costs, "placement": placement, "recording": recording, "million": million}[options.command](options)


if __name__ == "__main__":
    main()
