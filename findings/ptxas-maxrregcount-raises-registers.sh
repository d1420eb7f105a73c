#!/usr/bin/env bash
# ptxas 13.5.37 (PyPI: nvidia-cuda-nvcc) uses more registers with a high -maxrregcount than without
# the option.
#
# Seen, and expected by this script, for 60 loads whose values are multiplied with each other; no
# GPU or driver is needed:
#   sm_80   32 registers without the option, 40 with -maxrregcount=40, 68 with 80, 128 or 255;
#           nothing is spilled
#   sm_90   56 registers without the option, 68 with 80, 128 or 255
#   300     gives the code of 255, not that of no option, although the warning says that the value
#           will be ignored
#   .maxnreg 255 in the PTX has the effect of -maxrregcount=255
#   .maxntid in the PTX makes ptxas ignore each of these values, the low ones too
# One would guess that an upper limit of 255, which is the hardware's own, changes nothing. The
# option also replaces ptxas's own aim for the number of registers.
# A tuner must treat "no option" as a choice of its own, and a profiler that advises a limit above
# the present number of registers can lower the occupancy.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
tools=packages/nvidia/cu13/bin
chmod +x $tools/ptxas $tools/nvdisasm
$tools/ptxas --version | tail -2
# kernel's directive
kernel() {
  python3 - "$1" <<'P'
import sys

N = 60
loads = "".join(f"ld.global.f32 %f{i}, [%in+{4 * i}];\n" for i in range(N))
products = "".join(f"mul.f32 %f{i}, %f{i}, %f{(i * 7 + 3) % N};\n" for i in range(N)) * 3
stores = "".join(f"st.global.f32 [%in+{4 * i}], %f{i};\n" for i in range(N))
print(f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in) {sys.argv[1]}
{{
.reg .f32 %f<{N}>;
.reg .b64 %in;
ld.param.u64 %in, [in];
{loads}{products}{stores}ret;
}}""")
P
}
kernel '' >plain.ptx
kernel '.maxnreg 255' >maxnreg.ptx
kernel '.maxntid 128' >maxntid.ptx
# architecture, PTX, value of -maxrregcount or "none", expected registers
check() {
  options=()
  if [ "$3" != none ]; then options=("-maxrregcount=$3"); fi
  $tools/ptxas -v -arch="$1" "${options[@]}" "$2.ptx" -o "$1-$2-$3.cubin" 2>log
  seen=$(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' log)
  echo "$1, $2, -maxrregcount $3: $seen registers, $(grep -o '[0-9]* bytes spill stores' log)"
  [ "$seen" = "$4" ]
}
for limit in none:32 40:40 80:68 128:68 255:68; do
  check sm_80 plain "${limit%:*}" "${limit#*:}"
done
grep -q ' 0 bytes spill stores' log
for limit in none:56 80:68 128:68 255:68; do
  check sm_90 plain "${limit%:*}" "${limit#*:}"
done
check sm_80 plain 300 68
grep 'will be ignored' log
code() { $tools/nvdisasm --print-code "$1"; }
cmp <(code sm_80-plain-255.cubin) <(code sm_80-plain-300.cubin)
check sm_80 maxnreg none 68
for limit in none 24 255; do
  check sm_80 maxntid $limit 32
done
