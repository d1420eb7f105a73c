#!/usr/bin/env bash
# Keras 3.15.1 with KERAS_BACKEND=numpy cannot be imported without SciPy and JAX.
#
# Seen, and expected by this script; no GPU is needed:
#   with the packages that keras==3.15.1 requires (numpy among them)
#       ModuleNotFoundError: No module named 'scipy'
#   with scipy beside them
#       ModuleNotFoundError: No module named 'jax'
# One would guess that the NumPy backend needs NumPy, and that it is the light way to test callbacks
# of Keras without a framework for GPUs.
# A tool that tests a callback of Keras has to install JAX, PyTorch or TensorFlow.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
pip() { python3 -m pip install --quiet --disable-pip-version-check --no-compile --target packages "$@"; }
pip keras==3.15.1 numpy==2.4.6
export PYTHONPATH=$folder/packages KERAS_BACKEND=numpy
missing() {
  local said
  said=$(python3 -c 'import keras' 2>&1 | tail -1 || true)
  echo "$said"
  [ "$said" = "ModuleNotFoundError: No module named '$1'" ]
}
missing scipy
pip --no-deps scipy==1.17.1
missing jax
