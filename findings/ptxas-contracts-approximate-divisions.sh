#!/usr/bin/env bash
# ptxas 13.5.37 (PyPI: nvidia-cuda-nvcc) contracts div.approx and div.full with a following add into
# one FMA.
#
# Seen, and expected by this script, for sm_80, sm_90 and sm_100; no GPU or driver is needed:
#   add(div.approx(a, b), c), add(div.full(a, b), c)
#       end in FFMA: the quotient is a product with a reciprocal, and is not rounded by itself
#   add.rn instead of add, or a store of the quotient, which the sum reads again
#       end in FMUL and FADD
#   div.rn, and sqrt.approx, ex2.approx, rsqrt.approx with a following add
#       end in FADD
# One would guess that only mul and add are contracted: the PTX ISA says it of them alone, and there
# is no div.approx.rn to forbid it.
# With --use_fast_math, or __fdividef, a quotient that is also stored has other bits in sums; -fmad
# concerns compilers of CUDA C++, and PTX that avoids `mul` is not safe from contraction.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
tools=packages/nvidia/cu13/bin
chmod +x $tools/ptxas $tools/nvdisasm
$tools/ptxas --version | tail -2
# name, instructions, the last opcodes
check() {
  cat >k.ptx <<P
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .b64 %i, %o;
  .reg .f32 %a, %b, %c, %q, %sum;
  ld.param.u64 %i, [in];
  ld.param.u64 %o, [out];
  ld.global.f32 %a, [%i];
  ld.global.f32 %b, [%i+4];
  ld.global.f32 %c, [%i+8];
  $2
  st.global.f32 [%o], %sum;
  ret;
}
P
  $tools/ptxas -arch="$arch" k.ptx -o k.cubin
  seen=$($tools/nvdisasm --print-code k.cubin | sed '/EXIT/q' | grep -oE '\b(FMUL|FADD|FFMA)\b' | tr '\n' ' ')
  echo "$arch, $1: $seen"
  [[ "$seen" == *"$3 " ]]
}
add='add.f32 %sum, %q, %c;'
for arch in sm_80 sm_90 sm_100; do
  check 'div.approx' "div.approx.f32 %q, %a, %b; $add" 'FFMA'
  check 'div.full' "div.full.f32 %q, %a, %b; $add" 'FFMA'
  check 'div.approx, add.rn' "div.approx.f32 %q, %a, %b; ${add/add/add.rn}" 'FMUL FADD'
  check 'div.full, add.rn' "div.full.f32 %q, %a, %b; ${add/add/add.rn}" 'FMUL FADD'
  check 'div.approx, and a store' "div.approx.f32 %q, %a, %b; st.global.f32 [%o+4], %q; $add" 'FMUL FADD'
  check 'sqrt.approx' "sqrt.approx.f32 %q, %a; $add" 'FMUL FADD'
  check 'ex2.approx' "ex2.approx.f32 %q, %a; $add" 'FMUL FADD'
  check 'rsqrt.approx' "rsqrt.approx.f32 %q, %a; $add" 'FMUL FADD'
done
