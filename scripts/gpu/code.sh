#!/usr/bin/env bash
# How good are predictions of sessions that were recorded with --code?
#
#   scripts/gpu/code.sh [OUT]      # APEX_BIN: folder of apex and its libraries (default: target/release)
#
# Records programs of nvcc, CuPy, Triton and PyTorch, and writes OUT/code.json and OUT/code.md: for how much of the GPU time
# the basis is `work`, of each kernel the predicted beside the measured duration, and of kernels with machine code alone where
# its tables differ from what the driver says. DEVICE=cpu records on the CPU device and
# predicts for an H200 (a test of this script: nothing is measured then).
device=${DEVICE:-gpu}
if [ "$device" != gpu ]; then
  # There need be no driver.
  export LIBCUDA=none COMPUTE_CAPABILITY=8.0
fi
source "$(dirname "$0")/common.sh"
apex=${APEX_BIN-$here/../../target/release}/apex
scale=8 side=4096 code="-arch=$arch"
[ "$device" = gpu ] || scale=1 side=256 code="-arch=compute_80 -code=compute_80"
python=${PYTHON:-python3}
"$nvcc" $code -O2 -o "$build/code" "$programs/code.cu"

sessions=()
record() { # NAME COMMAND...
  local name=$1
  shift
  echo "== $name"
  "$apex" run --device "$device" --timing all --code --quiet -o "$build/$name" -- "$@"
  sessions+=("$build/$name")
}
has() { "$python" -c "import $1" 2>/dev/null || { echo "no $1: left out"; return 1; }; }

record nvcc "$build/code" "$scale"
if has cupy; then
  # CuPy compiles to machine code otherwise, which tells nothing of what launches execute.
  CUPY_CACHE_DIR=$build/cupy CUPY_COMPILE_WITH_PTX=1 record cupy "$python" "$programs/code_cupy.py" "$side"
fi
if [ "$device" = gpu ] && has triton; then
  export TRITON_CACHE_DIR=$build/triton
  record triton "$python" "$programs/code_triton.py" "$side"
fi
if [ "$device" = gpu ] && has torch; then
  record torch "$python" -c 'import torch
x = torch.randn(4096, 4096, device="cuda")
for _ in range(50): x = torch.nn.functional.gelu(x @ x * 1e-3).softmax(-1)
torch.cuda.synchronize()'
fi
"$python" "$here/code.py" --apex "$apex" --out "$out" $([ "$device" = gpu ] || echo --device h200) "${sessions[@]}"
