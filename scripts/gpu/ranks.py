"""Transformers on several ranks, of which one is late, and what APEX says of it.

    ranks.py measure [--out DIR] [--ranks N] [--programs ddp,fsdp,tensor,experts] [--runs none:bare,link:recorded,...] [--seconds S]
    ranks.py check DIR      # what `apex report` says of DIR's sessions, beside NCCL's own log

`measure` runs each program of `rank_programs.py` bare and recorded: no rank late, the last one late by host code, by its input, by more work, and by copies
over its link. The digest that a run prints must not depend on recording. In one more run each rank has an `apex run` of its own, all into one folder, and NCCL writes each collective
into a log. Then each program runs with recording switched on and off in turn, and last bare and with `--fast` in turn, a process each. Sessions and logs go to DIR. Runs that no time is left for after S seconds are
left out and counted. `APEX_BIN` names the folder of `apex` and its libraries.

It needs N GPUs. With --one-gpu, all ranks share the GPU 0. NCCL refuses that, unless it takes the ranks for processes of different hosts (NCCL_HOSTID): they
then exchange data over sockets, and the GPU changes between them in time slices. Times are not those of a real job, but the delays are as planted, and so
are the names, the ranges and the order of the collectives.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from rank_programs import PROGRAMS

# Longest run of a program, in seconds, and how many windows of steps compare recording with none.
LIMIT, WINDOWS = 90, 24
# How many processes with and without `--fast` take turns.
FAST_PAIRS = 3
HERE = Path(__file__).resolve().parent
BIN = Path(os.environ.get("APEX_BIN", "target/release"))


def run(command, **environment):
    """What a command prints on stdout."""
    variables = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} | environment
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command} exits with status {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def of_output(printed):
    """The figures that rank 0 printed."""
    names = ("digest", "step_ms", "windows", "versions")
    lines = dict(line.split(" ", 1) for line in printed.splitlines() if line.split(" ", 1)[0] in names)
    return {"digest": lines["digest"], "step_ms": float(lines["step_ms"]), "windows": json.loads(lines["windows"]), "versions": lines["versions"]}


class Series:
    """The runs of `measure`, written down after each."""

    def __init__(self, options):
        self.options, self.out = options, options.out.resolve()
        self.sessions = Path(tempfile.mkdtemp())
        self.deadline = time.monotonic() + options.seconds
        self.results = {"ranks": options.ranks, "one_gpu": options.one_gpu, "runs": [], "left_out": []}

    def command(self, program, late, how, session):
        """The command line of a run: `how` is bare, recorded, fast, apart (each rank with its own `apex run`) or windows."""
        options = self.options
        script = [str(HERE / "rank_programs.py"), program, "--late", late, *(["--one-gpu"] if options.one_gpu else [])]
        if how == "windows":
            script += ["--windows", str(WINDOWS), "--switch", f"{BIN.resolve()}/apex ctl {{}} {session}"]
        launcher = ["torchrun", "--standalone", "--nproc-per-node", str(options.ranks)]
        apex = [str(BIN / "apex"), "run", "--quiet", "--no-ptx", *(["--fast"] if how == "fast" else []), "-o", str(session), "--"]
        if how == "apart":
            return [*launcher, "--no-python", *apex, sys.executable, *script]
        return [*([] if how == "bare" else apex), *launcher, *script]

    def run(self, program, late, how="recorded"):
        """One run, unless the time is over."""
        name = f"{program}-{late}-{how}"
        if time.monotonic() > self.deadline:
            self.results["left_out"].append(name)
            return
        again = sum(each["how"] == how and each["program"] == program and each["late"] == late for each in self.results["runs"])
        session = self.sessions / (name if again == 0 else f"{name}-{again}")
        figures, begun = {"program": program, "late": late, "how": how}, time.monotonic()
        logs = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL", "NCCL_DEBUG_FILE": f"{self.sessions}/nccl-{name}-%p.log"}
        try:
            figures |= of_output(run(self.command(program, late, how, session), **(logs if how == "apart" else {})))
        except (RuntimeError, subprocess.TimeoutExpired) as failed:
            figures["failed"] = str(failed)
        if session.exists():
            figures["session_bytes"] = sum(file.stat().st_size for file in session.rglob("*") if file.is_file())
        self.results["runs"].append(figures)
        print(json.dumps(figures | {"seconds": round(time.monotonic() - begun, 1)}), flush=True)
        self.write()

    def write(self):
        (self.out / "runs.json").write_text(json.dumps(self.results, indent=1) + "\n")

    def pack(self):
        """An archive of each program's sessions and logs. Those of windows are long, and nobody asks them for a late rank."""
        for program in self.options.programs:
            with tarfile.open(self.out / f"sessions-{program}.tar.xz", "w:xz", preset=3) as packed:
                for each in sorted(self.sessions.glob(f"*{program}-*")):
                    if "-windows" not in each.name and "-fast" not in each.name:
                        packed.add(each, each.name)


