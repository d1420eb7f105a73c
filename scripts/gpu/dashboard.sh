#!/usr/bin/env bash
# What does an open dashboard cost the program that it shows, and how old are its numbers?
#
#   scripts/gpu/dashboard.sh [OUT]
#
# APEX_BIN: folder of apex and libfake_driver.so (default: target/release; `cargo build --release -p apex-cli -p fake-driver`).
# PAIRS: pairs of turns of each row (default: 9).
# ROWS: rows to run, all at once (default: two groups of rows, one after the other).
#
# Runs scripts/dashboard_cost.py on a machine with cores to spare: rows on the CPU device and on the driver of the tests, and
# PyTorch on the GPU; a few rows at a time, each of which takes three cores at most. Writes OUT/dashboard.md. It needs PyTorch
# and a driver. About three minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-${OUT:-out}}
bin=${APEX_BIN:-target/release}
mkdir -p "$out"
rows=$(mktemp -d)
trap 'rm -rf "$rows"' EXIT
row() {
  python3 scripts/dashboard_cost.py "$bin/apex" "$1" --libcuda "$bin/libfake_driver.so" --pairs "${PAIRS:-9}" --no-head \
    >"$rows/$1" || echo "| $1 failed | | | | | | |" >"$rows/$1"
}
groups=("torch cpu:10000 fake:150000" "torch:alone cpu:10000:alone fake:50000 fake:300000")
[ -z "${ROWS:-}" ] || groups=("$ROWS")
{
  echo "# What an open dashboard costs the program that it shows"
  echo
  echo "Measured on $(date -u '+%-d %B %Y') with \`scripts/gpu/dashboard.sh\`, ${PAIRS:-9} pairs of turns of 3 s each:"
  echo "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1), $(nproc) cores ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1))."
  echo "Rows that ran at the same time: ${groups[*]/%/;}"
  echo
  echo "| program | launches a second | slower while somebody looks (95% interval) | CPU of the dashboard | CPU of a look | age of the numbers when replaced, median | at most |"
  echo "| --- | --- | --- | --- | --- | --- | --- |"
  for group in "${groups[@]}"; do
    for one in $group; do row "$one" & done
    wait
    for one in $group; do cat "$rows/$one"; done
  done
  echo
  echo "A row at a set rate gives the CPU time of the program, PyTorch's the time of a step. The age is the time between two"
  echo "documents and the CPU time of a look. CPU of the dashboard is a share of one core while somebody looks."
} >"$out/dashboard.md"
cat "$out/dashboard.md"
