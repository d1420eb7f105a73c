#!/usr/bin/env bash
# Runs the differential tester's programs on a GPU and writes the corpus: programs, and what the GPU computed.
#
#   scripts/gpu/differential.sh [OUT] [SECONDS]    # DIFFERENTIAL: the program (default: target/release/differential)
#
# Needs a driver and nothing else: the program is built by `cargo build --release -p differential`, on any machine with a
# C library no newer than the one here. Stops cleanly after SECONDS (default 120). Writes OUT/differential/, which goes to
# data/differential-h200/ (see its README).
set -euo pipefail

out=${1:-${OUT:-out}}/differential
seconds=${2:-120}
program=${DIFFERENTIAL:-target/release/differential}
# Every program is compiled once: a cache on disk would only cost time.
export CUDA_CACHE_DISABLE=1

mkdir -p "$out"
version=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)
"$program" record --driver "${LIBCUDA:-libcuda.so.1}" --out "$out" --workers "$(nproc)" --seconds "$seconds" \
  --driver-version "$version" --date "$(date -u +%F)" > "$out/refused.txt"
tail -1 "$out/refused.txt"
cat "$out/manifest.json"
