#!/usr/bin/env bash
# T4 in and out, against Kernel Tuner 1.5.0 (PyPI) and the schema that it brings: results of
# `apex tune` are valid, results of Kernel Tuner are replayed, and its T1 files are read. No GPU.
#
#     scripts/check_t4.sh target/release/apex
set -euo pipefail
apex=$(realpath "${1:?the command apex}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  kernel-tuner==1.5.0 numpy==2.4.6 scipy==1.17.1 python-constraint2==2.9.0 packaging==26.4 \
  jsonschema==4.26.0 jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1 \
  attrs==26.1.0 typing_extensions==4.16.0 xmltodict==1.0.4
export PYTHONPATH=$folder/packages

cat >space.json <<'J'
{"ConfigurationSpace": {"TuningParameters": [
   {"Name": "block_size_x", "Type": "int", "Values": "[32 * i for i in range(1, 9)]", "Default": 64},
   {"Name": "tile", "Type": "int", "Values": "[1, 2, 4]", "Default": 1}],
  "Conditions": [{"Expression": "block_size_x * tile <= 512", "Parameters": ["block_size_x", "tile"]}]},
 "KernelSpecification": {"Language": "CUDA", "KernelName": "k", "KernelFile": "k.cu",
  "GlobalSize": {"X": "1"}, "LocalSize": {"X": "block_size_x"}}}
J
# shellcheck disable=SC2016 # the program's own variables
"$apex" tune --space space.json --trials 100% --json -- \
  sh -c '[ "$tile" != 4 ] || exit 1; echo $((block_size_x / tile))' >found.json

cat >check.py <<'P'
import json
from pathlib import Path
import jsonschema
from kernel_tuner import file_utils, interface, util

file_utils.get_input_file(Path("space.json"))
_, schema = file_utils.output_file_schema("results")
ours = json.loads(Path("space.results.json").read_text())
jsonschema.validate(ours, schema)
found = json.loads(Path("found.json").read_text())
assert found["best"]["configuration"] == {"block_size_x": 32, "tile": 2}, found
assert {r["invalidity"] for r in ours["results"]} == {"correct", "runtime"}
assert found["configurations"] == len(ours["results"]) == 8 + 8 + 4

phases = ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time")
rest = dict.fromkeys(phases, 1.0) | {"timestamp": "2026-01-01"}
theirs = [
    {"tile": 1, "time": 2.0, "times": [2.0, 2.0]} | rest,
    {"tile": 2, "time": 1.5, "times": [1.0, 2.0]} | rest,
    {"tile": 4, "time": util.CompilationFailedConfig(), "__error__": util.CompilationFailedConfig()} | rest,
]
file_utils.store_output_file("theirs.json", theirs, {"tile": [1, 2, 4]})
jsonschema.validate(json.loads(Path("theirs.json").read_text()), schema)
P
python3 -W ignore check.py
"$apex" tune --replay theirs.json --json >replayed.json
python3 - <<'P'
import json
replayed = json.load(open("replayed.json"))
assert replayed["best"] == {"configuration": {"tile": 2}, "time_ms": 1.5}, replayed
assert replayed["failed"] == {"compile": 1} and replayed["configurations"] == 3
P
echo "T4 and T1 files are exchanged with Kernel Tuner 1.5.0."
