#!/usr/bin/env bash
# Compiles the bundled programs' and the tensors' device code to the PTX that is checked in beside it.
#
#   scripts/ptx.sh            # writes the .ptx beside each .cu of crates/demo and crates/gpu
#   scripts/ptx.sh --check    # writes nothing; fails and names each file that is not what its source compiles to
#
# The compiler is NVRTC, fetched from PyPI at a pinned version and kept in target/. CUDA 12.0 emits `.version 8.0`, which
# every driver since 12.0 takes, and compute_75 runs on every GPU since Turing.
set -euo pipefail

wheel=nvidia-cuda-nvrtc-cu12==12.0.140
architecture=compute_75

fail() {
  echo "ptx: $*" >&2
  exit 1
}

cd "$(dirname "$0")/.."
case "${1:-}" in
  "") check=false ;;
  --check) check=true ;;
  *) fail "usage: scripts/ptx.sh [--check]" ;;
esac
python=$(command -v python3) || fail "python3 with pip is needed to fetch NVRTC"

compiler=${CARGO_TARGET_DIR:-target}/nvrtc/${wheel#*==}
library=$compiler/nvidia/cuda_nvrtc/lib/libnvrtc.so.12
if [ ! -e "$library" ]; then
  "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile \
    --only-binary=:all: --target "$compiler" "$wheel" || fail "pip could not fetch $wheel"
fi

stale=0
for source in crates/demo/kernels/*.cu crates/gpu/{kernels,examples}/*.cu; do
  ptx=${source%.cu}.ptx
  # Line information lets reports name source lines. Kernels of a library are not their users' to change.
  case $source in crates/gpu/kernels/*) lines=() ;; *) lines=(--generate-line-info) ;; esac
  fresh=$("$python" scripts/nvrtc_compile.py "$library" "$architecture" "$source" "${lines[@]}")
  if ! $check; then
    printf '%s\n' "$fresh" >"$ptx"
  elif [ ! -f "$ptx" ] || [ "$fresh" != "$(cat "$ptx")" ]; then
    echo "ptx: $ptx is not what $source compiles to: run scripts/ptx.sh" >&2
    stale=1
  fi
done
exit $stale
