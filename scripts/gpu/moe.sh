#!/usr/bin/env bash
# A mixture of experts on a Hopper GPU, forward and backward, what keeps it in balance, and experts that choose: the Hopper forms
# beside PyTorch's kernels, the tests of the crate on the GPU, and compute-sanitizer.
#
#   scripts/gpu/moe.sh [OUT]                # everything
#   scripts/gpu/moe.sh --backward [OUT]     # without the measurements of forward passes alone
#   scripts/gpu/moe.sh --balance [OUT]      # losses, a bias, a capacity, and experts that choose alone are measured
#
# It needs PyTorch, compute-sanitizer, and the tests that `cargo test -p apex-kernels --test moe --test moe_backward --no-run`
# builds; `TESTS` names their folder. A part that fails does not stop the others.
set -uo pipefail
cd "$(dirname "$0")/../.."
only=
case ${1:-} in
  --backward | --balance)
    only=${1#--}
    shift
    ;;
esac
out=${1:-${OUT:-out}}
tests=${TESTS:-target/debug/deps}
limit=${LIMIT:-300}
mkdir -p "$out"
export APEX_DEVICE=gpu
status=0
program() { find "$tests" -name "$1-*" -executable -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2; }
for part in moe moe_backward; do
  timeout "$limit" "$(program $part)" >"$out/$part-tests.txt" 2>&1 || status=1
  tail -n 3 "$out/$part-tests.txt"
done
sanitize() {
  local tool=$1 part=$2
  shift 2
  # Calls that the driver refuses are not reported, since `gpu` counts a kernel's parameters by asking until there are no more.
  timeout "$limit" compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 1 "$(program "$part")" "$@" \
    >"$out/$part-$tool.txt" 2>&1
}
python3 scripts/gpu/moe_balance.py "$out" || status=1
python3 scripts/gpu/moe_experts.py "$out" || status=1
if [ "$only" != balance ]; then python3 scripts/gpu/moe_backward.py "$out" || status=1; fi
if [ -z "$only" ]; then python3 scripts/gpu/moe.py "$out" || status=1; fi
# All tests would take minutes under racecheck.
jobs=()
sanitize memcheck moe & jobs+=($!)
sanitize memcheck moe_backward & jobs+=($!)
sanitize racecheck moe one_layer all_tokens an_expert_takes as_many moe_losses moe_expert_choice::{one_pass,more_tokens} & jobs+=($!)
sanitize racecheck moe_backward one_layer one_expert what_experts & jobs+=($!)
for job in "${jobs[@]}"; do wait "$job" || status=1; done
tail -n 2 "$out"/moe*-{memcheck,racecheck}.txt
exit "$status"
