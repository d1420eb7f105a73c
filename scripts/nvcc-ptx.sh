#!/usr/bin/env bash
# Compiles the kernels under crates/ptx-exec/tests/nvcc, crates/cpu-device/tests/rdc and crates/device-code/suite to
# the PTX that is checked in beside them.
#
#   scripts/nvcc-ptx.sh            # writes *.ptx beside the sources
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
# compile SOURCE ARCHITECTURE PTX [OPTION...]
compile() {
  "$nvcc" -std=c++17 -ptx -arch="$2" "${@:4}" -o "$work/fresh.ptx" "$1"
  if ! $check; then
    cp "$work/fresh.ptx" "$3"
  elif ! cmp -s "$work/fresh.ptx" "$3"; then
    echo "nvcc-ptx: $3 is not what $1 compiles to: run scripts/nvcc-ptx.sh" >&2
    stale=1
  fi
}
for source in crates/ptx-exec/tests/nvcc/*.cu; do
  for architecture in sm_80 sm_90; do
    compile "$source" "$architecture" "${source%.cu}.$architecture.ptx"
  done
done
# The device runtime is there for separately compiled programs only.
for source in crates/cpu-device/tests/rdc/*.cu; do
  compile "$source" sm_80 "${source%.cu}.ptx" -rdc=true
done
for source in crates/device-code/suite/*.cu; do
  compile "$source" sm_80 "${source%.cu}.ptx"
done
exit $stale
