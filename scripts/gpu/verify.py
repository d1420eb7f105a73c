"""Runs programs bare, under APEX, under CUPTI and under both; compares their outputs and the launches that were counted.

    verify.py --build DIR --cupti LIB --out DIR [--apex BIN] [--only NAME…]

A program's standard output is its result: it must be the same bytes in every mode. The launches that APEX recorded must
equal those that CUPTI counted, kernel by kernel, and where the program itself knows its count (`launches N` on its
standard error) both must equal that. In the mode `both`, APEX and CUPTI watch the same process, which also holds where
two runs of a program do not launch the same kernels. Exit status 1 when anything differs.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import observers

PROGRAMS = Path(__file__).parent / "programs" / "verify"

# What makes the frameworks compute the same bits every time.
DETERMINISTIC = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "PYTHONHASHSEED": "0",
    "XLA_FLAGS": "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "JAX_PLATFORMS": "cuda",
}

TIMEOUT_S = 180


def cases(build):
    """Name and command of each program."""
    compiled = [
        "runtime-static",
        "runtime-shared",
        "runtime-per-thread",
        "features",
        "graphs",
        "threads",
        "threads-per-thread",
        "processes",
    ]
    scripts = ["torch_train", "torch_graphs", "triton_kernels", "cupy_kernels", "jax_jit"]
    found = {name: [str(build / name)] for name in compiled}
    found["driver-api"] = [str(build / "driver_api"), str(build / "driver_kernels.cubin"), str(build / "driver_kernels.ptx")]
    found |= {name.replace("_", "-"): [sys.executable, str(PROGRAMS / f"{name}.py")] for name in scripts}
    return found


def run(command, observer, folder):
    """One run: digest of the output, launches that the program and its observers counted, what went wrong."""
    folder.mkdir(parents=True)
    began = time.monotonic()
    environment = os.environ | DETERMINISTIC | observer.environment(folder)
    try:
        done = subprocess.run(
            observer.wrap(command, folder), env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        status, output, errors = done.returncode, done.stdout, done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        status, output, errors = "timeout", late.stdout or b"", (late.stderr or b"").decode(errors="replace")
    known = re.search(r"^launches (\d+)$", errors, re.MULTILINE)
    result = {
        "status": status,
        "seconds": round(time.monotonic() - began, 2),
        "digest": hashlib.sha256(output).hexdigest(),
        "output_bytes": len(output),
        "known": int(known[1]) if known else None,
        "counts": {},
        "stderr": "" if status == 0 else errors[-2000:],
    }
    for name, count in observer.counters().items():
        try:
            result["counts"][name] = count(folder)
        except Exception as problem:  # a session that cannot be read is a finding, not the end of the other cases
            result["stderr"] += f"\n{name}: {problem}"
    return result


def judge(runs):
    """All differences between the runs of one program, as sentences."""
    problems = [f"{mode}: exit status {r['status']}" for mode, r in runs.items() if r["status"] != 0]
    bare = runs["bare"]
    if not bare["output_bytes"]:
        problems.append("no output")
    problems += [f"{mode}: output differs from bare" for mode, r in runs.items() if r["digest"] != bare["digest"]]
    known = bare["known"]
    seen = {(mode, name): c for mode, r in runs.items() for name, c in r["counts"].items()}
    for mode, r in runs.items():
        problems += [f"{mode}: no count by {name}" for name in r["expected_counters"] if (mode, name) not in seen]
    for (mode, name), counts in seen.items():
        if known is not None and counts.total() != known:
            problems.append(f"{mode}: {name} counted {counts.total()} launches, the program made {known}")
    problems += differences("both", seen.get(("both", "apex")), seen.get(("both", "cupti")))
    # Two processes: only where CUPTI saw the same kernels twice.
    if seen.get(("cupti", "cupti")) == seen.get(("cupti again", "cupti")):
        for mode in ("apex", "apex all", "apex off"):
            problems += differences(mode, seen.get((mode, "apex")), seen.get(("cupti", "cupti")))
    return problems


def differences(mode, apex, cupti):
    if apex is None or cupti is None or apex == cupti:
        return []
    names = sorted(k for k in apex | cupti if apex[k] != cupti[k])
    shown = "; ".join(f"{k[:80]}: apex {apex[k]}, cupti {cupti[k]}" for k in names[:3])
    return [f"{mode}: apex {apex.total()} launches, cupti {cupti.total()}; {len(names)} kernels differ: {shown}"]


def observe(programs, modes, work, jobs):
    """Runs every program in every mode, several at a time; results by program and mode."""
    results = {name: {} for name in programs}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        pending = {
            pool.submit(run, command, observer, work / f"{name}.{mode.replace(' ', '-')}"): (name, mode)
            for mode, observer in modes.items()
            for name, command in programs.items()
        }
        for job in concurrent.futures.as_completed(pending):
            name, mode = pending[job]
            results[name][mode] = job.result() | {"expected_counters": list(modes[mode].counters())}
    return {name: {mode: runs[mode] for mode in modes} for name, runs in results.items()}


def total(runs, mode, counter):
    counts = runs.get(mode, {}).get("counts", {}).get(counter)
    return "-" if counts is None else counts.total()


def show(name, runs, problems):
    bare, apex = runs["bare"], runs.get("apex", {})
    both = f"{total(runs, 'both', 'apex')}/{total(runs, 'both', 'cupti')}"
    print(
        f"{name:20} {bare['known'] or '-':>7} {total(runs, 'cupti', 'cupti'):>7} {total(runs, 'apex', 'apex'):>7} {both:>15} "
        f"{bare['seconds']:>6} {apex.get('seconds', '-'):>6}  {'equal' if not problems else 'DIFFERENT'}"
    )
    for problem in problems:
        print(f"    {problem}")
    for mode, r in runs.items():
        if r["stderr"]:
            print(f"    {mode}: {r['stderr'].strip()[-600:]}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("build", "cupti", "out", "work"):
        parser.add_argument(f"--{name}", type=observers.absolute, required=True)
    parser.add_argument(
        "--apex", type=observers.absolute, help="folder of apex; without it only the programs and CUPTI are checked"
    )
    parser.add_argument("--only", nargs="*", help="programs to run")
    parser.add_argument("--jobs", type=int, default=6)
    arguments = parser.parse_args()

    cupti = observers.Cupti(arguments.cupti)
    modes = {"bare": observers.Nothing(), "bare again": observers.Nothing(), "cupti": cupti, "cupti again": cupti}
    if arguments.apex:
        modes |= {
            "apex": observers.Apex(arguments.apex),
            "apex all": observers.Apex(arguments.apex, "--timing", "all"),
            "apex off": observers.Apex(arguments.apex, "--timing", "off"),
            "both": observers.Both(observers.Apex(arguments.apex), cupti),
        }
    programs = {n: c for n, c in cases(arguments.build).items() if not arguments.only or n in arguments.only}
    results = observe(programs, modes, arguments.work, arguments.jobs)

    report = []
    print(f"{'program':20} {'known':>7} {'cupti':>7} {'apex':>7} {'both':>15} {'bare s':>6} {'apex s':>6}  verdict")
    for name, runs in results.items():
        problems = judge(runs)
        show(name, runs, problems)
        for r in runs.values():
            r["launches"] = {counter: c.total() for counter, c in r["counts"].items()}
            r["kernels"] = {counter: len(c) for counter, c in r.pop("counts").items()}
        report.append({"program": name, "problems": problems, "runs": runs})
    (arguments.out / "verify.json").write_text(json.dumps(report, indent=1))
    return 1 if any(r["problems"] for r in report) else 0


if __name__ == "__main__":
    sys.exit(main())
