#!/usr/bin/env bash
# Are the GPU durations that APEX reports those that CUPTI measures?
#
#   scripts/gpu/timing.sh [OUT]          # APEX_BIN: folder of apex and its libraries (default: target/release)
#
# Writes OUT/timing.json and OUT/timing.md; timing.py says what is compared. APEX_BEFORE names the folder of another build,
# to compare with; ROUNDS sets how many. About five minutes.
source "$(dirname "$0")/common.sh"
apex=${APEX_BIN-$here/../../target/release}
build_cupti_count &
"$nvcc" -arch="$arch" -O2 -o "$build/durations" "$programs/durations.cu" &
wait_all
python3 "$here/timing.py" measure --build "$build" --cupti "$build/cupti_count.so" --apex "$apex" --work "$build/work" \
  --out "$out" ${APEX_BEFORE:+--before "$APEX_BEFORE"} ${ROUNDS:+--rounds "$ROUNDS"}
