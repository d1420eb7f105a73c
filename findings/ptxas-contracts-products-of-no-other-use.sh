#!/usr/bin/env bash
# ptxas 13.5.37 (PyPI: nvidia-cuda-nvcc) contracts mul and add into one FMA, unless the product has
# another use.
#
# Seen, and expected by this script, for sm_80, sm_90 and sm_100; no GPU or driver is needed:
#   add(mul(a, b), c)
#       is 1 FFMA, without a rounding of the product
#   add(mul(a, b), c) and add(mul(a, b), a)
#       are 2 FFMAs: each of them computes the product
#   the same 2 sums, and a store of the product
#       are 1 FMUL and 2 FADDs: both sums can have other bits now
#   add in another basic block than mul, mul.rn or add.rn instead of one of them, or -O0
#       are FMUL and FADD
# One would guess that a store of a value does not change another result, or that the FFMAs stay
# beside an FMUL for the store.
# A profiler that adds stores to a kernel, or a tuner that compares outputs bit by bit, sees results
# change because of an instruction that only reads.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
tools=packages/nvidia/cu13/bin
chmod +x $tools/ptxas $tools/nvdisasm
$tools/ptxas --version | tail -2
# name, instructions, expected opcodes, options
check() {
  cat >k.ptx <<P
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {
  .reg .pred %p;
  .reg .b32 %n;
  .reg .b64 %i, %o;
  .reg .f32 %a, %b, %c, %product, %sum, %other;
  ld.param.u64 %i, [in];
  ld.param.u64 %o, [out];
  ld.param.u32 %n, [n];
  ld.global.f32 %a, [%i];
  ld.global.f32 %b, [%i+4];
  ld.global.f32 %c, [%i+8];
  $2
  ret;
}
P
  $tools/ptxas -arch="$arch" "${@:4}" k.ptx -o k.cubin
  seen=$($tools/nvdisasm --print-code k.cubin | grep -o 'FMUL\|FADD\|FFMA' | sort | tr '\n' ' ')
  echo "$arch, $1: $seen"
  [ "$seen" = "$3" ]
}
mul='mul.f32 %product, %a, %b;'
add='add.f32 %sum, %product, %c; st.global.f32 [%o], %sum;'
second='add.f32 %other, %product, %a; st.global.f32 [%o+4], %other;'
for arch in sm_80 sm_90 sm_100; do
  check '1 sum' "$mul $add" 'FFMA '
  check '2 sums' "$mul $add $second" 'FFMA FFMA '
  check '2 sums and a store' "$mul $add $second st.global.f32 [%o+8], %product;" 'FADD FADD FMUL '
  check '1 sum and a store' "$mul $add st.global.f32 [%o+8], %product;" 'FADD FMUL '
  check '2 blocks' "$mul setp.gt.u32 %p, %n, 5; @%p bra END; membar.gl; $add END:" 'FADD FMUL '
  check 'mul.rn' "${mul/mul/mul.rn} $add" 'FADD FMUL '
  check 'add.rn' "$mul ${add/add/add.rn}" 'FADD FMUL '
  check '-O0' "$mul $add" 'FADD FMUL ' -O0
done
