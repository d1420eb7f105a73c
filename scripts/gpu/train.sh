#!/usr/bin/env bash
# A transformer that trains on a GPU: the tests of its gradients there, and its losses and tokens per second beside PyTorch.
#
#   scripts/gpu/train.sh [OUT]
#
# It needs PyTorch, the example (`cargo build --release -p apex-kernels --example train`; PROGRAM names it), and the tests that
# `cargo test -p apex-kernels --test training --test train --no-run` builds; TESTS names their folder. A part that fails does not
# stop the others.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:-${OUT:-out}}
tests=${TESTS:-target/debug/deps}
limit=${LIMIT:-300}
mkdir -p "$out"
status=0
program() { find "$tests" -name "$1-*" -executable -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2; }
# What tests the program itself needs the example where cargo puts it, and is left out.
for part in training train; do
  APEX_DEVICE=${DEVICE:-gpu} timeout "$limit" "$(program "$part")" --skip the_program >"$out/$part-tests.txt" 2>&1 || status=1
  tail -n 3 "$out/$part-tests.txt"
done
sanitize() {
  # Calls that the driver refuses are not reported, since `gpu` counts a kernel's parameters by asking until there are no more.
  timeout "$limit" compute-sanitizer --tool "$1" --report-api-errors no --error-exitcode 1 "$(program training)" \
    >"$out/training-$1.txt" 2>&1
}
if [ "${DEVICE:-gpu}" = gpu ]; then
  python3 scripts/gpu/train.py "$out" || status=1
  for tool in memcheck racecheck; do APEX_DEVICE=gpu sanitize "$tool" || status=1; done
  tail -n 2 "$out"/training-{memcheck,racecheck}.txt
else
  python3 scripts/gpu/train.py "$out" --device cpu || status=1
fi
exit "$status"
