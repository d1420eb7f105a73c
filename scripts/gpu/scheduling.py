"""What `apex run --fast=schedule` gains for unmodified programs that others wrote, and for networks with branches.

    scheduling.py prepare --hecbench DIR --out BIN [--nvcc NVCC]
    scheduling.py measure --folder BIN --out DIR [--seconds N] [--small] [--short]
    scheduling.py predict --flows PROGRAM --folder DIR
    scheduling.py table FILE
    scheduling.py actions-table FILE
    scheduling.py predicted-table FILE PREDICTED SIX

`prepare` compiles three programs of HeCBench (`git clone https://github.com/zjin-lcf/HeCBench`, commit f27000a5), as PTX that the
driver compiles, so that they can be run as they are, with streams by hand, and with a CUDA graph of either (programs/ways.h);
and memory_actions.cu. It needs no GPU. `measure` needs these programs, `apex`, its libraries, `driver-client` and the program
`schedule` (schedule.py says how to build it) in BIN, and CuPy. It runs 2,000 random programs and compares their results with
serial execution, records each program once for its predicted gain, measures memory_actions, then runs each program in all
ways, which take turns, until N seconds have passed, and writes DIR/scheduling.json after each part.
`--short` leaves out the recordings and memory_actions, `--small` tries the CUDA programs on the CPU device. `predict` prints the data flow of the recorded
sessions in DIR (`cargo build -p apex-data-flow --example flows` makes PROGRAM). The others print the tables of
docs/results/schedule-h200.md; SIX is the result of schedule.py.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import median
from figures import read_results, table
from schedule import device_name, of_rounds

HERE = Path(__file__).resolve().parent
RATT = [f"ratt{number}_kernel" for number in range(2, 10)]
RDWDOT = ["rdwdot_kernel", *(f"rdwdot{number}_kernel" for number in (2, 3, 6, 7, 8, 9, 10))]

# Of each program: its files; the line before its step and the line with which that ends; the lanes of its kernels by hand, 0
# where none is named; what comes before launches of a kernel, and after the first one; and other replacements.
PUBLIC = {
    "reaction": {
        "folder": "reaction-cuda", "files": ["main.cu"],
        "begin": r"for\(unsigned int t=0; t<timesteps; t\+\+\) \{\n", "last": r"    update<<<[^;]*;\n",
        "lanes": {"derivative_y2_zeroflux": 1, "derivative_z2_zeroflux": 2, "reaction_gray_scott": 3},
        "before": {"construct_laplacian": "JOIN ", "update": "JOIN "}, "after": {"construct_laplacian": " FORK"},
        "edits": [], "arguments": ["{steps}"], "steps": 6000, "us": r"Total kernel execution time: *([\d.]+) s", "of_run": 1e6,
    },
    "che": {
        "folder": "che-cuda", "files": ["main.cu"],
        "begin": r"for \(int t = 0; t < t_f; t\+\+\) \{\n", "last": r"    Swap<<<[^;]*;\n",
        "lanes": {"localFreeEnergyFunctional": 1}, "before": {"Swap": "JOIN "}, "after": {},
        # Smaller, so that a kernel leaves room; the copies for its log are left out, and it prints a result.
        "edits": [(r"define DATA([XYZ])SIZE 256", r"define DATA\1SIZE 64"), (r"if \(t > 0 && t % \(t_freq - 1\) == 0\)", "if (false)"),
                  (r"  free\(c_host\);", r"""  cudaMemcpy(c_host, d_cold, vol_bytes, cudaMemcpyDeviceToHost);
  printf("integral %.17g\\n", integral(c_host, nx, ny, nz));
  free(c_host);""")],
        "arguments": ["{steps}"], "steps": 8000, "us": r"iterations\) = ([\d.]+) \(s\)", "of_run": 1e6,
    },
    "s3d": {
        "folder": "s3d-cuda", "files": ["main.cu", "Option.cu", "OptionParser.cu", "S3D.cu"],
        "begin": r"for \(unsigned int i = 0; i < passes; i\+\+\)\n  \{\n", "last": r"    rdwdot10_kernel <<<[^;]*;\n",
        "lanes": {"rdsmh_kernel": 1, "gr_base": 2, "ratt10_kernel": 3, "ratx4_kernel": 1,
                  **{name: at % 4 for at, name in enumerate(RATT)}, **{name: at % 4 for at, name in enumerate(RDWDOT)}},
        "before": {"ratt2_kernel": "SEAM ", "ratx_kernel": "JOIN ", "ratx2_kernel": "FORK ", "qssa_kernel": "JOIN ", "rdwdot_kernel": "FORK "},
        "after": {}, "edits": [], "arguments": ["-q", "-n", "{steps}", "-s", "1"], "steps": 3000,
        "us": r"s3d kernels: ([\d.]+) \(us\)", "of_run": None,
    },
}
NETWORKS = ["inception", "recommender"]
WAYS = ["serial", "scheduled", "graph", "streams", "branches"]
ROWS = 60


def in_ways(text, program):
    """The text of a program with its step in the three ways of ways.h."""
    for pattern, by in program["edits"]:
        text = re.sub(pattern, by, text)
    begin = re.search(program["begin"], text)
    if begin is None:
        return text
    last = re.compile(program["last"]).search(text, begin.end())
    step = text[begin.end() : last.end()]

    after = dict(program["after"])

    def launch(found):
        name, shape, rest = found.groups()
        has_bytes = re.sub(r"\([^()]*\)", "", shape).count(",") > 1
        shape = shape.strip() + ("" if has_bytes else ", 0")
        lane, before = program["lanes"].get(name, 0), program["before"].get(name, "")
        return f"{before}{name} <<<{shape}, LANE({lane})>>>{rest};{after.pop(name, '')}"

    step = re.sub(r"(\w+)\s*<<<(.*?)>>>(\s*\([^;]*\));", launch, step, flags=re.S)
    step = f"    if (ways::all().begin()) {{ FORK\n{step}    JOIN ways::all().end(); }}\n"
    return f"{text[: begin.start()]}ways::all().restart();\n  {begin.group()}{step}{text[last.end() :]}"


def compiled(nvcc, sources, to, include):
    command = [nvcc, "-O3", "-std=c++17", "-gencode", "arch=compute_90,code=compute_90", *include, *map(str, sources), "-o", str(to)]
    print("+", *command, flush=True)
    subprocess.run(command, check=True)


def prepare(arguments):
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for name, program in PUBLIC.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / name
            shutil.copytree(arguments.hecbench / "src" / program["folder"], folder)
            for path in folder.iterdir():
                if path.suffix in (".cu", ".h"):
                    path.write_text(in_ways(path.read_text(), program))
            sources = [folder / file for file in program["files"]]
            compiled(arguments.nvcc, sources, out / name, ["-include", str(HERE / "programs" / "ways.h"), "-I", str(folder)])
    compiled(arguments.nvcc, [HERE / "programs" / "memory_actions.cu"], out / "memory_actions", [])


def of_network(line):
    return {"us": line["us"], "outputs": line["digest"], **{key: line[key] for key in ("launches", "longest_chain", "sum")}}


class Measurement:
    def __init__(self, arguments):
        self.folder, self.out, self.small = arguments.folder.resolve(), arguments.out.resolve(), arguments.small
        self.seconds, self.begun = arguments.seconds, time.monotonic()
        self.results = {"device": device_name(), "random": [], "rounds": [], "sessions": [], "predicted": {}, "actions": []}
        self.scratch = Path(tempfile.mkdtemp())
        self.environment = {**os.environ, "APEX_LIB_DIR": str(self.folder), "CUPY_COMPILE_WITH_PTX": "1",
                            "CUPY_CACHE_DIR": str(self.scratch / "cupy")}
        self.without_gpu = {}
        if self.small:
            (self.scratch / "libcuda.so.1").symlink_to(self.folder / "libapex_cpu_device.so")
            self.without_gpu = {"LD_LIBRARY_PATH": str(self.scratch)}
            self.environment["APEX_CPU_NEWER_PTX"] = "1"

    def save(self):
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "scheduling.json").write_text(json.dumps(self.results) + "\n")

    def run(self, command, limit=120, **variables):
        """The standard output of a command, or what is said of its failure."""
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit,
                                  env={**self.environment, **variables}, cwd=self.scratch)
        except subprocess.TimeoutExpired:
            return None, f"{command}: longer than {limit} s"
        if done.returncode:
            return None, f"{command}: exit status {done.returncode}: {done.stdout[-800:]} {done.stderr[-800:]}"
        return done.stdout, done.stderr

    def apex(self, session, *options):
        device = ["--device", "cpu"] if self.small else []
        return [self.folder / "apex", "run", "--quiet", "--no-machine", "--host-stacks", "off", *device, *options, "-o", session, "--"]

    def queue(self, session):
        report, failure = self.run([self.folder / "apex", "report", "--json", session], 60)
        return json.loads(report)["profile"]["processes"][0].get("queue") if report else failure

    def random_programs(self):
        """2,000 programs in four processes, each graph of which runs launches beside others where they share no data."""
        count, begun, running = 10 if self.small else 500, time.monotonic(), []
        for part in range(1 if self.small else 4):
            session = self.scratch / f"random-{part}"
            words = [self.folder / "driver-client", "beside", 1 + part * count, count, 20, 0]
            command = [str(word) for word in [*self.apex(session, "--fast=schedule"), *words]]
            running.append((session, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                                      env={**self.environment, "APEX_FAST_ALWAYS": "1"})))
        for session, process in running:
            try:
                said = process.communicate(timeout=max(1, 75 - (time.monotonic() - begun)))[0]
            except subprocess.TimeoutExpired:
                process.kill()
                said = "not done in time: " + process.communicate()[0]
            queue = self.queue(session) if process.returncode == 0 else None
            self.results["random"].append({"said": said.strip()[-400:], "seconds": time.monotonic() - begun, "queue": queue})
            print(self.results["random"][-1], flush=True)
        self.save()

    def command(self, name, way):
        if name in NETWORKS:
            return [sys.executable, HERE / "programs" / "branched_networks.py", name, "serial", ROWS]
        program = PUBLIC[name]
        steps = 3 if self.small else program["steps"]
        return [self.folder / name, *(word.format(steps=steps) for word in program["arguments"])]

    def found(self, name, way, said):
        """The time of a step and what the program computed."""
        if name in NETWORKS:
            return of_network(json.loads(said.splitlines()[-1]))
        program = PUBLIC[name]
        us = float(re.findall(program["us"], said)[-1])
        us = us * program["of_run"] / (3 if self.small else program["steps"]) if program["of_run"] else us
        outputs = re.sub(r"(?m)^.*(time|Time).*$", "", said).split()
        return {"us": us, "outputs": " ".join(outputs)[-400:]}

    def turn(self, name, way, number):
        command, session = self.command(name, way), self.scratch / f"{name}-{number}"
        if way == "scheduled":
            command = [*self.apex(session, "--fast=schedule"), *command]
            said, failure = self.run(command, WAY=way)
        else:
            said, failure = self.run(command, WAY=way, **self.without_gpu)
        if said is None:
            return {"failure": failure}
        found = self.found(name, way, said)
        if way == "scheduled" and number < 2:
            self.results["sessions"].append({"program": name, "queue": self.queue(session)})
        return found

    def network(self, name, number):
        """The ways of a network without APEX are of one process, in which they take turns."""
        turns = [lambda: {"scheduled": self.turn(name, "scheduled", number)}, lambda: self.bare_network(name)]
        return {way: one for turn in (turns if number % 2 else reversed(turns)) for way, one in turn().items()}

    def bare_network(self, name):
        ways = [way for way in WAYS if way != "scheduled"]
        command = self.command(name, "serial")
        command[-2] = ",".join(ways)
        said, failure = self.run(command)
        if said is None:
            return {way: {"failure": failure} for way in ways}
        lines = [json.loads(line) for line in said.splitlines()]
        return {line["way"]: of_network(line) for line in lines}

    def rounds(self):
        while not self.results["rounds"] or (not self.small and time.monotonic() - self.begun < self.seconds):
            number, round_ = len(self.results["rounds"]), {}
            for name in PUBLIC:
                ways = WAYS if number % 2 == 0 else list(reversed(WAYS))
                round_[name] = {way: self.turn(name, way, number) for way in ways}
            for name in [] if self.small else NETWORKS:
                round_[name] = self.network(name, number)
            self.results["rounds"].append(round_)
            self.save()
            print(f"round {number}, {time.monotonic() - self.begun:.0f} s", {name: {way: one.get("us", one) for way, one in ways.items()}
                                                                           for name, ways in round_.items()}, flush=True)

    def predictions(self):
        """A session of each program without an action, packed into the results' folder."""
        for name in [*PUBLIC, "six", *([] if self.small else NETWORKS)]:
            session = self.scratch / f"{name}-recorded"
            command = [self.folder / "schedule", "rows-try" if self.small else "rows-few", "serial"] if name == "six" else self.command(name, "serial")
            if name in PUBLIC:
                command = [command[0], *(word.format(steps=2 if self.small else 200) for word in PUBLIC[name]["arguments"])]
            elif name in NETWORKS:
                command[-1] = 10
            said, failure = self.run([*self.apex(session, "--code", "--timing", "all"), *command], WAY="serial")
            if said is not None:
                said, failure = self.run([self.folder / "apex", "pack", session, "-o", self.out / f"{name}.tar.gz"])
            self.results["predicted"][name] = None if said is not None else failure
            print("recorded", name, failure if said is None else "", flush=True)
        self.save()

    def actions(self):
        said, failure = self.run([self.folder / "memory_actions", 9], 60)
        self.results["actions"] = [json.loads(line) for line in said.splitlines()] if said else [{"failure": failure}]
        self.save()
        print(self.results["actions"], flush=True)


