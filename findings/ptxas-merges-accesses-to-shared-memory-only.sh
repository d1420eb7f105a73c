#!/usr/bin/env bash
# ptxas 13.5.37 (PyPI: nvidia-cuda-nvcc) merges scalar accesses to shared memory into vector
# accesses, but not those to global memory.
#
# Seen, and expected by this script, for 4 words at 16 * tid, sm_75 and sm_100; no GPU or driver is
# needed:
#   4 st.shared.u32, 4 ld.shared.u32
#       become STS.128 and LDS.128, even if the variable has .align 4 only or is .extern, and if the
#       loads are not in the order of their addresses
#   3 of the 4 ld.shared.u32
#       become LDS.128 too, which reads a word that no PTX instruction reads
#   4 ld.global.u32, 4 st.global.u32
#       stay 4 LDG and 4 STG, although the pointers are parameters with .ptr .align 16
#   ld.volatile.shared, words at 4 * tid, and -O0
#       keep scalar accesses to shared memory
# One would guess that an access has the size that PTX gives it, or that known alignment is used for
# both memories.
# A profiler that predicts from PTX counts 4 accesses with 4-way bank conflicts where the GPU
# executes 1 without excess.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
tools=packages/nvidia/cu13/bin
chmod +x $tools/ptxas $tools/nvdisasm
$tools/ptxas --version | tail -2
# name, declaration of the shared array s, loads, expected opcodes, options
check() {
  cat >k.ptx <<P
.version 8.0
.target sm_75
.address_size 64
.extern .shared .align 4 .b32 dynamic[];
.visible .entry k(.param .u64 .ptr .global .align 16 in, .param .u64 .ptr .global .align 16 out) {
  .reg .b32 %r<8>, %thread, %stride, %s;
  .reg .b64 %in, %out, %at;
  $2
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  mov.u32 %thread, %tid.x;
  mul.lo.u32 %stride, %thread, $stride;
  mul.wide.u32 %at, %thread, 16;
  add.s64 %in, %in, %at;
  add.s64 %out, %out, %at;
  mov.u32 %s, $array;
  add.u32 %s, %s, %stride;
  ld.global.u32 %r0, [%in];
  ld.global.u32 %r1, [%in+4];
  ld.global.u32 %r2, [%in+8];
  ld.global.u32 %r3, [%in+12];
  st.shared.u32 [%s], %r0;
  st.shared.u32 [%s+4], %r1;
  st.shared.u32 [%s+8], %r2;
  st.shared.u32 [%s+12], %r3;
  bar.sync 0;
  $3
  st.global.u32 [%out], %r4;
  st.global.u32 [%out+4], %r5;
  st.global.u32 [%out+8], %r6;
  st.global.u32 [%out+12], %r7;
  ret;
}
P
  $tools/ptxas -arch="$arch" "${@:5}" k.ptx -o k.cubin
  seen=$($tools/nvdisasm --print-code k.cubin | grep -oE '\b(ST|LD)[GS][.A-Z0-9]*' |
    sed 's/\.E.*//; s/\.U//' | uniq -c | xargs)
  echo "$arch, $1: $seen"
  [ "$seen" = "$4" ]
}
load() { echo "ld.shared.u32 %r$1, [%s+$((1024 + 4 * ($1 - 4)))];"; }
loads="$(load 4) $(load 5) $(load 6) $(load 7)"
mixed="$(load 7) $(load 5) mul.lo.u32 %r5, %r5, %r7; $(load 4) $(load 6)"
three="$(load 4) $(load 5) $(load 6) mov.u32 %r7, 0;"
aligned='.shared .align 16 .b32 s[4096];'
scalar='4 LDG 4 STS 4 LDS 4 STG'
merged='4 LDG 1 STS.128 1 LDS.128 4 STG'
array=s
for arch in sm_75 sm_100; do
  stride=16
  check '.align 16' "$aligned" "$loads" "$merged"
  check '.align 4' '.shared .align 4 .b32 s[4096];' "$loads" "$merged"
  check 'another order' "$aligned" "$mixed" "$merged"
  check '3 loads' "$aligned" "$three" "$merged"
  volatile=${loads//ld.shared/ld.volatile.shared}
  check 'volatile' "$aligned" "$volatile" '4 LDG 1 STS.128 4 LDS 4 STG'
  check '-O0' "$aligned" "$loads" "$scalar" -O0
  array=dynamic check 'dynamic' '' "$loads" "$merged"
  stride=4
  check '4 * tid' "$aligned" "$loads" "$scalar"
done
