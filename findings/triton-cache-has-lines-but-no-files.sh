#!/usr/bin/env bash
# Triton 3.9.0 (PyPI: triton) identifies a kernel by its text and its line number, but not by its
# file.
#
# Seen, and expected by this script; no GPU or driver is needed:
#   equal kernels on the same line of two files
#       have one cache entry: the PTX of second.py names first.py as its file
#   the same kernel one line further down
#       has another hash, and is compiled again
#   the same with TRITON_DISABLE_LINE_INFO=1
#       has another hash too, although its PTX and its cubin are the same bytes
# One would guess that the line info names the file of the kernel that was compiled, and that a line
# number which does not reach the output is not part of the key.
# A profiler that maps samples to source lines can therefore show a file that the program does not
# contain, and a tuner that stores results under Triton's hash loses them when somebody adds a
# comment above the kernel.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages triton==3.9.0
export PYTHONPATH=$folder/packages TRITON_DEFAULT_FP_FUSION=1
cat >first.py <<'P'
import triton, triton.language as tl


@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
P
cp first.py second.py
sed '1a # a comment' first.py >lower.py
cat >compile.py <<'P'
import importlib, json, re, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

seen = {}
for name in ("first", "second", "lower"):
    source = ASTSource(
        fn=importlib.import_module(name).scale,
        signature={"x": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={(2,): 128},
    )
    kernel = triton.compile(source, target=GPUTarget("cuda", 80, 32))
    files = re.findall(r'\.file\s+1 "[^"]*?(\w+\.py)"', kernel.asm["ptx"])
    print(f"{name}.py: hash {kernel.hash[:12]}, files of the PTX: {files}")
    seen[name] = kernel.hash, files, kernel.asm["ptx"], kernel.asm["cubin"]
first, second, lower = seen["first"], seen["second"], seen["lower"]
assert first[0] == second[0] and first[0] != lower[0]
if sys.argv[1] == "lines":
    assert first[1] == second[1] == ["first.py"] and lower[1] == ["lower.py"]
else:
    assert first[2:] == lower[2:]
    print("the PTX and the cubin of first.py and lower.py are equal")
P
TRITON_CACHE_DIR=$folder/lines python3 compile.py lines
TRITON_CACHE_DIR=$folder/none TRITON_DISABLE_LINE_INFO=1 python3 compile.py none