def measure(arguments):
    measurement = Measurement(arguments)
    measurement.save()
    measurement.random_programs()
    if not arguments.short:
        measurement.predictions()
        if not arguments.small:
            measurement.actions()
    measurement.rounds()
    print(tables(measurement.results))


def tables(results):
    lines = []
    for name in results["rounds"][0]:
        rounds = [one[name] for one in results["rounds"] if all("us" in one[name][way] for way in WAYS)]
        if not rounds:
            lines.append([name, *["failed"] * 10])
            continue
        times = {way: [one[way]["us"] for one in rounds] for way in WAYS}
        outputs = {one[way]["outputs"] for one in rounds for way in WAYS}
        against = [of_rounds(times[way], times["scheduled"]) for way in ("serial", "graph", "streams", "branches")]
        lines.append([name, str(len(rounds)), *(f"{median(times[way]):,.1f}" for way in WAYS), *against, "yes" if len(outputs) == 1 else "no"])
    header = ["program", "rounds", "one stream, µs", "`--fast=schedule`, µs", "graph, µs", "streams, µs", "graph of streams, µs",
              "schedule against one stream", "against the graph", "against streams", "against the graph of streams", "equal outputs"]
    return table(header, lines)


def actions_tables(results):
    managed = [one for one in results["actions"] if one.get("what") == "managed"]
    windows = [one for one in results["actions"] if one.get("what") == "window"]
    first = table(["buffers, MiB each", "without, µs", "prefetch of what is read, µs", "of what is written, too, µs", "gain"],
                  [[str(one["mib"]), f"{one['none_us']:,.0f}", f"{one['read_us']:,.0f}", f"{one['both_us']:,.0f}",
                    f"{one['none_us'] / min(one['read_us'], one['both_us']):.2f}"] for one in managed])
    second = table(["buffer, MiB", "passed over, MiB", "without, µs", "with a window, µs", "gain"],
                   [[str(one["mib"]), str(one["passed_mib"]), f"{one['none_us']:.1f}", f"{one['window_us']:.1f}",
                     f"{one['none_us'] / one['window_us']:.2f}"] for one in windows])
    return f"{first}\n{second}"


