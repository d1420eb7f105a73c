#!/usr/bin/env bash
# Does a program end as without APEX, and are its queued launches made, whichever way it ends?
#
#   scripts/gpu/endings.sh [OUT]          # APEX_BIN: folder of apex and its libraries (default: target/release)
#
# Runs programs/endings.cu in each way, bare, recorded, and with each form of --fast. Prints a table, which is OUT/endings.txt:
# the status, the seconds, and of the launches that returned success how many are recorded and how many were not made.
# Exit status 1 if a status differs from the bare one, a process had to be killed, or a launch is neither recorded nor counted.
source "$(dirname "$0")/common.sh"
apex=${APEX_BIN-$here/../../target/release}/apex
launches=20000

nvcc=$(cuda_home)/bin/nvcc
"$nvcc" -arch=sm_90 -O2 -o "$build/endings" "$programs/endings.cu"

wrong=0
one() { # WAY MODE OPTION…
  local way=$1 mode=$2 status=0 began ended figures=""
  shift 2
  local command=("$build/endings" "$way" "$launches")
  if [ "$mode" != bare ]; then
    rm -rf "$build/session"
    command=("$apex" run --quiet -o "$build/session" "$@" -- "${command[@]}")
  fi
  began=$(date +%s.%N)
  timeout -k 2 "${PATIENCE:-60}" "${command[@]}" >/dev/null 2>&1 || status=$?
  ended=$(date +%s.%N)
  if [ "$mode" = bare ]; then
    bare=$status
  else
    figures=$("$apex" report --json "$build/session" | python3 -c '
import json, sys
profile = json.load(sys.stdin)["profile"]
recorded = profile["totals"]["launches"]
queues = [process["queue"] for process in profile["processes"] if process.get("queue")]
print(recorded, sum(queue["not_made"] for queue in queues))')
    read -r recorded lost <<<"$figures"
    if [ "$status" != "$bare" ] || [ $((recorded + lost)) -lt $((2 * launches)) ]; then wrong=1; fi
  fi
  printf '%-11s %-12s %6s %8.2f %9s %8s\n' "$way" "$mode" "$status" "$(awk "BEGIN { print $ended - $began }")" $figures
}

{
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  date -u +%F
  printf '%-11s %-12s %6s %8s %9s %8s\n' way mode status seconds recorded "not made"
  for way in return thread _exit quick_exit exec term; do
    one "$way" bare
    one "$way" recorded
    one "$way" fast --fast
    one "$way" fast=batch --fast=batch
  done
} > >(tee "$out/endings.txt")
wait
exit "$wrong"
