#!/usr/bin/env python3
"""Strategies of `apex tune --space` and of Kernel Tuner on measured spaces of the public hub.

Each space of the hub has the time of each of its configurations, so that a search is replayed
without a GPU. A strategy may try 5% of a space; its score is

    (random - found) / (random - optimum)

where `random` is the expected best of as many configurations drawn at random without repetition
(computed), and `found` what the strategy found. 0 is chance, 1 the optimum, and a single search may
score less than 0. Configurations that failed count as tried.

    cargo build --release -p apex-search --example replay
    python3 scripts/tune_spaces.py --replay target/release/examples/replay -o docs/results/tune-spaces.json

Kernel Tuner and the hub's files are fetched for the run (pip, git), in the versions below; --hub
names a copy of the hub's repository instead, and --packages a folder with Kernel Tuner's packages.
Kernel Tuner's strategies are called as `tune_kernel` calls them in its simulation mode, with one
search space for all seeds, because reading the files takes longer than a search.
"""

import argparse
import datetime
import gzip
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HUB = "https://github.com/AutoTuningAssociation/benchmark_hub"
COMMIT = "8eeb99e7179e6838af95d392ac6c60cebfd8c434"
PACKAGES = (
    "kernel-tuner==1.5.0 numpy==2.4.6 scipy==1.17.1 python-constraint2==2.9.0 packaging==26.4 "
    "jsonschema==4.26.0 jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1 "
    "attrs==26.1.0 typing_extensions==4.16.0 xmltodict==1.0.4"
).split()
CONVOLUTION, OLDER = (
    "cachefiles/convolution_milo",
    "currently_unused/cachefiles/KernelTuner data/gemm",
)
SPACES = {
    **{
        f"convolution, {d}": f"{CONVOLUTION}/{d}.json.gz"
        for d in ("A100", "A4000", "A6000", "MI250X", "W6600", "W7800")
    },
    **{f"GEMM, {d.replace('_', ' ')}": f"{OLDER}/{d}.json.gz" for d in ("RTX_2080_Ti", "RTX_3090")},
}
OURS = ("model", "descend")
THEIRS = (
    "random_sample genetic_algorithm greedy_ils mls pso dual_annealing simulated_annealing diff_evo "
    "firefly_algorithm basinhopping hybrid_vndx adaptive_tabu_greywolf"
).split()


class Space:
    """A space of the hub, as Kernel Tuner's cache file has it."""

    def __init__(self, name, text):
        self.name = name
        try:
            file = json.loads(text)
        except ValueError:  # Kernel Tuner leaves files open while a tuning runs.
            file = json.loads(text.rstrip().rstrip(",") + "}\n}")
        self.parameters, self.cache = file["tune_params"], file["cache"]
        times = (result.get("time") for result in self.cache.values())
        self.times = [t if isinstance(t, (int, float)) and t < 1e19 else math.inf for t in times]
        self.trials = max(1, round(len(self.times) * 0.05))
        self.optimum, self.random = min(self.times), self.expected_best()

    def expected_best(self):
        """The expected least time among `trials` that are drawn without repetition."""
        ordered, left, total = sorted(self.times), 1.0, 0.0
        for place, time in enumerate(ordered):
            drawn = min(1.0, self.trials / (len(ordered) - place))
            if math.isfinite(time):
                total += left * drawn * time
            left *= 1 - drawn
            if left < 1e-15:
                break
        return total

    def score(self, found):
        return (self.random - found) / (self.random - self.optimum)

    def write_t4(self, path):
        """The space as a T4 file."""
        results = []
        for result, time in zip(self.cache.values(), self.times):
            configuration = {name: result[name] for name in self.parameters}
            is_good = math.isfinite(time)
            measured = [{"name": "time", "value": time, "unit": "ms"}] if is_good else []
            invalidity = "correct" if is_good else "runtime"
            results.append(
                {"configuration": configuration, "times": {}, "invalidity": invalidity, "correctness": int(is_good),
                 "measurements": measured, "objectives": ["time"]}
            )  # fmt: skip
        metadata = {"timeunit": "milliseconds"}
        path.write_text(
            json.dumps({"schema_version": "1.0.0", "metadata": metadata, "results": results})
        )


