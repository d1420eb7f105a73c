#!/usr/bin/env bash
# Makes docs/pictures/page*.png from a session of an H200 in data/corpus-h200, with the apex of target/debug or of $APEX.
# Needs Chromium, Node.js, and `npm ci` in crates/page/web.
set -euo pipefail
cd "$(dirname "$0")/.."
apex=$(realpath "${APEX:-target/debug/apex}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for session in torch-eager_training torch-llama_eager; do
  mkdir "$folder/$session"
  tar -xJf "data/corpus-h200/$session.tar.xz" -C "$folder/$session"
  # Where Python lay on that machine says nothing.
  sed -i 's|"/[^"]*/bin/python3"|"python3"|' "$folder/$session/session.json"
  (cd "$folder" && "$apex" report --html "$session.html" "$session")
done
node crates/page/web/tests/pictures.mjs "$folder" docs/pictures
