# Shared by the scripts of this folder; sourced, not run.
#
# Each script takes a folder for its results as its first argument (default: $OUT, else ./out) and builds what it needs
# in a temporary folder. It wants CUDA 13 (nvcc on PATH, or CUDA_HOME), a driver, gcc and python3.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$here/programs
out=${1:-${OUT:-out}}
mkdir -p "$out"
out=$(cd "$out" && pwd)
if [ -z "${BUILD:-}" ]; then
  BUILD=$(mktemp -d)
  trap 'rm -rf "$BUILD"' EXIT
fi
build=$BUILD

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# cuda_home: the toolkit's root, from CUDA_HOME or from where nvcc is.
cuda_home() {
  if [ -n "${CUDA_HOME:-}" ]; then
    echo "$CUDA_HOME"
  else
    local nvcc
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || fail "no nvcc: install CUDA 13 or set CUDA_HOME"
    dirname "$(dirname "$(readlink -f "$nvcc")")"
  fi
}

# driver_library: path of the real libcuda.so.1. ldconfig's cache first, as the dynamic linker would.
driver_library() {
  if [ -n "${LIBCUDA:-}" ]; then
    echo "$LIBCUDA"
  else
    local found
    found=$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | awk '$1 == "libcuda.so.1" && /x86-64/ { print $NF; exit }')
    [ -n "$found" ] || fail "ldconfig knows no libcuda.so.1: is the driver installed?"
    echo "$found"
  fi
}

# architecture: the first GPU's, such as sm_90.
architecture() {
  local capability
  capability=${COMPUTE_CAPABILITY:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1)}
  echo "sm_${capability//./}"
}

# build_c NAME: programs/NAME.c as a driver-API program, in $build.
build_c() {
  gcc -std=gnu11 -O2 -Wall -Wextra -I"$cuda/include" "$programs/$1.c" -o "$build/$(basename "$1")" \
    "$driver" -Wl,-rpath,"$(dirname "$driver")" -ldl -lpthread -lm
}

# build_cupti_count: the CUPTI injection, $build/cupti_count.so.
build_cupti_count() {
  local headers
  headers=$(dirname "$(find -L "$cuda" "$cuda/extras/CUPTI" -name cupti.h 2>/dev/null | head -1)")
  local library
  library=$(find -L "$cuda" -name 'libcupti.so' 2>/dev/null | head -1)
  [ -n "$library" ] || fail "no CUPTI in $cuda: install it with the toolkit"
  g++ -std=c++17 -O2 -Wall -Wextra -shared -fPIC -I"$cuda/include" -I"$headers" "$programs/cupti_count.cpp" \
    -o "$build/cupti_count.so" "$library" -Wl,-rpath,"$(dirname "$library")"
}

# wait_all: waits for all background jobs; fails if one of them failed.
wait_all() {
  local job status=0
  for job in $(jobs -p); do wait "$job" || status=1; done
  [ "$status" = 0 ] || fail "a program could not be built"
}

# provenance COMMAND: the comment lines that open every committed result.
provenance() {
  echo "# $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1 | sed 's/, /, driver /'), $(date -u +%F)"
  echo "# made by: $1"
}

cuda=$(cuda_home)
driver=$(driver_library)
arch=$(architecture)
nvcc=$cuda/bin/nvcc
