"""Tables of what was measured of the CPU device, from the files that its benchmarks write.

    cpu_device.py speed|samples|ratios|engines|conditions|watched|scaling|launches|taken SPEED.json
    cpu_device.py forms|dear|taken FORMS.json
    cpu_device.py programs|taken PROGRAMS.json
    cpu_device.py watch --apex BIN --out PROGRAMS.json

The pages show these tables, all rows of them, and a test compares (xtask/tests/figures.rs). `watch` measures what counting
and checking cost the bundled programs, in processor time, and writes PROGRAMS.json.
"""

import argparse
import datetime
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "gpu"))
from figures import read_results

KERNEL, COUNTED, CHECKED = "cpu-device", "cpu-device-counted", "cpu-device-checked"
INTERPRETED = "cpu-device-interpreted"
PLAIN, FEATURES = "rust", "rust-avx2-fma"
MODES = {
    "nothing": {"APEX_CPU_COUNTS": "off"},
    "sampled counts": {"APEX_CPU_COUNTS": "sampled"},
    "counts of every launch": {"APEX_CPU_COUNTS": "all"},
    "checks": {"APEX_CPU_COUNTS": "off", "APEX_CPU_CHECK": "1"},
}
ROUNDS = 3


def quantile(samples, fraction):
    """The sample at this place of the sorted ones, the nearest where none is."""
    return sorted(samples)[round((len(samples) - 1) * fraction)]


def least(samples):
    """The fastest sample: other programs can only add to it."""
    return min(samples)


def short(value):
    """A number with two digits that count, or all before the point."""
    if value >= 10:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def table(head, rows):
    """A Markdown table; columns after the first whose cells are numbers are aligned to the right."""
    lines = ["| " + " | ".join(head) + " |"]
    numeric = [all(row[i][:1].isdigit() or row[i] == "-" for row in rows) for i in range(len(head))]
    lines.append("| " + " | ".join("---:" if number else "---" for number in numeric) + " |")
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    print("\n".join(lines))


def series_of(workload, what, threads):
    found = [s for s in workload["series"] if s["what"] == what and s["threads"] == threads]
    return found[0] if found else None


def threads_of(workload):
    return sorted({series["threads"] for series in workload["series"]})


def against(own, other, key):
    return least(own[key]) / least(other[key]) if own and other else None


def cell(value):
    return "-" if value is None else short(value)


def speed(data):
    """Every workload beside plain Rust: milliseconds of processor time of each thread, the fastest sample."""
    rows = []
    for workload in data["workloads"]:
        for threads in threads_of(workload):
            own = series_of(workload, KERNEL, threads)
            peers = [series_of(workload, what, threads) for what in (PLAIN, FEATURES)]
            busy = least(own["busy"]) * threads / workload["warp_instructions"] * 1e9
            milliseconds = [short(1e3 * least(s["busy"])) if s else "-" for s in (own, *peers)]
            ratios = [cell(against(own, peer, "busy")) for peer in peers]
            goal = "-" if workload["goal"] is None else short(workload["goal"])
            rows.append(
                [workload["name"], str(threads), milliseconds[0], f"{busy:.1f}"]
                + [milliseconds[1], ratios[0], goal, milliseconds[2], ratios[1]]
            )
    head = ["workload", "threads", "CPU device, ms", "ns per warp instruction", "Rust, ms", "ratio", "goal"]
    table(head + ["Rust with AVX2 and FMA, ms", "ratio"], rows)


def samples(data):
    """The median of every series, its fastest sample and the ninth of ten, and what each workload is."""
    rows = []
    for workload in data["workloads"]:
        for series in workload["series"]:
            wall, busy = ([1e3 * quantile(series[key], at) for at in (0, 0.5, 0.9)] for key in ("seconds", "busy"))
            shown = [f"{middle:.3f} ({low:.3f} to {high:.3f})" for low, middle, high in (wall, busy)]
            rows.append([workload["name"], series["what"], str(series["threads"]), str(len(series["seconds"])), *shown])
    table(["workload", "what", "threads", "samples", "wall, ms", "processor of each thread, ms"], rows)
    print("\nThe workloads:\n")
    for workload in data["workloads"]:
        print(f"- {workload['name']}, {workload['about']}")


def ratios(data):
    """The least and the greatest ratio of medians to plain Rust, in a sentence."""
    found = []
    for workload in data["workloads"]:
        own, peer = series_of(workload, KERNEL, 1), series_of(workload, PLAIN, 1)
        found.append((quantile(own["busy"], 0.5) / quantile(peer["busy"], 0.5), workload["name"]))
    (fewest, first), (most, last) = min(found), max(found)
    times = ", ".join(f"{short(ratio)} ({name})" for ratio, name in sorted(found)[1:-1])
    print(
        f"On one thread, kernels take from {short(fewest)} ({first}) to {short(most)} ({last}) times as long as the same\n"
        f"algorithm in plain Rust (medians of processor time); between these, {times}."
    )


def engines(data):
    """The choice by default and the interpreter beside plain Rust on one thread: medians of processor time, quartiles."""
    rows = []
    for workload in data["workloads"]:
        row, medians = [workload["name"]], []
        for what in (KERNEL, INTERPRETED, FEATURES):
            busy = series_of(workload, what, 1)["busy"]
            low, middle, high = (1e3 * quantile(busy, at) for at in (0.25, 0.5, 0.75))
            row.append(f"{middle:.3f} ({low:.3f} to {high:.3f})")
            medians.append(middle)
        own, interpreted, rust = medians
        rows.append([*row, short(interpreted / own), short(own / rust)])
    head = ["workload", "`auto`, ms", "`interpreted`, ms", "Rust with AVX2 and FMA, ms"]
    table([*head, "`interpreted` / `auto`", "`auto` / Rust"], rows)


