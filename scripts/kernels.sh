#!/usr/bin/env bash
# Compiles the kernels of crates/kernels to what is checked in beside them, and reads the compiler's report.
#
#   scripts/kernels.sh            # writes crates/kernels/binaries
#   scripts/kernels.sh --check    # writes nothing; fails and names each file that is not what its source compiles to
#
# Portable kernels become PTX for sm_80. Hopper's become one fat binary for each pass and head dimension: machine code
# for sm_90a, compressed, and PTX beside it for drivers that know no such machine code. The script fails when ptxas warns (it does
# where it makes wgmma wait) or when a kernel spills registers. `manifest.txt` records which sources, flags and compiler
# each file came from; a test compares.
# The compiler is scripts/nvcc.
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

folder=crates/kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compiler=$("$nvcc" --version | grep -o 'V[0-9.]*$')
sum() { sha256sum "$@" | cut -d' ' -f1; }

# compile OUTPUT SOURCE FLAG...
compile() {
  local output=$1 source=$2
  shift 2
  (cd "$folder/cuda" && "$nvcc" -std=c++17 -Xptxas -v "$@" -o "$work/$output" "$source") >"$work/report" 2>&1 ||
    fail "$source does not compile: $(cat "$work/report")"
  if grep -iE 'warning|C75[0-9][0-9]|[1-9][0-9]* bytes (stack frame|spill)' "$work/report" >&2; then
    fail "$output: ptxas warns, or spills registers (above)"
  fi
  local headers=$(cd "$folder/cuda" && sum *.cuh "$source" | tr '\n' ' ')
  echo "$output $(sum "$work/$output") $source $compiler $(echo "$*" | tr ' ' ,) $headers" | sed 's/ $//' >>"$work/manifest.txt"
}

for part in portable backward_portable decode; do
  compile "attention_$part.ptx" "attention_$part.cu" -ptx -arch=sm_80
done
for kernel in hopper:64 hopper:128 hopper:256 backward_hopper:64 backward_hopper:128; do
  part=${kernel%:*} dim=${kernel#*:}
  # The PTX beside the machine code serves drivers of other versions.
  compile "attention_${part}_d$dim.fatbin" "attention_$part.cu" -fatbin "-DDIM=$dim" \
    '-gencode=arch=compute_90a,code=[sm_90a,compute_90a]' --compress-mode=size
done

status=0
for file in "$work"/*.ptx "$work"/*.fatbin "$work/manifest.txt"; do
  kept=$folder/binaries/$(basename "$file")
  if ! $check; then
    mkdir -p "$folder/binaries" && cp "$file" "$kept"
  elif ! cmp -s "$file" "$kept"; then
    echo "kernels: $kept is not what its source compiles to: run scripts/kernels.sh" >&2
    status=1
  fi
done
exit $status
