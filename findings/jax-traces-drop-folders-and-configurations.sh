#!/usr/bin/env bash
# The profiles of JAX 0.6.2 (jax.profiler.trace) name Python files without their folders, and write
# one run three times, of which one file is complete.
#
# Seen, and expected by this script; no GPU is needed:
#   frames of two files named step.py in two folders: `$step.py:1 run` for both, in trace.json.gz and
#   in xplane.pb
#   create_perfetto_trace=True leaves three files of the run: HOST.xplane.pb, HOST.trace.json.gz and
#   perfetto_trace.json.gz, the last two with the same events
#   the list of events in the JSON ends with an empty object, and a step's number is a text ("0")
# One would guess a path, as cProfile and torch.profiler have one, and that every event has a phase.
# A tool that reads a folder of JAX's profiles counts each run twice unless it knows the names, and
# cannot tell a program's core.py from JAX's. (The plane /host:metadata has modules of HLO with the
# paths of the operations' source files, and no frames. Grid, block and registers of
# kernels are in xplane.pb alone: XLA's conversion to JSON leaves `kernel_details` out.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  jax==0.6.2 jaxlib==0.6.2 numpy==2.4.6 scipy==1.17.1 ml_dtypes==0.6.0 opt_einsum==3.4.0
export PYTHONPATH=$folder/packages:$folder JAX_PLATFORMS=cpu
mkdir a b
for part in a b; do
  printf 'def run(f):\n    return f().block_until_ready()\n' >$part/step.py
done
cat >profile.py <<'P'
import glob, gzip, json, os
import jax, jax.numpy as jnp
import a.step, b.step

value = jnp.ones(8)
with jax.profiler.trace("log", create_perfetto_trace=True):
    with jax.profiler.StepTraceAnnotation("train", step_num=0):
        a.step.run(lambda: value + 1)
        b.step.run(lambda: value + 2)
files = sorted(glob.glob("log/plugins/profile/*/*"))
print([os.path.basename(file) for file in files])
[planes] = [file for file in files if file.endswith(".xplane.pb")]
traces = [json.loads(gzip.open(file).read())["traceEvents"] for file in files if file.endswith(".json.gz")]
assert len(files) == 3 and len(traces) == 2
named = lambda events: [event["name"] for event in events if event.get("ph") == "X"]
for events in traces:
    frames = [name for name in named(events) if "step.py" in name]
    print(frames, events[-1])
    assert frames == ["$step.py:1 run"] * 2 and events[-1] == {}
    [step] = [event for event in events if event.get("name") == "train"]
    assert step["args"] == {"step_num": "0"}
assert sorted(named(traces[0])) == sorted(named(traces[1]))
content = open(planes, "rb").read()
assert b"$step.py:1 run" in content
P
mv profile.py run_profile.py
python3 run_profile.py 2>/dev/null
