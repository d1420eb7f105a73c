#!/usr/bin/env bash
# Installs what some tests use beyond the Rust toolchain, pinned. Without it those tests say that they were skipped.
#   pyarrow           reads back exported Parquet files
#   perfetto          decodes exported traces
#   nvidia-cuda-nvcc  assembles PTX: its ptxas judges the table of forms, the verifier and the printer
#   nvidia-cuda-nvrtc compiles CUDA C++ for the tests and examples of the crate gpu
set -euo pipefail
python=${PYTHON:-python3}
"$python" -m pip install --quiet --disable-pip-version-check 'pyarrow==26.0.1' 'perfetto==0.59.1'
"$python" -m pip install --quiet --disable-pip-version-check --no-deps 'nvidia-cuda-nvcc==13.0.88' \
  'nvidia-cuda-nvrtc==13.0.88'
# The wheel's programs come without their run bits.
chmod +x "$("$python" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")/nvidia/cu13/bin/ptxas"
