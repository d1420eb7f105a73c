#!/usr/bin/env bash
# What does recording cost? A launch, a PyTorch loop of small kernels, the start of a program: bare, under APEX, under
# CUPTI's kernel activity, interleaved.
#
#   scripts/gpu/overhead.sh [OUT] [launch|loop|switched|startup]...      # APEX_BIN: folder of apex (default: target/release)
#
# Writes OUT/overhead-<part>.json and .md; overhead.py says how each figure is made. ROUNDS and PAIRS set how many.
# APEX_BEFORE names the folder of another build, to compare with. About 2, 7, 3 and 1 minutes; without a part all but
# `switched` run. Run it on a machine that does nothing else.
source "$(dirname "$0")/common.sh"
apex=${APEX_BIN-$here/../../target/release}
shift || true

build_cupti_count &
build_c launch_cost &
"$nvcc" -arch="$arch" -cubin -o "$build/kernels.cubin" "$programs/kernels.cu" &
"$nvcc" -arch="$arch" -O2 -o "$build/launch_cost_runtime" "$programs/launch_cost_runtime.cu" &
"$nvcc" -arch="$arch" -O2 -o "$build/one_kernel" "$programs/one_kernel.cu" &
wait_all

for part in "${@:-launch startup loop}"; do
  for one in $part; do
    python3 "$here/overhead.py" "$one" --build "$build" --cupti "$build/cupti_count.so" --apex "$apex" --libcuda "$driver" \
      --work "$build/work" --out "$out" ${ROUNDS:+--rounds "$ROUNDS"} ${PAIRS:+--pairs "$PAIRS"} ${APEX_BEFORE:+--before "$APEX_BEFORE"}
  done
done
