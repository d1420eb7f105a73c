#!/usr/bin/env bash
# Compiles the kernels under crates/cpu-device/tests/nvcc to the PTX that is checked in beside them.
#
#   scripts/nvcc-ptx.sh            # writes crates/cpu-device/tests/nvcc/*.ptx
#   scripts/nvcc-ptx.sh --check    # writes nothing; fails and names each file that is not what its source compiles to
#
# The compiler is nvcc with libcu++, as scripts/cuda-toolchain.sh installs it in target/: the kernels use what NVRTC
# has no headers for. `NVCC` names another one.
set -euo pipefail

fail() {
  echo "nvcc-ptx: $*" >&2
  exit 1
}

cd "$(dirname "$0")/.."
case "${1:-}" in
  "") check=false ;;
  --check) check=true ;;
  *) fail "usage: scripts/nvcc-ptx.sh [--check]" ;;
esac
nvcc=${NVCC:-}
if [ -z "$nvcc" ]; then
  toolchain=${CARGO_TARGET_DIR:-target}/cuda-toolchain
  scripts/cuda-toolchain.sh "$toolchain"
  nvcc=$toolchain/bin/nvcc
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stale=0
for source in crates/cpu-device/tests/nvcc/*.cu; do
  for architecture in sm_80 sm_90; do
    ptx=${source%.cu}.$architecture.ptx
    "$nvcc" -std=c++17 -ptx -arch="$architecture" -o "$work/fresh.ptx" "$source"
    if ! $check; then
      cp "$work/fresh.ptx" "$ptx"
    elif ! cmp -s "$work/fresh.ptx" "$ptx"; then
      echo "nvcc-ptx: $ptx is not what $source compiles to: run scripts/nvcc-ptx.sh" >&2
      stale=1
    fi
  done
done
exit $stale
