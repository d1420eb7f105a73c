#!/usr/bin/env bash
# Runs the differential tester's programs on a GPU and writes the corpus: programs, and what the GPU computed. And asks the
# driver what it answers to launches that no device can run.
#
#   scripts/gpu/differential.sh [OUT] [SECONDS]
#
#   DIFFERENTIAL  the program (default: target/release/differential)
#   ONTO          a corpus of the same GPU: only programs that it has not are run, and both are written
#   LIBCUDA       the driver (default: libcuda.so.1)
#
# Needs a driver, and nvcc for the launches: the program is built by `cargo build --release -p apex-differential`, on any machine
# with a C library no newer than the one here. Stops cleanly after SECONDS (default 120). Writes OUT/differential/, which goes
# to data/h200/differential/ (see its README).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-${OUT:-out}}/differential
seconds=${2:-120}
program=${DIFFERENTIAL:-target/release/differential}
# Every program is compiled once: a cache on disk would only cost time.
export CUDA_CACHE_DISABLE=1

mkdir -p "$out"
version=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1 || true)
"$program" record --driver "${LIBCUDA:-libcuda.so.1}" ${ONTO:+--onto "$ONTO"} --out "$out" --workers "$(nproc)" \
  --seconds "$seconds" --driver-version "${version:-unknown}" --date "$(date -u +%F)" > "$out/refused.txt"
tail -2 "$out/refused.txt"
cat "$out/manifest.json"

limits=$(mktemp)
trap 'rm -f "$limits"' EXIT
if nvcc -std=c++17 -arch=compute_80 -o "$limits" "$here/differential-limits.cu" -ldl; then
  timeout 60 "$limits" > "$out/limits.txt" || echo "ended with $?" >> "$out/limits.txt"
fi
