#!/usr/bin/env bash
# Is everything the same with the launch queue, and what does it gain?
#
#   scripts/gpu/fast.sh [OUT] [PART]...   # APEX_BIN: folder of apex and its libraries (default: target/release)
#
# Parts (default: all):
#   order      random programs of ORDER_CLIENT, with and without many launches in a row; its default
#              is target/release/driver-client, made by `cargo build --release -p driver-client`
#   places     the same client: several devices' contexts, green contexts, threads' default streams
#   mps        order and places under an MPS daemon of its own, which changes no mode of the device
#   verify     verify.sh with the queue always on
#   sanitizer  a program under compute-sanitizer
#   gain       what programs gain by the queue, and by batches (fast.py)
#   recording  what recording alone costs them (fast.py)
#   costs      what APEX costs programs that gain nothing (fast.py)
#   placement  what the processors of a program and of the queue's thread change (fast.py)
#   million    a million launches in a row, ROUNDS times (fast.py)
#   memory     allocations and frees (memory.py)
#   l2         L2 persistence windows (programs/l2_window.cu and .py)
#
# FAST has what `order`, `verify` and `sanitizer` turn on, in turn (default: queue memory
# batch,memory; verify and sanitizer take the last of them alone). Exits with status 1 when a part
# failed; the others have run.
source "$(dirname "$0")/common.sh"
shift || true
[ $# -gt 0 ] || set -- order places mps verify sanitizer gain recording costs placement million memory l2
apex=${APEX_BIN-$here/../../target/release}
client=${ORDER_CLIENT:-$here/../../target/release/driver-client}
read -ra ways <<<"${FAST:-queue memory batch,memory}"
always=(env APEX_FAST="${ways[-1]}" APEX_FAST_ALWAYS=1)

order() {
  local way kind
  for way in "${ways[@]}"; do
    for kind in order order-in-bursts; do
      echo "$kind, --fast=$way"
      env APEX_FAST="$way" APEX_FAST_ALWAYS=1 "$apex/apex" run --quiet -o "$build/$kind-$way" -- \
        "$client" "$kind" 1 "${ORDER_PROGRAMS:-1000}" 60 2>&1 || return 1
      "$apex/apex" report "$build/$kind-$way" | grep -A3 -e "^--fast" || true
    done
  done | tee "$out/order.txt"
}

places() {
  local way kind
  for way in "" "${ways[@]}"; do
    for kind in places-contexts places-green "places-own-streams 4"; do
      echo "$kind, --fast=$way"
      # shellcheck disable=SC2086 # its arguments
      if [ -z "$way" ]; then
        "$client" $kind 2000 1 2>&1 || return 1
      else
        env APEX_FAST="$way" APEX_FAST_ALWAYS=1 "$apex/apex" run --quiet -o "$build/${kind%% *}-$way" -- "$client" $kind 2000 1 2>&1 || return 1
        "$apex/apex" report "$build/${kind%% *}-$way" | grep -A1 -e "^--fast" || true
      fi
    done
  done | tee "$out/places.txt"
}

# Its files are its own, and it ends when this ends: nothing of the device's settings changes.
mps() {
  local failed=0 mode
  command -v nvidia-cuda-mps-control || { echo "no MPS here"; return 0; }
  mode=$(nvidia-smi --query-gpu=compute_mode --format=csv,noheader)
  export CUDA_MPS_PIPE_DIRECTORY=$build/mps CUDA_MPS_LOG_DIRECTORY=$build/mps-log
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  nvidia-cuda-mps-control -d || return 1
  {
    # Two clients of one server at once.
    for number in 1 2; do
      env APEX_FAST="${ways[-1]}" APEX_FAST_ALWAYS=1 "$apex/apex" run --quiet -o "$build/mps-$number" -- \
        "$client" order $((number * 1000)) "${MPS_PROGRAMS:-200}" 60 2>&1 &
    done
    wait_all || failed=1
    env APEX_FAST="${ways[-1]}" APEX_FAST_ALWAYS=1 "$apex/apex" run --quiet -o "$build/mps-own" -- "$client" places-own-streams 4 2000 1 2>&1 || failed=1
    "$apex/apex" report "$build/mps-1" | grep -A1 -e "^--fast" || true
    echo "servers: $(echo get_server_list | nvidia-cuda-mps-control | wc -w)"
    echo quit | nvidia-cuda-mps-control
    echo "compute mode before and after: $mode, $(nvidia-smi --query-gpu=compute_mode --format=csv,noheader)"
  } > >(tee "$out/mps.txt")
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  return $failed
}

l2() {
  "$nvcc" -arch="$arch" -O2 -std=c++17 -o "$build/l2_window" "$programs/l2_window.cu" || return 1
  {
    "$build/l2_window" "${L2_ROUNDS:-9}"
    python3 "$programs/l2_window.py" "${L2_ROUNDS:-9}"
  } >"$out/l2-window.jsonl"
  python3 "$here/memory.py" l2-tables "$out/l2-window.jsonl" | tee "$out/l2-window.md"
}

verify() {
  mkdir -p "$out/verify-fast" "$build/verify-fast"
  "${always[@]}" BUILD="$build/verify-fast" "$here/verify.sh" "$out/verify-fast" | tee "$out/verify-fast.txt"
}

# (The recorder asks for times that are not ready yet; the sanitizer would report each such answer.)
sanitizer() {
  "$nvcc" -arch="$arch" -O2 -std=c++17 -o "$build/features" "$programs/verify/features.cu" &&
    "$build/features" >"$build/bare.txt" 2>/dev/null &&
    "${always[@]}" "$apex/apex" run --quiet -o "$build/sanitized" -- \
      "$cuda/bin/compute-sanitizer" --report-api-errors no --error-exitcode 9 --log-file "$out/sanitizer.txt" "$build/features" >"$build/fast.txt" &&
    cmp "$build/bare.txt" "$build/fast.txt" && tail -1 "$out/sanitizer.txt"
}

gain() {
  python3 "$here/fast.py" measure --apex "$apex/apex" --out "$out" --limit "${GAIN_SECONDS:-450}" ${GAIN_OPTIONS:-}
  python3 "$here/fast.py" tables "$out/fast.json" | tee "$out/fast.md"
}

costs() {
  python3 "$here/fast.py" costs --apex "$apex/apex" --out "$out" --copies "${COSTS_COPIES:-4}" --limit "${COSTS_SECONDS:-100}"
  python3 "$here/fast.py" costs-table "$out/fast-costs.json" | tee "$out/fast-costs.md"
}

placement() {
  python3 "$here/fast.py" placement --apex "$apex/apex" --out "$out" --copies "${PLACEMENT_COPIES:-1}" --limit "${PLACEMENT_SECONDS:-150}"
  python3 "$here/fast.py" placement-table "$out/fast-placement.json" | tee "$out/fast-placement.md"
}

memory() {
  build_c memory
  python3 "$here/memory.py" measure --apex "$apex/apex" --program "$build/memory" --out "$out" --rounds "${MEMORY_ROUNDS:-3}"
  python3 "$here/memory.py" tables "$out/memory.json" | tee "$out/memory.md"
}

recording() {
  python3 "$here/fast.py" recording --apex "$apex/apex" --out "$out"
  python3 "$here/fast.py" recording-table "$out/fast-recording.json" | tee "$out/fast-recording.md"
}

million() {
  build_c million && "$nvcc" -arch="$arch" -cubin -o "$build/kernels.cubin" "$programs/kernels.cu" &&
    python3 "$here/fast.py" million ${ROUNDS:+--rounds "$ROUNDS"} --apex "$apex/apex" --out "$out" "$build/million" "$build/kernels.cubin" &&
    python3 "$here/fast.py" million-table "$out/fast-million.json" | tee "$out/fast-million.md"
}

failed=()
for part in "$@"; do
  declare -F "$part" >/dev/null || fail "no part $part"
  echo "== $part"
  "$part" || failed+=("$part")
done
[ ${#failed[@]} = 0 ] || fail "failed: ${failed[*]}"
