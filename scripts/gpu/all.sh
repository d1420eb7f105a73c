#!/usr/bin/env bash
# What the recorder rests on and costs, one part after the other; a part that fails does not stop the next. The other
# scripts of this folder are run one by one (README.md).
#
#   scripts/gpu/all.sh [OUT] [PART]...    # APEX_BIN: folder of apex and its libraries (default: target/release)
#
# Parts, with their minutes on an H200: facts (1), verify (2), timing (5), pair_costs (1), launch (2), startup (1), loop (7).
# Default: all seven.
# Results are written as they come. Exit status 1 when a part failed.
source "$(dirname "$0")/common.sh"
shift || true
[ $# -gt 0 ] || set -- facts verify timing pair_costs launch startup loop

failed=()
for part in "$@"; do
  began=$SECONDS
  case $part in
    launch | loop | startup) command=("$here/overhead.sh" "$out" "$part") ;;
    facts | verify | timing | pair_costs) command=("$here/$part.sh" "$out") ;;
    *) fail "no part $part" ;;
  esac
  echo "== $part"
  "${command[@]}" || failed+=("$part")
  echo "== $part: $((SECONDS - began)) s"
done
[ ${#failed[@]} = 0 ] || fail "failed: ${failed[*]}"
