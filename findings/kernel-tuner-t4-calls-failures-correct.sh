#!/usr/bin/env bash
# Kernel Tuner 1.5.0 (PyPI: kernel-tuner) writes T4 files in which a configuration that does not
# compile has "correctness" 1.
#
# Seen, and expected by this script, which replays a cache file; no GPU or driver is needed:
#   "correctness"    is 1 for each configuration, those with "invalidity" compile and runtime
#                    included
#   "measurements"   of these have no time, but an entry "__error__" with the value ""; their
#                    "objectives" are ["time"]
#   "unit"           is "ms" for a user's metric "times_faster", which is a ratio, because its name
#                    begins with "time"; it is "" for "milliseconds_per_item"
# One would guess that something that never ran is not correct, that a measurement is a number, and
# that units come from the user or are absent.
# A tool that learns from T4 files must filter by "invalidity", check the type of each value, and
# ignore "unit".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  kernel-tuner==1.5.0 numpy==2.4.6 scipy==1.17.1 python-constraint2==2.9.0 packaging==26.4 \
  jsonschema==4.26.0 jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1 \
  attrs==26.1.0 typing_extensions==4.16.0 xmltodict==1.0.4
export PYTHONPATH=$folder/packages
cat >replay.py <<'P'
import json
import kernel_tuner
from kernel_tuner.file_utils import store_output_file

PHASES = ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time")
RESULTS = [
    {"time": 2.0, "times": [2.0, 2.0]},
    {"__error__": "CompilationFailedConfig"},
    {"__error__": "RuntimeFailedConfig"},
]
rest = {**dict.fromkeys(PHASES, 1.0), "timestamp": "2026-01-01"}
cache = {str(i): {"tile": i, **result, **rest} for i, result in enumerate(RESULTS)}
tune_params = {"tile": [0, 1, 2]}
header = {"device_name": "a GPU", "kernel_name": "k", "problem_size": [1], "tune_params_keys": ["tile"]}
with open("cache.json", "w") as file:
    json.dump(header | {"tune_params": tune_params, "objective": "time", "cache": cache}, file, indent=0)
results, _ = kernel_tuner.tune_kernel(
    "k", "__global__ void k() {}", 1, [], tune_params, lang="CUDA",
    simulation_mode=True, cache="cache.json", quiet=True,
    metrics={
        "times_faster": lambda p: 8 / p["time"],
        "milliseconds_per_item": lambda p: p["time"] / 16,
    },
)  # fmt: skip
store_output_file("t4.json", results, tune_params)
with open("t4.json") as file:
    written = json.load(file)["results"]
for result in written:
    print({key: value for key, value in result.items() if key not in ("times", "timestamp")})
good, *failed = written
assert {m["name"]: (m["value"], m["unit"]) for m in good["measurements"]} == {
    "time": (2.0, "ms"), "times_faster": (4.0, "ms"), "milliseconds_per_item": (0.125, ""),
}  # fmt: skip
assert [result["invalidity"] for result in failed] == ["compile", "runtime"]
for result in failed:
    assert result["correctness"] == 1 and result["objectives"] == ["time"]
    assert result["measurements"] == [{"name": "__error__", "value": "", "unit": ""}]
P
python3 -W ignore replay.py
