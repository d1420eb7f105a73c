#!/usr/bin/env bash
# Is everything the same with the launch queue, and what does it gain?
#
#   scripts/gpu/fast.sh [OUT] [PART]...   # APEX_BIN: folder of apex and its libraries (default: target/release)
#
# Parts: order (random programs of ORDER_CLIENT, default target/release/driver-client, which `cargo build --release -p driver-client`
# makes, with and without many launches in a row), verify (verify.sh with the queue always on),
# sanitizer (a program under compute-sanitizer), gain (what programs gain by the queue, and by
# batches), recording (what recording alone costs them), costs (what APEX costs programs that gain
# nothing), million (a million launches in a row, ROUNDS times): these four are in fast.py; memory
# (memory.py). FAST has what `order`, `verify` and `sanitizer` turn on, in turn (default: queue
# memory batch,memory; verify and sanitizer take the last of them alone). Default: all. Exit status
# 1 when a part failed; the others have run.
source "$(dirname "$0")/common.sh"
shift || true
[ $# -gt 0 ] || set -- order verify sanitizer gain recording costs million memory
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
  python3 "$here/fast.py" measure --apex "$apex/apex" --out "$out" --limit "${GAIN_SECONDS:-450}"
  python3 "$here/fast.py" tables "$out/fast.json" | tee "$out/fast.md"
}

costs() {
  python3 "$here/fast.py" costs --apex "$apex/apex" --out "$out" --processes "${COSTS_PROCESSES:-3}" --limit "${COSTS_SECONDS:-100}"
  python3 "$here/fast.py" costs-table "$out/fast-costs.json" | tee "$out/fast-costs.md"
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
