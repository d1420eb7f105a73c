#!/usr/bin/env bash
# The crate gpu on a real GPU: its tests and examples, memcheck, what it costs, and a product on the host's cores beside.
#
#   scripts/gpu/host_api.sh [OUT]    # BIN: folder of the programs, as `scripts/gpu/host_api.sh --build BIN` fills it
#
# Writes OUT/host-api.txt (everything that was printed) and OUT/host-api.json (figures). Exit status 1 when a test fails.
set -euo pipefail

tests=(memory kernels graphs compile driver tensors examples)
examples=(vector_add matrix_product streams origins blur weighted_sum training classifier)

if [ "${1:-}" = --build ]; then
  # On a machine with the Rust toolchain, with or without a GPU.
  folder=${2:?where to}
  mkdir -p "$folder/deps" "$folder/examples"
  cd "$(dirname "$0")/../.."
  target=${CARGO_TARGET_DIR:-target}/release
  messages=$(
    cargo test --release --locked -p apex-gpu --tests --benches --no-run --message-format=json
    cargo build --release --locked -p apex-gpu --examples --message-format=json
    cargo build --release --locked -p apex-alias
  )
  while read -r name program; do
    case " ${examples[*]} " in *" $name "*) to=$folder/examples/$name ;; *) to=$folder/deps/$name ;; esac
    strip -o "$to" "$program"
  done < <(printf '%s\n' "$messages" | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["reason"] == "compiler-artifact":
        print(message["target"]["name"], message["executable"])')
  strip -o "$folder/deps/libapex_cpu_device.so" "$target/deps/libapex_cpu_device.so"
  strip -o "$folder/deps/libapex_alias.so" "$target/libapex_alias.so"
  exit
fi

source "$(dirname "$0")/common.sh"
bin=$(cd "${BIN:?BIN names the folder of the programs}" && pwd)
export CUDA_HOME=${CUDA_HOME:-$(cuda_home)} APEX_CACHE_DIR=$build/cache
# The first line of a test that fails is what matters here.
export RUST_BACKTRACE=0
log=$out/host-api.txt
failed=()

run() {
  local name=$1
  shift
  echo "== $name"
  timeout 240 "$@" || failed+=("$name")
}

{
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  echo "CUDA ${CUDA_HOME}, $(date -u +%FT%TZ)"
  for name in "${tests[@]}"; do run "test $name" "$bin/deps/$name"; done
  run "benchmark" "$bin/deps/host_api" --json "$out/host-api.json"
  echo "== product of 1000 x 1000 in f32 on the host's cores, PyTorch"
  python3 - <<'PY' || echo "no PyTorch"
import statistics, time, torch
a, b = torch.rand(1000, 1000), torch.rand(1000, 1000)
times = []
for _ in range(60):
    start = time.perf_counter()
    a @ b
    times.append((time.perf_counter() - start) * 1e6)
print(f"{torch.get_num_threads()} threads: median {statistics.median(times[10:]):.0f} us, least {min(times):.0f} us")
PY
  # Calls that the driver refuses are no errors: that is how a kernel's parameters are counted.
  check=(compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9)
  command -v compute-sanitizer >/dev/null || check[0]=$CUDA_HOME/bin/compute-sanitizer
  run "memcheck memory" "${check[@]}" "$bin/deps/memory" --test-threads 1 --skip memory_is_given_back --skip more_than
  run "memcheck kernels" "${check[@]}" "$bin/deps/kernels" --test-threads 1 --skip an_error_of_a_kernel --skip ptx_that_is_none --skip a_missing
  run "memcheck tensors" "${check[@]}" "$bin/deps/tensors" --test-threads 1 --skip reductions_of_every_type
  run "memcheck classifier" "${check[@]}" "$bin/examples/classifier"
  echo "== failed: ${failed[*]:-nothing}"
} 2>&1 | tee "$log"
! grep -q '^== failed: [^n]' "$log"
