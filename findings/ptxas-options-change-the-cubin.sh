#!/usr/bin/env bash
# ptxas 13.5.37 (PyPI: nvidia-cuda-nvcc) stores its command line in the cubin, so options without
# any effect on the code change the file.
#
# Seen, and expected by this script; no GPU or driver is needed:
#   -v, -w and -O3 (the default)
#       each give a cubin with other bytes, whose code is the same
#   -O1 and -O2
#       too: for this kernel their code is that of -O3, while the code of -O0 is longer
#   --gpu-name sm_80 instead of -arch=sm_80, and another name of the input file
#       give the same bytes
# One would guess that an option which only prints does not change the output.
# A profiler or a tuner that names a cubin by a hash of the file sees two kernels where there is
# one; it should hash the code instead.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
tools=packages/nvidia/cu13/bin
chmod +x $tools/ptxas $tools/nvdisasm
$tools/ptxas --version | tail -2
cat >k.ptx <<'P'
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .b64 %a<3>;
  .reg .f32 %f<3>;
  ld.param.u64 %a1, [in];
  ld.param.u64 %a2, [out];
  ld.global.f32 %f1, [%a1];
  fma.rn.f32 %f2, %f1, %f1, %f1;
  st.global.f32 [%a2], %f2;
  ret;
}
P
cp k.ptx other.ptx
# name, input, options
build() {
  $tools/ptxas "${@:3}" "$2" -o "$1.cubin" >/dev/null 2>&1
  $tools/nvdisasm --print-code --print-instruction-encoding "$1.cubin" >"$1.code"
  options=$($tools/nvdisasm --emit-json "$1.cubin" | sed -n 's/.*"tki_toolOptions": *"\([^"]*\)".*/\1/p')
  echo "$1: file $(sha256sum <"$1.cubin" | cut -c1-12), code $(sha256sum <"$1.code" | cut -c1-12), stored options '$options'"
}
build plain k.ptx -arch=sm_80
build long k.ptx --gpu-name sm_80
build renamed other.ptx -arch=sm_80
build verbose k.ptx -arch=sm_80 -v
build quiet k.ptx -arch=sm_80 -w
for level in 0 1 2 3; do
  build "O$level" k.ptx -arch=sm_80 "-O$level"
done
cmp plain.cubin long.cubin
cmp plain.cubin renamed.cubin
for name in verbose quiet O1 O2 O3; do
  cmp plain.code "$name.code"
  if cmp --silent plain.cubin "$name.cubin"; then exit 1; fi
done
[ "$(wc -l <O0.code)" -gt "$(wc -l <plain.code)" ]
