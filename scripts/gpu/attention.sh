#!/usr/bin/env bash
# Attention on a Hopper GPU: every form against the reference in f64, the Hopper forms, forward and backward, beside
# PyTorch's kernels, the decode form beside those and a copy, and compute-sanitizer on all of them.
#
#   scripts/gpu/attention.sh [OUT]             # everything
#   scripts/gpu/attention.sh --decode [OUT]    # the decode form beside PyTorch's kernels only; needs no example
#   scripts/gpu/attention.sh --backward [OUT]  # the backward pass: beside PyTorch's kernels, then the example
#
# It needs PyTorch, compute-sanitizer, and the example that `cargo build --release -p apex-kernels --example attention_forms`
# makes; `FORMS` names the example's program.
set -euo pipefail
cd "$(dirname "$0")/../.."
only=
case "${1:-}" in
  --decode | --backward)
    only=${1#--}
    shift
    ;;
esac
out=${1:-${OUT:-out}}
forms=${FORMS:-target/release/examples/attention_forms}
mkdir -p "$out"
if [ "$only" != backward ]; then python3 scripts/gpu/attention_decode.py "$out"; fi
[ "$only" != decode ] || exit 0
if [ "$only" != backward ]; then python3 scripts/gpu/attention.py "$out"; fi
python3 scripts/gpu/attention_backward.py "$out"
"$forms" | tee "$out/attention-forms.txt"
for tool in memcheck racecheck; do
  # Small problems only: the tools slow kernels down a hundred times. Calls that the driver refuses are not reported, since
  # `gpu` counts a kernel's parameters by asking until there are no more.
  compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 1 "$forms" --check >"$out/attention-$tool.txt" 2>&1 ||
    { tail -n 20 "$out/attention-$tool.txt" >&2; exit 1; }
  tail -n 1 "$out/attention-$tool.txt"
done
