#!/usr/bin/env bash
# Are the readings of the machine right, what do they cost, and is the device left as it was?
#
#   scripts/gpu/machine.sh [OUT]
#
# APEX_BIN: folder of apex (default: target/release).
# SECONDS_EACH: length of the first run (default: 40).
#
# Records a PyTorch loop with nvidia-smi beside it, compares both second by second, runs small
# kernels with and without the sampler in turns, and compares what nvidia-smi says of limits, clocks
# and modes before and after. Writes OUT/machine.md. It needs PyTorch and a driver; machine.py says
# how each figure is made. About three minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 scripts/gpu/machine.py "${1:-${OUT:-out}}" --apex "${APEX_BIN:-target/release}/apex" --seconds "${SECONDS_EACH:-40}"
