#!/usr/bin/env bash
# The hook `apex-check` of .pre-commit-hooks.yaml: records a command on APEX's CPU device, and holds
# it to the budgets of the repository. APEX_BUDGETS names another file than apex-budgets.toml.
#
#   pre-commit.sh COMMAND [ARGUMENT...]
#
# Exits like `apex check`, or like the command where it fails.
set -euo pipefail

if [ "$#" = 0 ]; then
  echo "apex-check: name the command that is recorded, as 'args' of the hook" >&2
  exit 125
fi
if ! command -v apex >/dev/null; then
  echo "apex-check: the command apex was not found: pip install apex-cuda, or add its folder to PATH" >&2
  exit 125
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
apex run --quiet --device cpu --check -o "$folder/run" -- "$@" >"$folder/output" 2>&1 || status=$?
# 123: the CPU device found defects. The budgets say whether they are allowed.
if [ "$status" != 0 ] && [ "$status" != 123 ]; then
  cat "$folder/output" >&2
  exit "$status"
fi
status=0
apex check "$folder/run" || status=$?
# What a defect is about says the device, not the table.
if [ "$status" = 1 ]; then grep '^apex: cpu device: ' -A4 "$folder/output" >&2 || true; fi
exit "$status"
