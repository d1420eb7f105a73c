#!/usr/bin/env bash
# A mixture of experts on a Hopper GPU: the Hopper form beside PyTorch's kernels, the tests of the crate on the GPU, and
# compute-sanitizer.
#
#   scripts/gpu/moe.sh [OUT]
#
# It needs PyTorch, compute-sanitizer, and the tests that `cargo test -p apex-kernels --test moe --no-run` builds; `TESTS` names
# their program.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-${OUT:-out}}
tests=${TESTS:-$(ls -t target/debug/deps/moe-*[0-9a-f] | head -n 1)}
mkdir -p "$out"
export APEX_DEVICE=gpu
"$tests" | tee "$out/moe-tests.txt"
sanitize() {
  local tool=$1
  shift
  # Calls that the driver refuses are not reported, since `gpu` counts a kernel's parameters by asking until there are no more.
  compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 1 "$tests" "$@" >"$out/moe-$tool.txt" 2>&1 ||
    { tail -n 20 "$out/moe-$tool.txt" >&2; exit 1; }
  tail -n 1 "$out/moe-$tool.txt"
}
sanitize memcheck
# All tests would take minutes.
sanitize racecheck one_layer all_tokens
python3 scripts/gpu/moe.py "$out"
