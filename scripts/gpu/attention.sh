#!/usr/bin/env bash
# Attention on a Hopper GPU: every form against the reference in f64, the Hopper forms, forward and backward, beside
# PyTorch's kernels, the decode form beside those and a copy, and compute-sanitizer on all of them.
#
#   scripts/gpu/attention.sh [OUT]             # everything
#   scripts/gpu/attention.sh --decode [OUT]    # the decode form beside PyTorch's kernels only; needs no example
#   scripts/gpu/attention.sh --backward [OUT]  # the backward pass: beside PyTorch's kernels, then the example
#   scripts/gpu/attention.sh --sequences [OUT] # sequences of different lengths only: their tests, and compute-sanitizer
#
# It needs PyTorch, compute-sanitizer, the example that `cargo build --release -p apex-kernels --example attention_forms`
# makes, and the tests that `cargo test -p apex-kernels --test attention_sequences --no-run` builds; `FORMS` names the example's
# program, `TESTS` the folder of the tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
only=
case "${1:-}" in
  --decode | --backward | --sequences)
    only=${1#--}
    shift
    ;;
esac
out=${1:-${OUT:-out}}
forms=${FORMS:-target/release/examples/attention_forms}
mkdir -p "$out"
# sanitized NAME TOOL COMMAND…: calls that the driver refuses are not reported, since `gpu` counts a kernel's parameters by asking
# until there are no more.
sanitized() {
  local report=$out/$1-$2.txt tool=$2
  shift 2
  compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 1 "$@" >"$report" 2>&1 ||
    { tail -n 20 "$report" >&2; exit 1; }
  tail -n 1 "$report"
}
sequences() {
  local program tool
  program=$(find "${TESTS:-target/debug/deps}" -name 'attention_sequences-*' -executable -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
  export APEX_DEVICE=gpu
  "$program" | tee "$out/attention-sequences.txt"
  for tool in memcheck racecheck; do sanitized attention-sequences "$tool" "$program"; done
}
if [ "$only" = sequences ]; then
  sequences
  exit 0
fi
if [ "$only" != backward ]; then python3 scripts/gpu/attention_decode.py "$out"; fi
[ "$only" != decode ] || exit 0
if [ "$only" != backward ]; then python3 scripts/gpu/attention.py "$out"; fi
python3 scripts/gpu/attention_backward.py "$out"
"$forms" | tee "$out/attention-forms.txt"
# Small problems only: the tools slow kernels down a hundred times.
for tool in memcheck racecheck; do sanitized attention "$tool" "$forms" --check; done
if [ -z "$only" ]; then sequences; fi
