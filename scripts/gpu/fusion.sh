#!/usr/bin/env bash
# Generated kernels on a Hopper GPU: the set forms and the gradients of norms beside PyTorch eager,
# torch.compile and a copy, the tests of the crate on the GPU, and compute-sanitizer.
#
#   scripts/gpu/fusion.sh [OUT]             # everything
#   scripts/gpu/fusion.sh --tests [OUT]     # the tests, and compute-sanitizer on some of them
#
# It needs PyTorch and compute-sanitizer. `TESTS` names the program of the tests (`cargo test -p apex-kernels --test fusion
# --no-run`), `PTX` a folder that `cargo run -p apex-kernels --example fusion_forms -- --emit FOLDER` has filled. A part that
# fails does not stop the others.
set -uo pipefail
cd "$(dirname "$0")/../.."
only=
if [ "${1:-}" = --tests ]; then
  only=tests
  shift
fi
out=${1:-${OUT:-out}}
ptx=${PTX:-ptx}
# Beside the program lies a file of its dependencies, whose name ends in `.d`.
tests=${TESTS:-$(find target/debug/deps -name 'fusion-*' -executable -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)}
limit=${LIMIT:-300}
mkdir -p "$out"
export APEX_DEVICE=gpu
status=0
if [ -z "$only" ]; then
  timeout "$limit" python3 scripts/gpu/fusion.py run "$ptx" "$out" || status=1
  timeout "$limit" python3 scripts/gpu/fusion.py clusters "$ptx" "$out" || status=1
  timeout "$limit" python3 scripts/gpu/fusion.py peers "$ptx" "$out" || status=1
  timeout "$limit" python3 scripts/gpu/fusion.py peers-gradients "$ptx" "$out" || status=1
fi
timeout "$limit" "$tests" >"$out/fusion-tests.txt" 2>&1 || status=1
tail -n 5 "$out/fusion-tests.txt"
sanitize() {
  # Calls that the driver refuses are not reported, since `gpu` counts a kernel's parameters by asking until there are no more.
  timeout "$limit" compute-sanitizer --tool "$1" --report-api-errors no --error-exitcode 1 "$tests" any_size every_schedule clusters any_shape \
    >"$out/fusion-$1.txt" 2>&1
}
sanitize memcheck & memcheck=$!
sanitize racecheck || status=1
wait "$memcheck" || status=1
tail -n 4 "$out/fusion-memcheck.txt" "$out/fusion-racecheck.txt"
exit "$status"
