#!/usr/bin/env bash
# Triton 3.9.0 (PyPI: triton) reads TRITON_DEBUG once, when it is imported, and its other variables at each use.
#
# Seen, and expected by this script; no GPU or driver is needed:
#   os.environ["TRITON_DEBUG"] = "1" after `import triton`   changes nothing
#   the same for TRITON_INTERPRET, TRITON_ALWAYS_COMPILE, TRITON_KERNEL_DUMP and TRITON_CACHE_AUTOTUNING   takes effect
#   true are 1, true, on, yes and y, in upper and lower case; 2 is false
# One would guess that all are read at the same time, and that a number other than 0 is true.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages triton==3.9.0
export PYTHONPATH=$folder/packages
env -u TRITON_DEBUG python3 - <<'P'
import os

import triton
from triton import knobs

late = {
    "TRITON_DEBUG": lambda: knobs.runtime.debug,
    "TRITON_INTERPRET": lambda: knobs.runtime.interpret,
    "TRITON_ALWAYS_COMPILE": lambda: knobs.compilation.always_compile,
    "TRITON_KERNEL_DUMP": lambda: knobs.compilation.dump_ir,
    "TRITON_CACHE_AUTOTUNING": lambda: knobs.autotuning.cache,
}
print("Triton", triton.__version__)
for name, read in late.items():
    os.environ[name] = "1"
    print(f"{name}=1 after the import: {read()}")
    assert read() == (name != "TRITON_DEBUG")
for text in ("1", "true", "TRUE", "on", "yes", "y", "2", "0"):
    os.environ["TRITON_ALWAYS_COMPILE"] = text
    value = knobs.compilation.always_compile
    print(f"TRITON_ALWAYS_COMPILE={text}: {value}")
    assert value == (text not in ("2", "0"))
P
