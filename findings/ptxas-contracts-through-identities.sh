#!/usr/bin/env bash
# ptxas 13.5.37 (PyPI: nvidia-cuda-nvcc) contracts a product and a sum into one FMA also where other
# instructions lie between both in the PTX, because it removes what changes no number first.
#
# Seen, and expected by this script, for sm_80, sm_90 and sm_100; no GPU or driver is needed:
#   mul, then cvt.f32.f32, or min or max of the product and itself, or mul.rn with 1, then add
#       ends in FFMA
#   mul, then max with minus infinity, or a store and a load of the same address, then add
#       ends in FADD
# One would guess that a rounding modifier, or a conversion, between a product and a sum keeps them
# apart.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
tools=packages/nvidia/cu13/bin
chmod +x $tools/ptxas $tools/nvdisasm
$tools/ptxas --version | tail -2
# instructions between the product %p and the sum, the last opcode
check() {
  cat >k.ptx <<P
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .b64 %i, %o;
  .reg .f32 %a, %b, %c, %p, %q, %sum;
  ld.param.u64 %i, [in];
  ld.param.u64 %o, [out];
  ld.global.f32 %a, [%i];
  ld.global.f32 %b, [%i+4];
  ld.global.f32 %c, [%i+8];
  mul.f32 %p, %a, %b;
  $1
  add.f32 %sum, %q, %c;
  st.global.f32 [%o], %sum;
  ret;
}
P
  $tools/ptxas -arch="$arch" k.ptx -o k.cubin
  seen=$($tools/nvdisasm --print-code k.cubin | sed '/EXIT/q' | grep -oE '\b(FMUL|FADD|FFMA)\b' | tr '\n' ' ')
  echo "$arch, $1 $seen"
  [[ "$seen" == *"$2 " ]]
}
for arch in sm_80 sm_90 sm_100; do
  check 'cvt.f32.f32 %q, %p;' FFMA
  check 'min.f32 %q, %p, %p;' FFMA
  check 'max.f32 %q, %p, %p;' FFMA
  check 'mul.rn.f32 %q, %p, 0f3F800000;' FFMA
  check 'max.f32 %q, %p, 0fFF800000;' FADD
  check 'st.global.f32 [%o+4], %p; ld.global.f32 %q, [%o+4];' FADD
done