def conditions(data):
    """The CPU's vectors and the load of the machine before the measurement."""
    machine = data["machine"]
    vectors, load = ", ".join(machine["vectors"]), machine["load"]
    wanted = "1 process" if round(load) == 1 else f"{load:.0f} processes"
    print(f"The CPU has {vectors}; {wanted} wanted its cores before the run.")


def watched(data):
    """What counting and checking cost each workload."""
    rows = []
    for workload in data["workloads"]:
        own = series_of(workload, KERNEL, 1)
        row = [workload["name"], short(1e3 * least(own["busy"]))]
        for what in (COUNTED, CHECKED):
            series = series_of(workload, what, 1)
            per = least(series["busy"]) / workload["warp_instructions"] * 1e9
            row += [short(1e3 * least(series["busy"])), short(per), short(against(series, own, "busy"))]
        rows.append(row)
    head = ["workload", "ms", "counted, ms", "ns per warp instruction", "ratio"]
    table(head + ["checked, ms", "ns per warp instruction", "ratio"], rows)


def scaling(data):
    """How many times as fast two threads are as one."""
    rows = []
    for workload in data["workloads"]:
        row = [workload["name"]]
        for what in (KERNEL, PLAIN, FEATURES):
            one, two = (series_of(workload, what, threads) for threads in (1, 2))
            ratio = against(one, two, "seconds")
            row.append("-" if ratio is None else f"{ratio:.2f}")
        rows.append(row)
    table(["workload", "CPU device", "Rust", "Rust with AVX2 and FMA"], rows)


def launches(data):
    """What launches and blocks cost that do nothing."""
    rows = []
    for launch in data["launches"]:
        for series in launch["series"]:
            micros = 1e6 * least(series["seconds"])
            per_block = micros / launch["blocks"]
            rows.append([launch["about"], str(series["threads"]), f"{micros:.2f}", f"{per_block:.3f}"])
    table(["empty kernel", "threads", "µs per launch", "µs per block"], rows)


def form_rows(rows):
    ratio = lambda row: row["ns"] / row["plain_ns"]
    shown = []
    for row in sorted(rows, key=ratio, reverse=True):
        name, dearest = (f"`{row[key]}`".replace("|", "\\|") for key in ("form", "dearest"))
        costs = [f"{row['ns']:.1f}", f"`{row['plain']}`", f"{row['plain_ns']:.1f}", f"{ratio(row):.1f}"]
        shown.append([name, str(row["instances"]), dearest, *costs])
    head = ["instruction", "instances", "dearest", "ns per warp", "plain", "ns per warp", "ratio"]
    table(head, shown)


def forms(data):
    """Every form, the dearest of its instances, and the plain instruction."""
    form_rows(data["rows"])


def dear(data):
    """How many forms cost more than the bound, and which."""
    beyond = [row for row in data["rows"] if row["ns"] > data["bound"] * row["plain_ns"]]
    print(
        f"{len(data['rows'])} forms and accesses, {len(beyond)} of them above {data['bound']:.0f} times "
        "the plain instruction of their width:"
        if beyond
        else f"{len(data['rows'])} forms and accesses, none above {data['bound']:.0f} times the plain instruction."
    )
    if beyond:
        print()
        form_rows(beyond)


def programs(data):
    """What being watched costs the bundled programs."""
    bare = min(data["seconds"]["nothing"])
    rows = [[mode, f"{min(seconds):.2f}", short(min(seconds) / bare)] for mode, seconds in data["seconds"].items()]
    table(["watched for", "processor time, s", "ratio"], rows)


def taken(data):
    """What it was measured on, when and how."""
    machine = data["machine"]
    print(f"Measured {machine['date']} on {machine['cpu']} ({machine['cores']} cores, a virtual machine) with\n")
    print(f"    {machine['command']}")


def watch(arguments):
    apex = Path(arguments.apex).resolve()
    seconds = {mode: [] for mode in MODES}
    for _ in range(ROUNDS):
        for mode, environment in MODES.items():
            folder = tempfile.mkdtemp()
            command = [apex, "run", "--quiet", "--device", "cpu", "-o", f"{folder}/s", "--", apex, "demo", "--bare"]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, env=os.environ | environment, stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            shutil.rmtree(folder)
            seconds[mode].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    info = Path("/proc/cpuinfo").read_text().split("model name", 1)[1]
    machine = {
        "cpu": info.split(":", 1)[1].split("\n", 1)[0].strip(),
        "cores": len(os.sched_getaffinity(0)),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": f"scripts/cpu_device.py watch --apex target/release/apex --out {arguments.out}",
    }
    Path(arguments.out).write_text(json.dumps({"machine": machine, "seconds": seconds}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what")
    parser.add_argument("file", nargs="?")
    parser.add_argument("--apex")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.what == "watch":
        return watch(arguments)
    tables = [speed, samples, ratios, engines, conditions, watched, scaling, launches, forms, dear, programs, taken]
    known = {function.__name__: function for function in tables}
    if arguments.what not in known or not arguments.file:
        parser.error("give a table and the file that it is made of")
    return known[arguments.what](read_results(arguments.file))


if __name__ == "__main__":
    sys.exit(main())