def ours(replay, space, t4, strategy, seeds):
    """What searches of APEX find, one for each seed, in milliseconds."""
    command = [replay, str(t4), strategy, str(space.trials), str(seeds)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return [math.inf if time is None else time for time in found]


def theirs(space, strategy, seeds):
    """What searches of Kernel Tuner find, one for each seed, in milliseconds."""
    import numpy
    from kernel_tuner import interface, util
    from kernel_tuner.runners.runner import Runner
    from kernel_tuner.searchspace import Searchspace

    class Replay(Runner):
        """As Kernel Tuner's simulation runner, without what is printed and timed."""

        def __init__(self, cache):
            super().__init__()
            self.cache, self.visited = cache, set()

        def get_device_info(self):
            return None

        def get_environment(self, tuning_options):
            return {}

        def run(self, parameter_space, tuning_options):
            results = []
            for element in parameter_space:
                key = ",".join(str(value) for value in element)
                if tuning_options.budget.is_done():
                    results.append(None)
                    continue
                if key not in self.visited:
                    self.visited.add(key)
                    tuning_options.budget.add_evaluations(1)
                results.append(dict(self.cache[key]))
            return results

    times = dict(zip(space.cache, space.times))
    cache = {}
    for key, result in space.cache.items():
        cache[key] = {name: result[name] for name in space.parameters} | {
            "time": result.get("time")
        }
        if not math.isfinite(times[key]):
            cache[key]["__error__"] = cache[key]["time"] = util.RuntimeFailedConfig()
    from_cache = {"tune_params": space.parameters, "cache": cache}
    searchspace = Searchspace(None, None, None, from_cache=from_cache)
    assert searchspace.size == len(space.times)
    found = []
    for seed in seeds:
        random.seed(seed)
        numpy.random.seed(seed)
        options = {name: None for name in interface._tuning_options}
        options |= {
            "objective": ["time"], "objective_higher_is_better": [False], "verbose": False, "cache": {}, "metrics": {},
            "strategy_options": interface.Options({"max_fevals": space.trials}), "simulation_mode": True,
            "tune_params": space.parameters, "restrictions": None, "quiet": True,
            "budget": util.TuningBudget(None, space.trials),
        }  # fmt: skip
        runner = Replay(cache)
        interface.strategy_map[strategy].tune(searchspace, runner, interface.Options(options))
        assert len(runner.visited) <= space.trials
        found.append(min((times[key] for key in runner.visited), default=math.inf))
    return found


def summary(space, found):
    """Mean score with its standard error; a search that finds nothing has the median time."""
    median = statistics.median(time for time in space.times if math.isfinite(time))
    scores = [space.score(time if math.isfinite(time) else median) for time in found]
    error = statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None
    return {
        "score": round(statistics.mean(scores), 3),
        "error": round(error, 3) if error is not None else None,
    }


def table(spaces):
    """A row for each space, a column for each strategy; the best score of a row is bold."""
    strategies = list(
        dict.fromkeys(name for space in spaces.values() for name in space["strategies"])
    )
    strategies.sort(key=lambda name: not name.startswith("apex"))
    print(
        "| space | configurations | trials |", " | ".join(f"`{name}`" for name in strategies), "|"
    )
    print("| --- | ---: | ---: |", " | ".join("---:" for _ in strategies), "|")
    for name, space in spaces.items():
        scores = space["strategies"]
        best = max(score["score"] for score in scores.values())
        cells = []
        for strategy in strategies:
            found = scores.get(strategy)
            text = "" if found is None else f"{found['score']:.2f} ± {found['error']:.2f}"
            cells.append(f"**{text}**" if found and found["score"] == best else text)
        print(
            f"| {name} | {space['configurations']:,} | {space['trials']:,} |",
            " | ".join(cells),
            "|",
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--replay", help="the example of apex-search; without it, Kernel Tuner alone"
    )
    parser.add_argument("--ours", nargs="*", default=OURS, help="strategies of APEX")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--hub", help="a git repository with the hub's commit")
    parser.add_argument("--packages", help="a folder with Kernel Tuner's packages")
    parser.add_argument("--spaces", nargs="*", default=list(SPACES))
    parser.add_argument("--theirs", nargs="*", default=THEIRS, help="Kernel Tuner's strategies")
    parser.add_argument(
        "--table", help="print the scores of this file as a table, and search nothing"
    )
    parser.add_argument(
        "-o", "--output", help="the file of the scores; those of other strategies in it stay"
    )
    arguments = parser.parse_args()
    if arguments.table:
        return table(json.loads(Path(arguments.table).read_text())["spaces"])
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if arguments.theirs and not arguments.packages:
            arguments.packages = str(folder / "packages")
            pip = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                arguments.packages,
            ]
            subprocess.run([*pip, *PACKAGES], check=True)
        sys.path.insert(0, arguments.packages or "")
        hub = arguments.hub or str(folder / "hub")
        if not arguments.hub:
            subprocess.run(
                ["git", "clone", "--quiet", "--filter=blob:none", "--no-checkout", HUB, hub],
                check=True,
            )
        run(arguments, hub, folder)


def run(arguments, hub, folder):
    path = arguments.output and Path(arguments.output)
    kept = json.loads(path.read_text())["spaces"] if path and path.exists() else {}
    for name in arguments.spaces:
        show = ["git", "-C", hub, "show", f"{COMMIT}:{SPACES[name]}"]
        space = Space(name, gzip.decompress(subprocess.check_output(show)).decode())
        scores = kept.get(name, {}).get("strategies", {})
        if arguments.replay:
            t4 = folder / "t4.json"
            space.write_t4(t4)
            for strategy in arguments.ours:
                found = ours(arguments.replay, space, t4, strategy, arguments.seeds)
                scores[f"apex {strategy}"] = summary(space, found)
                print(name, strategy, scores[f"apex {strategy}"], flush=True)
        for strategy in arguments.theirs:
            scores[strategy] = summary(space, theirs(space, strategy, range(arguments.seeds)))
            print(name, strategy, scores[strategy], flush=True)
        kept[name] = {
            "configurations": len(space.times),
            "trials": space.trials,
            "strategies": scores,
        }
        if path:
            head = {"date": datetime.date.today().isoformat(), "command": "scripts/tune_spaces.py",
                    "hub": COMMIT, "kernel_tuner": "1.5.0", "seeds": arguments.seeds}  # fmt: skip
            path.write_text(json.dumps(head | {"spaces": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