# Programs of the session `six` whose runs repeat as a whole, by the first kernel and the launches of a run's unit.
UNITS = {("gather", 8): "hits", ("square", 4): "squares", ("standardize", 6): "ensemble", ("convolve", 9): "network"}


def predict(arguments):
    for packed in sorted(arguments.folder.glob("*.tar.gz")):
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(["tar", "xzf", packed, "-C", scratch], check=True)
            session = next(path for path in Path(scratch).iterdir() if path.is_dir())
            said = subprocess.run([arguments.flows.resolve(), session], check=True, capture_output=True, text=True).stdout
        for line in said.splitlines():
            print(json.dumps({"session": packed.name.removesuffix(".tar.gz"), **json.loads(line)}))


def predicted_programs(lines):
    """The flows by program and size: of `six` the shorter ones are the small size; of the others the one with most time."""
    six = [line for line in lines if line["session"] == "six" and (line["first"], line["launches"]) in UNITS]
    for line in sorted(six, key=lambda line: line["serial_ns"]):
        name = UNITS[line["first"], line["launches"]]
        shorter = min(other["serial_ns"] for other in six if (other["first"], other["launches"]) == (line["first"], line["launches"]))
        yield name, "small" if line["serial_ns"] == shorter else "large", line
    for name in [*PUBLIC, *NETWORKS]:
        found = [line for line in lines if line["session"] == name]
        if found:
            yield name, "", found[0]


