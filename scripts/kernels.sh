#!/usr/bin/env bash
# Compiles the kernels of crates/kernels/kernels to what is checked in beside them, and reads the compiler's report.
#
#   scripts/kernels.sh            # writes crates/kernels/kernels/binaries
#   scripts/kernels.sh --check    # writes nothing; fails and names each file that is not what its source compiles to
#
# Portable kernels become PTX for sm_80; outputs that end in `.zst` are compressed. Hopper's become one fat binary for each pass
# and head dimension: machine code for sm_90a, compressed, and PTX beside it for drivers that know no such machine code. The
# script fails when ptxas warns (it does where it makes wgmma wait) or when a kernel spills registers.
#
# `manifest.txt` has the lines that scripts/device-code.sh describes; a test compares. The compiler is scripts/nvcc, the
# compressor scripts/zstd.
set -euo pipefail

fail() {
  echo "kernels: $*" >&2
  exit 1
}

cd "$(dirname "$0")/.."
case "${1:-}" in
  "") check=false ;;
  --check) check=true ;;
  *) fail "usage: scripts/kernels.sh [--check]" ;;
esac
nvcc=$PWD/scripts/nvcc

folder=crates/kernels/kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compiler=nvcc-$("$nvcc" --version | sed -n 's/.* V//p')
sums() { sha256sum "$@" | cut -d' ' -f1 | tr '\n' ' '; }

# compile OUTPUT SOURCE FLAG...: leaves what is not compressed yet in $work.
compile() {
  local output=$1 source=$2
  shift 2
  local made=$work/${output%.zst}
  (cd "$folder/cuda" && "$nvcc" -std=c++17 -Xptxas -v "$@" -o "$made" "$source") >"$work/report" 2>&1 ||
    fail "$source does not compile: $(cat "$work/report")"
  if grep -iE 'warning|C75[0-9][0-9]|[1-9][0-9]* bytes (stack frame|spill)' "$work/report" >&2; then
    fail "$output: ptxas warns, or spills registers (above)"
  fi
  echo "$folder/binaries/$output $(sums "$made")$folder/cuda/$source $compiler $(echo "$*" | tr ' ' ,)" \
    "$(sums "$folder/cuda/$source" "$folder"/cuda/*.cuh)" | sed 's/ $//' >>"$work/manifest.txt"
  keep "$folder/binaries/$output" "$made"
}

# keep OUTPUT MADE: compares, or writes where it differs.
keep() {
  if [ -f "$1" ] && content "$1" | cmp -s - "$2"; then
    return
  elif $check; then
    echo "kernels: $1 is not what its source compiles to: run scripts/kernels.sh" >&2
    status=1
  else
    mkdir -p "$(dirname "$1")"
    case $1 in
      *.zst) scripts/zstd compress <"$2" >"$1" ;;
      *) cp "$2" "$1" ;;
    esac
  fi
}

# content FILE: decompressed.
content() {
  case $1 in
    *.zst) scripts/zstd decompress <"$1" ;;
    *) cat "$1" ;;
  esac
}

status=0
for part in portable backward_portable decode; do
  compile "attention_$part.ptx.zst" "attention_$part.cu" -ptx -arch=sm_80
done
for pass in "" backward_; do
  compile "attention_${pass}sequences.ptx.zst" "attention_${pass}portable.cu" -ptx -arch=sm_80 -DSEQUENCES
done
# The order of tiles of packed sequences.
compile attention_plan.fatbin attention_plan.cu -fatbin '-gencode=arch=compute_90,code=[sm_90,compute_90]' --compress-mode=size
for kernel in hopper:64 hopper:128 hopper:256 backward_hopper:64 backward_hopper:128 backward_hopper:256; do
  part=${kernel%:*} dim=${kernel#*:} source=$part
  # The gradients of the largest heads have a source of their own.
  [ "$kernel" != backward_hopper:256 ] || source=backward_wide_hopper
  # The PTX beside the machine code serves drivers of other versions.
  compile "attention_${part}_d$dim.fatbin" "attention_$source.cu" -fatbin "-DDIM=$dim" \
    '-gencode=arch=compute_90a,code=[sm_90a,compute_90a]' --compress-mode=size
done
for part in portable backward_portable losses expert_choice; do
  compile "moe_$part.ptx.zst" "moe_$part.cu" -ptx -arch=sm_80
done
compile training.ptx.zst training.cu -ptx -arch=sm_80
for part in hopper weights_hopper; do
  compile "moe_$part.fatbin" "moe_$part.cu" -fatbin '-gencode=arch=compute_90a,code=[sm_90a,compute_90a]' --compress-mode=size
done

keep "$folder/binaries/manifest.txt" "$work/manifest.txt"
exit $status
