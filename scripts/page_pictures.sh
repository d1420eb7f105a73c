#!/usr/bin/env bash
# Makes docs/pictures/page*.png, kernel*.png, dashboard*.png, timeline*.png and panels/ from sessions of an
# H200 in data/h200/corpus and of a demonstration on the CPU device, with the apex of target/debug
# or of $APEX, and gives them palettes. Needs Chromium, Node.js, `npm ci` in crates/show/page/web, and a
# Python ($PYTHON) with Pillow and NumPy.
set -euo pipefail
cd "$(dirname "$0")/.."
apex=$(realpath "${APEX:-target/debug/apex}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"; kill "$server" 2>/dev/null || true' EXIT
server=
for session in torch-eager_training torch-llama_eager; do
  cargo run -q -p test-recorded -- unpack "data/h200/corpus/$session.tar.xz" "$folder/$session"
  # Where Python lay on that machine says nothing.
  sed -i 's|"/[^"]*/bin/python3"|"python3"|' "$folder/$session/session.json"
  (cd "$folder" && "$apex" report --html "$session.html" "$session")
done
# A program with faults, on the CPU device, where its source lies.
(cd crates/device/device-code/demo && "$apex" demo bad --device cpu --code -o "$folder/bad" > "$folder/bad.log" 2>&1)
(cd "$folder" && "$apex" report --html bad.html bad)
mkdir -p docs/pictures/panels
(cd "$folder" && exec "$apex" dashboard --no-open torch-eager_training torch-llama_eager) > "$folder/address" &
server=$!
until [ -s "$folder/address" ]; do sleep 0.1; done
node crates/show/page/web/tests/pictures.mjs "$folder" "$(head -n 1 "$folder/address")" docs/pictures
"${PYTHON:-python3}" scripts/png_palette.py docs/pictures/*.png docs/pictures/panels/*.png
