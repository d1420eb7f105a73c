#!/usr/bin/env bash
# Compiles the CUDA C++ of the repository (but for crates/kernels/kernels: scripts/kernels.sh) to the PTX that is checked in.
#
#   scripts/device-code.sh            # writes the PTX and crates/device/device-code/generated/manifest.txt
#   scripts/device-code.sh --check    # writes nothing; fails and names each file that is not what its source compiles to
#   scripts/device-code.sh --tools    # installs what it needs besides nvcc, and ends
#
# Two compilers make it. NVRTC 12.0 compiles what must run on every GPU since Turing with every driver since CUDA 12.0: it
# emits `.version 8.0`. nvcc (scripts/nvcc) compiles what needs a later PTX or libcu++. Files that end in `.zst` are compressed.
#
# Each line of the manifest is one output: its path, the SHA-256 of its PTX, the source, the compiler, the flags, and the
# SHA-256 of the source and of each header beside it. The crate test-manifest compares.
#
# NVRTC and the compressor (scripts/zstd) come from PyPI at pinned versions; the variable DEVICE_CODE_TOOLS names the folder
# that keeps them.
set -euo pipefail

nvrtc=nvidia-cuda-nvrtc-cu12==12.0.140
generated=crates/device/device-code/generated

fail() {
  echo "device-code: $*" >&2
  exit 1
}

cd "$(dirname "$0")/.."
mode=${1:-write}
case $#-$mode in
  0-write | 1---check | 1---tools) ;;
  *) fail "usage: scripts/device-code.sh [--check|--tools]" ;;
esac
python=$(command -v python3) || fail "python3 with pip is needed to fetch NVRTC"
tools=${DEVICE_CODE_TOOLS:-${CARGO_TARGET_DIR:-target}/device-code}

export DEVICE_CODE_TOOLS=$tools

if [ ! -d "$tools/$nvrtc" ]; then
  rm -rf "$tools/$nvrtc.part"
  "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile \
    --only-binary=:all: --target "$tools/$nvrtc.part" "$nvrtc" || fail "pip could not fetch $nvrtc"
  mv "$tools/$nvrtc.part" "$tools/$nvrtc"
fi
scripts/zstd --tools
[ "$mode" != --tools ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stale=0
cores=$(nproc)

# sums FILE...: their SHA-256, each followed by a space.
sums() { sha256sum "$@" | cut -d' ' -f1 | tr '\n' ' '; }

# text FILE: the PTX of a checked-in file.
text() {
  case $1 in
    *.zst) scripts/zstd decompress <"$1" ;;
    *) cat "$1" ;;
  esac
}

# keep OUTPUT PTX: PTX is what this file should hold: compares, or writes where it differs.
keep() {
  if [ -f "$1" ] && text "$1" | cmp -s - "$2"; then
    return
  elif [ "$mode" = --check ]; then
    echo "device-code: $1 is not what its source compiles to: run scripts/device-code.sh" >&2
    return 1
  else
    mkdir -p "$(dirname "$1")"
    case $1 in
      *.zst) scripts/zstd compress <"$2" >"$1" ;;
      *) cp "$2" "$1" ;;
    esac
  fi
}

# compile LINE COMPILER SOURCE OUTPUT FLAG...: LINE is the file that the output's line of the manifest goes to.
compile() {
  local line=$1 ptx=$1.ptx compiler=$2 source=$3 output=$4
  shift 4
  case $compiler in
    nvcc) scripts/nvcc -std=c++17 -ptx "$@" -o "$ptx" "$source" ;;
    nvrtc) "$python" scripts/nvrtc_compile.py "$tools/$nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12" "$@" "$source" >"$ptx" ;;
  esac || fail "$source does not compile"
  local version=${versions[$compiler]} headers
  headers=$(find "$(dirname "$source")" -maxdepth 1 -name '*.cuh' | sort)
  # shellcheck disable=SC2086 # a list of names without blanks
  echo "$output $(sums "$ptx")$source $version $(echo "$*" | tr ' ' ,) $(sums "$source" $headers)" | sed 's/ $//' >"$line"
  keep "$output" "$ptx"
}

# start COMPILER SOURCE OUTPUT FLAG...: compiles in the background, in as many processes at a time as there are cores.
pids=() finished=0
start() {
  if [ $((${#pids[@]} - finished)) -ge "$cores" ]; then
    finish
  fi
  compile "$(printf '%s/%04d' "$work" ${#pids[@]})" "$@" &
  pids+=($!)
}

# finish: waits for the oldest process.
finish() {
  wait "${pids[$finished]}" || stale=1
  finished=$((finished + 1))
}

# name SOURCE: its name without folder and extension.
name() { basename "$1" .cu; }

declare -A versions=([nvrtc]=nvrtc-${nvrtc#*==} [nvcc]=nvcc-$(scripts/nvcc --version | sed -n 's/.* V//p'))
for source in crates/device/device-code/suite/*.cu; do
  start nvcc "$source" "$generated/suite/$(name "$source").ptx.zst" -arch=sm_80
done
for source in crates/device/device-code/tensors/*.cu; do
  start nvrtc "$source" "$generated/tensors/$(name "$source").ptx.zst" --gpu-architecture=compute_75
done
# Line information lets reports name the source lines of programs.
for source in crates/device/device-code/demo/*.cu; do
  start nvrtc "$source" "$generated/demo/$(name "$source").ptx" --gpu-architecture=compute_75 --generate-line-info
done
for source in crates/kernels/gpu/examples/*.cu; do
  start nvrtc "$source" "${source%.cu}.ptx" --gpu-architecture=compute_75 --generate-line-info
done
for source in crates/ptx/ptx-exec/tests/nvcc/*.cu; do
  for architecture in sm_80 sm_90; do
    start nvcc "$source" "${source%.cu}.$architecture.ptx" "-arch=$architecture"
  done
done
# The device runtime is there for separately compiled programs only.
for source in crates/device/cpu-device/tests/rdc/*.cu; do
  start nvcc "$source" "${source%.cu}.ptx" -arch=sm_80 -rdc=true
done
while [ "$finished" -lt ${#pids[@]} ]; do
  finish
done
cat "$work"/[0-9][0-9][0-9][0-9] >"$work/manifest"

if [ "$mode" = write ]; then
  [ "$stale" = 0 ] || fail "$generated/manifest.txt is left as it was"
  cp "$work/manifest" "$generated/manifest.txt"
elif ! cmp -s "$work/manifest" "$generated/manifest.txt"; then
  diff "$generated/manifest.txt" "$work/manifest" >&2 || true
  echo "device-code: $generated/manifest.txt is not what the script writes: run scripts/device-code.sh" >&2
  stale=1
fi
exit $stale
