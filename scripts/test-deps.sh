#!/usr/bin/env bash
# Installs what some tests use beyond the Rust toolchain, pinned. Without it those tests say that they were skipped.
#   pyarrow    reads back exported Parquet files
#   perfetto   decodes exported traces
set -euo pipefail
python=${PYTHON:-python3}
"$python" -m pip install --quiet --disable-pip-version-check 'pyarrow==22.0.0' 'perfetto==0.16.0' 'protobuf>=5,<7'
