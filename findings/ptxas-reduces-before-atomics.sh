#!/usr/bin/env bash
# ptxas 13.5.37 (PyPI: nvidia-cuda-nvcc) lets one thread of a warp execute an atomic if the address
# does not depend on the thread.
#
# Seen, and expected by this script, for sm_80 and sm_100; no GPU or driver is needed:
#   red.global.add/min/max/and/or/xor of 32 bits, of a value that differs between threads
#       become REDUX (CREDUX) and a RED of 1 thread, at an address that is a parameter of the
#       kernel, or is computed from the block's index or from a loaded word
#   the same to shared memory
#       becomes REDUX and an ATOMS of 1 thread
#   red.global.add.f32 and .u64 of values that differ between threads
#       stay a RED of each thread
#   atom.global.exch whose result is unused
#       stays an ATOMG of each thread, while an unused atom.add is the same as red.add
#   -O0, or an address from the thread's index
#       stay a RED of each thread
# NVIDIA documents that its compiler aggregates increments. One would not guess that it does so with
# arbitrary values, and not for floats.
# A profiler that counts atomics in PTX, or advises to reduce over the warp first, is wrong by a
# factor of 32 for these.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
tools=packages/nvidia/cu13/bin
chmod +x $tools/ptxas $tools/nvdisasm
$tools/ptxas --version | tail -2
# name, instructions, expected kinds of instructions: @ is a predicate
check() {
  cat >k.ptx <<P
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .b32 %i, %block, %word, %old;
  .reg .b64 %in, %out, %at, %wide;
  .reg .f32 %f;
  .shared .b32 s;
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  mov.u32 %i, %tid.x;
  mov.u32 %block, %ctaid.x;
  cvt.u64.u32 %wide, %i;
  cvt.rn.f32.u32 %f, %i;
  $2
  ret;
}
P
  $tools/ptxas -arch="$arch" "${@:4}" k.ptx -o k.cubin
  seen=$($tools/nvdisasm --print-code k.cubin | grep -oE '(@!?U?P[0-9] +)?\b(C?REDUX|REDG?\.|ATOM[GS]?)' |
    sed -E 's/@!?U?P[0-9] +/@/; s/REDG?\./RED/; s/CREDUX/REDUX/' | xargs)
  echo "$arch, $1: $seen"
  [ "$seen" = "$3" ]
}
add='add.s64 %at, %at, %out; red.global.add.u32 [%at], %i;'
copy='ld.shared.u32 %word, [s]; st.global.u32 [%out], %word;'
for arch in sm_80 sm_100; do
  for operation in add.u32 min.u32 max.s32 and.b32 or.b32 xor.b32; do
    check "$operation" "red.global.$operation [%out], %i;" 'REDUX @RED'
  done
  check 'atom' 'atom.global.add.u32 %old, [%out], %i;' 'REDUX @RED'
  check 'block' "mul.wide.u32 %at, %block, 4; $add" 'REDUX @RED'
  check 'loaded word' "ld.global.u32 %word, [%in]; mul.wide.u32 %at, %word, 4; $add" 'REDUX @RED'
  check 'shared' "red.shared.add.u32 [s], %i; bar.sync 0; $copy" 'REDUX @ATOMS'
  check 'f32' 'red.global.add.f32 [%out], %f;' 'RED'
  check 'u64' 'red.global.add.u64 [%out], %wide;' 'RED'
  check 'exch' 'atom.global.exch.b32 %old, [%out], %i;' 'ATOMG'
  check 'thread' "mul.wide.u32 %at, %i, 4; $add" 'RED'
  check '-O0' 'red.global.add.u32 [%out], %i;' 'RED' -O0
done
