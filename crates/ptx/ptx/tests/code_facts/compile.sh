#!/usr/bin/env bash
# Compiles the kernels whose facts tests/code_facts.rs checks: programs of testing/corpus/cuda and limits.cu with nvcc
# (scripts/nvcc), and the two of triton_kernels.py with Triton 3.9.0, which needs no GPU. Paths of the machine say nothing and are left out.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../../.." && pwd)
for name in bank_conflicts constant_table double_literals hashed_slots malloc_in_kernel naive_product strided_reads \
  structures sum_in_memory table_of_pointers transpose printing_kernel volatile_sums; do
  "$root/scripts/nvcc" -std=c++17 -O2 -lineinfo -arch=compute_90 -ptx -I "$root/testing/corpus/cuda" \
    -o "$here/$name.ptx" "$root/testing/corpus/cuda/$name.cu"
done
"$root/scripts/nvcc" -std=c++17 -O2 -lineinfo -arch=compute_90 -ptx -o "$here/limits.ptx" "$here/limits.cu"
python3 "$here/triton_kernels.py"
sed -i -E 's#(\.file[[:space:]]+[0-9]+ ")[^"]*/#\1#' "$here"/*.ptx
