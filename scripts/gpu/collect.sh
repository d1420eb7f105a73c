#!/usr/bin/env bash
# Measures the benchmark kernels of `apex collect` on all GPUs of the machine, with counters, and packs the data set.
#
#   scripts/gpu/collect.sh [OUT] [SECONDS] [ROWS]    # APEX_BIN: folder of apex (default: target/release)
#                                                    # THROUGHPUT=1: then SM and memory throughput of each, too
#
# Stops cleanly after SECONDS (default 500); run again with the same OUT, it goes on. Writes OUT/collect/ and
# OUT/collect.tar.gz. Needs a driver, and ncu with permission to read counters.
set -euo pipefail

out=${1:-${OUT:-out}}
seconds=${2:-500}
rows=${3:-8000}
apex=${APEX_BIN:-target/release}/apex
options=(--device gpu --rows "$rows" --counters require --seconds "$seconds")
[ "${THROUGHPUT:-0}" = 0 ] || options+=(--throughput)

mkdir -p "$out"
status=0
"$apex" collect -o "$out/collect" "${options[@]}" || status=$?
# 1: stopped before the end.
[ "$status" -le 1 ] || exit "$status"
tar -C "$out" --exclude='ncu-*' -czf "$out/collect.tar.gz" collect
ls -l "$out/collect.tar.gz"
