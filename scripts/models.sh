#!/usr/bin/env bash
# Checks in what `apex train` wrote into FOLDER: crates/predict/predict/models, with models and card.json
# compressed. The command and the tests read them there.
#
#   scripts/models.sh FOLDER
set -euo pipefail
from=$(realpath "$1")
cd "$(dirname "$0")/.."
for file in small.apexmodel large.apexmodel what-if.apexmodel card.json; do
  scripts/zstd compress < "$from/$file" > "crates/predict/predict/models/$file.zst"
done
cp "$from/card.md" crates/predict/predict/models/card.md
