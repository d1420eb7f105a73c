#!/usr/bin/env bash
# jax 0.10.2 (PyPI: jax) writes the arguments of a jax.profiler.TraceAnnotation as text that its own
# reader takes apart.
#
# Seen, and expected by this script; no GPU or driver is needed:
#   text="batch=3,lr=0.1"   is read as two arguments: text is "batch=3", lr is 0.1
#   text="a,b" and "a#b"    are read as "a"; "f32[2,3]", "(2, 3)" and '"q,r"' stay as they are
#   text="1,000"            is the number 1
#   a name "layer#3#"       is shortened to "layer", while "layer#3" keeps its name
# One would guess that values are escaped. Both files, the .xplane.pb and the .trace.json.gz, have
# the same arguments.
# A profiler that reads these files cannot trust that the value of an argument is complete, or that
# the program gave that argument.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --target packages jax==0.10.2 jaxlib==0.10.2
export PYTHONPATH=$folder/packages
JAX_PLATFORMS=cpu python3 - <<'P'
import glob, gzip, json
import jax

ARGUMENTS = {
    "settings": {"text": "batch=3,lr=0.1"},
    "comma": {"text": "a,b"},
    "hash": {"text": "a#b"},
    "brackets": {"text": "f32[2,3]"},
    "parentheses": {"text": "(2, 3)"},
    "quotes": {"text": '"q,r"'},
    "thousands": {"text": "1,000"},
    "layer#3": {},
    "layer#4#": {},
}
with jax.profiler.trace("trace"):
    for name, arguments in ARGUMENTS.items():
        with jax.profiler.TraceAnnotation("my " + name, **arguments):
            pass
(path,) = glob.glob("trace/**/*.xplane.pb", recursive=True)
planes = jax.profiler.ProfileData.from_file(path).planes
found = [event for plane in planes for line in plane.lines for event in line.events]
binary = {event.name: dict(event.stats) for event in found if event.name.startswith("my ")}
(path,) = glob.glob("trace/**/*.trace.json.gz", recursive=True)
events = json.load(gzip.open(path))["traceEvents"]
text = {e["name"]: e.get("args") for e in events if e.get("ph") == "X"}
for name, arguments in binary.items():
    print(f"{name}: {ARGUMENTS.get(name[3:])} became {arguments}")
assert binary["my settings"] == {"text": "batch=3", "lr": 0.1}
assert binary["my comma"] == binary["my hash"] == {"text": "a"}
for kept in ("brackets", "parentheses", "quotes"):
    assert binary["my " + kept] == ARGUMENTS[kept]
assert binary["my thousands"] == {"text": 1}
assert {"text": "batch=3", "lr": "0.1"}.items() <= text["my settings"].items()
assert "my layer#3" in binary and "my layer" in binary and "my layer#4#" not in binary
P
