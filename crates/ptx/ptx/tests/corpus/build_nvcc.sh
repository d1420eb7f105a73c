#!/usr/bin/env bash
# Compiles stacks.cu to PTX with nvcc, as debug and as release code with lines.
#   build_nvcc.sh NAME NVCC ARCHITECTURE     e.g. build_nvcc.sh nvcc13 DIR/bin/nvcc 90
# scripts/cuda-toolchain.sh makes DIR, for toolkit 12 or 13.
set -euo pipefail
cd "$(dirname "$0")"
name=$1 nvcc=$2 architecture=$3
for mode in debug:-G lines:-lineinfo; do
  target=stacks.$name.sm_${architecture}_${mode%%:*}.ptx
  "$nvcc" -ptx "-arch=compute_$architecture" "${mode#*:}" -o "$target" stacks.cu
  # Only file names: paths of the machine say nothing.
  sed -i -E 's/(\.file[[:space:]]+[0-9]+ ")[^"]*\//\1/' "$target"
  # Debugging sections are bytes that spell the paths of the machine.
  sed -i '/^\t\.section\|^\.section/,/^\t}\|^}/d' "$target"
  # ptxas wants one where the target says `debug`.
  [ "${mode%%:*}" = lines ] || printf '\t.section\t.debug_str\n\t{\n.b8 0\n\t}\n' >> "$target"
  ../../../../../scripts/zstd compress < "$target" > "$target.zst"
  rm "$target"
done
