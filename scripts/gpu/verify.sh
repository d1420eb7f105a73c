#!/usr/bin/env bash
# Are outputs the same with and without APEX, and are the launches that it records those that CUPTI counts?
#
#   scripts/gpu/verify.sh [OUT]          # APEX_BIN: folder of apex and its libraries (default: target/release)
#
# Builds the programs of programs/verify and runs them and the Python programs there with verify.py, which says what is
# compared. Prints a table, writes OUT/verify.json; exit status 1 when anything differs. APEX_BIN= (empty) checks the
# programs and CUPTI alone. Needs PyTorch, Triton, CuPy and JAX.
source "$(dirname "$0")/common.sh"
apex=${APEX_BIN-$here/../../target/release}

nvcc_program() { "$nvcc" -arch="$arch" -O2 -std=c++17 -o "$build/$1" "$programs/verify/$2.cu" "${@:3}"; }
build_cupti_count &
nvcc_program runtime-static runtime -cudart static &
nvcc_program runtime-shared runtime -cudart shared -Xlinker -rpath,"$cuda/lib64" &
nvcc_program runtime-per-thread runtime --default-stream per-thread &
nvcc_program features features &
nvcc_program graphs graphs &
nvcc_program threads threads &
nvcc_program threads-per-thread threads --default-stream per-thread &
nvcc_program processes processes &
build_c verify/driver_api &
"$nvcc" -arch="$arch" -cubin -o "$build/driver_kernels.cubin" "$programs/verify/driver_kernels.cu" &
"$nvcc" -arch="$arch" -ptx -o "$build/driver_kernels.ptx" "$programs/verify/driver_kernels.cu" &
wait_all

python3 "$here/verify.py" --build "$build" --cupti "$build/cupti_count.so" --out "$out" --work "$build/verify" \
  ${apex:+--apex "$apex"} ${ONLY:+--only $ONLY}