def measure(options):
    """All runs, those first that tell most, should the time be short."""
    series = Series(options)
    order = [("host", "apart"), ("work", "recorded"), ("input", "recorded"), ("none", "recorded")]
    order += [("none", "bare"), ("link", "recorded"), ("none", "windows"), ("work", "bare"), *[("none", "fast"), ("none", "bare")] * FAST_PAIRS]
    for late, how in options.runs or order:
        for program in options.programs:
            series.run(program, late, how)
    series.write()
    series.pack()
    print(json.dumps({"results changed by recording": changed(series.results["runs"])}))


def changed(runs):
    """The programs whose digests differ between runs that compute the same."""
    digests = {}
    for each in runs:
        if "digest" in each:
            digests.setdefault((each["program"], each["late"] == "work"), set()).add(each["digest"])
    return sorted({program for (program, _), found in digests.items() if len(found) > 1})


def collectives_of_log(path):
    """The collectives of each communicator in a log of NCCL, in order, and the communicators' identifiers."""
    names, calls = {}, {}
    for line in path.read_text(errors="replace").splitlines():
        if found := re.search(r"comm (0x\w+) rank \d+ .* commId (0x\w+) - Init COMPLETE", line):
            names[found[1]] = f"{int(found[2], 16):016x}"
        if found := re.search(r" (\w+): opCount (\w+) .* comm (0x\w+) \[nranks=", line):
            calls.setdefault(found[3], []).append(found[1])
    return [(names.get(comm), found) for comm, found in calls.items()]


def report(session):
    """What `apex report` says of the ranks of a session, over the whole run."""
    return json.loads(run([str(BIN / "apex"), "report", "--json", "--phase", "all", str(session)]))


def check(folder):
    """The late rank and its cause in each session of `measure`, and whether the collectives are those of NCCL's log."""
    with tempfile.TemporaryDirectory() as unpacked:
        for archive in sorted(folder.glob("sessions-*.tar.xz")):
            with tarfile.open(archive) as packed:
                packed.extractall(unpacked, filter="data")
        for session in sorted(each for each in Path(unpacked).iterdir() if each.is_dir()):
            print(json.dumps({"session": session.name} | said_of(report(session)["by_rank"]) | logged(session)))


def said_of(by_rank):
    """The late rank of a report, and the collectives that tell it."""
    said = {"matching": by_rank["matching"], "communicators": by_rank["communicators"]}
    if late := by_rank["late"]:
        said |= {"late": by_rank["ranks"][late["row"]]["rank"], "last": late["last"], "of": late["of"], "cause": late["cause"]}
        said |= {"also": late.get("also"), "place": late["place"], "ratio": late["ratio"], "waited_ms": round(late["waited_ns"]["value"] / 1e6, 1)}
    return said


def logged(session):
    """The collectives in NCCL's logs of a session, and whether all ranks have the same."""
    logs = [collectives_of_log(log) for log in sorted(session.parent.glob(f"nccl-{session.name}-*.log"))]
    if not logs:
        return {}
    calls = [[calls for _, calls in log] for log in logs]
    return {"nccl_log": [{name or "not named": len(calls) for name, calls in log} for log in logs], "logs_agree": all(each == calls[0] for each in calls)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("measure")
    verb.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    verb.add_argument("--ranks", type=int, default=2)
    verb.add_argument("--programs", type=lambda names: names.split(","), default=PROGRAMS)
    verb.add_argument("--runs", type=lambda runs: [run.split(":") for run in runs.split(",")], help="which rank is late in which kind of run, in order")
    verb.add_argument("--seconds", type=float, default=3600)
    verb.add_argument("--one-gpu", action="store_true")
    verb = verbs.add_parser("check")
    verb.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.verb == "check":
        check(options.folder)
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        measure(options)


if __name__ == "__main__":
    main()
