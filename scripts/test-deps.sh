#!/usr/bin/env bash
# Installs what some tests use beyond the Rust toolchain, pinned. Without it those tests say that they were skipped.
#   pyarrow    reads back exported Parquet files
#   perfetto   decodes exported traces
set -euo pipefail
python=${PYTHON:-python3}
"$python" -m pip install --quiet --disable-pip-version-check 'pyarrow==26.0.1' 'perfetto==0.59.1'
