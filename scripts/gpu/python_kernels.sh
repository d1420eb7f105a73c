#!/usr/bin/env bash
# The module apex_cuda.kernels with PyTorch on a GPU: scripts/gpu/python_kernels.py, and CuPy's
# client where CuPy is installed.
#
#   scripts/gpu/python_kernels.sh [OUT]
#
# APEX_LIB_DIR: folder of libapex_kernels_c.so (default: target/release).
#
# It needs PyTorch, and the library that `cargo build --release -p apex-kernels-c` makes. DEVICE=cpu
# tries it without a GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-${OUT:-out}}
mkdir -p "$out"
APEX_LIB_DIR=$(cd "${APEX_LIB_DIR:-target/release}" && pwd)
export APEX_LIB_DIR PYTHONPATH=python:scripts/gpu PYTHONDONTWRITEBYTECODE=1
python3 scripts/gpu/python_kernels.py "$out" | tee "$out/python-kernels.txt"
[ "${DEVICE:-cuda}" = cuda ] || exit 0
if python3 -c "import cupy" 2>/dev/null; then
  python3 crates/cli/tests/clients/python/kernels_client.py | tee "$out/python-kernels-cupy.txt"
fi