def gained(name, size, results, six):
    """The share of a one-stream graph's time that a graph with branches takes less."""
    if name in UNITS.values():
        scale = 1 if size == "small" else 2
        rounds = [line["us"] for line in six["lines"] if "us" in line and (line["program"], line["scale"]) == (name, scale)]
        return 1 - median([one["schedule"] for one in rounds]) / median([one["graph"] for one in rounds])
    rounds = [one[name] for one in results["rounds"]]
    return 1 - median([one["branches"]["us"] for one in rounds]) / median([one["graph"]["us"] for one in rounds])


def predicted_table(results, lines, six):
    rows = []
    for name, size, line in predicted_programs(lines):
        saved, most, real = line["saved"], line["saved_at_most"], gained(name, size, results, six)
        is_told = saved >= 0.1
        said = f"{90 * saved:.0f}% (0 to {100 * most:.0f}%)" if is_told else "less than 10%: no finding"
        holds = 0 <= real <= most if is_told else real < 0.1
        rows.append([f"{name} {size}".strip(), f"{line['launches']} / {line['chain']}", f"{line['serial_ns'] / 1e3:.1f}",
                     f"{line['chain_ns'] / 1e3:.1f}", said, f"{100 * real:.0f}%", "yes" if holds else "no"])
    header = ["program", "launches / longest chain", "kernel time, µs", "of the longest chain, µs", "predicted saving", "saved", "holds"]
    return table(header, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    preparing = commands.add_parser("prepare")
    preparing.add_argument("--hecbench", type=Path, required=True)
    preparing.add_argument("--out", type=Path, required=True)
    preparing.add_argument("--nvcc", default="nvcc")
    measuring = commands.add_parser("measure")
    measuring.add_argument("--folder", type=Path, required=True)
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--seconds", type=int, default=240)
    measuring.add_argument("--small", action="store_true")
    measuring.add_argument("--short", action="store_true")
    predicting = commands.add_parser("predict")
    predicting.add_argument("--flows", type=Path, required=True)
    predicting.add_argument("--folder", type=Path, required=True)
    for name in ("table", "actions-table"):
        commands.add_parser(name).add_argument("file", type=Path)
    comparing = commands.add_parser("predicted-table")
    for name in ("file", "predicted", "six"):
        comparing.add_argument(name, type=Path)
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        prepare(arguments)
    elif arguments.command == "measure":
        measure(arguments)
    elif arguments.command == "predict":
        predict(arguments)
    elif arguments.command == "predicted-table":
        lines = [json.loads(line) for line in arguments.predicted.read_text().splitlines()]
        print(predicted_table(read_results(arguments.file), lines, read_results(arguments.six)), end="")
    elif arguments.command == "table":
        print(tables(read_results(arguments.file)), end="")
    else:
        print(actions_tables(read_results(arguments.file)), end="")


if __name__ == "__main__":
    main()
