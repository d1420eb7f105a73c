#!/usr/bin/env bash
# What does an event pair read more than the kernel between its events takes, by what its stream has to do?
#
#   scripts/gpu/pair_costs.sh [OUT]
#
# Writes OUT/pair-costs.csv: readings of programs/pair_costs.cu, and CUPTI's medians of the same kernels in another run of the
# same mode. A quarter of a minute.
source "$(dirname "$0")/common.sh"
build_cupti_count &
"$nvcc" -arch="$arch" -O2 -std=c++17 -o "$build/pair_costs" "$programs/pair_costs.cu" -Xlinker "$driver" &
wait_all
for mode in idle delay5 delay10 delay20 delay50 stream mixed mixedrev; do
  "$build/pair_costs" "$mode" 100 >>"$build/readings"
  mkdir "$build/cupti-$mode"
  CUDA_INJECTION64_PATH=$build/cupti_count.so CUPTI_COUNT_DIR=$build/cupti-$mode "$build/pair_costs" "$mode" 100 >/dev/null
done
provenance "scripts/gpu/pair_costs.sh" >"$out/pair-costs.csv"
python3 "$here/pair_costs.py" "$build" >>"$out/pair-costs.csv"
