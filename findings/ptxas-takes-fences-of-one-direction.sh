#!/usr/bin/env bash
# ptxas of CUDA 12.8, 12.9 and 13.0 (PyPI: nvidia-cuda-nvcc-cu12 12.8.93 and 12.9.86,
# nvidia-cuda-nvcc 13.0.88) takes fence.acquire and fence.release for targets before sm_90;
# that of 13.5.37 refuses the same file.
#
# Seen, and expected by this script; no GPU or driver is needed:
#   fence.acquire.cta and fence.release.gpu in a module with `.target sm_80`
#       are assembled by 12.8, 12.9 and 13.0, and refused by 13.5:
#       "Modifier '.acquire' on 'fence' requires .target sm_90 or higher"
#   mma.sync…kind::f8f6f4 on pairs of e4m3 and e5m2
#       is assembled for sm_100a by all four; with e2m1 it is refused, and sm_120a takes both
# One would guess that a form which an assembler takes for a target stays a form of this target:
# the PTX ISA says sm_90 and sm_120a, and only the newest ptxas enforces the first.
# A table of targets that was tested with one ptxas is wrong for another.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in nvidia-cuda-nvcc-cu12==12.8.93 nvidia-cuda-nvcc-cu12==12.9.86 \
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-nvcc==13.5.37; do
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "${package#*==}" "$package"
  find "${package#*==}" -name ptxas -exec chmod +x {} +
done
for fence in acquire.cta release.gpu; do
  printf '.version 8.7\n.target sm_80\n.address_size 64\n.visible .entry k() { fence.%s; ret; }\n' "$fence" >"$fence.ptx"
done
for second in e5m2 e2m1; do
  cat >"$second.ptx" <<P
.version 8.7
.target TARGET
.address_size 64
.visible .entry k(.param .u64 p) {
.reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %a;
ld.param.u64 %a, [p]; ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%a]; ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%a];
mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.$second.f32 {%f4, %f5, %f6, %f7}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%f0, %f1, %f2, %f3};
st.global.v4.f32 [%a], {%f4, %f5, %f6, %f7};
ret;
}
P
done
# version, target, file
assembles() {
  sed "s/TARGET/$2/" "$3" >asked.ptx
  if "$(find "$1" -name ptxas)" -arch="$2" asked.ptx -o /dev/null 2>said; then
    echo "$1 $2 $3: taken"
  else
    echo "$1 $2 $3: refused: $(head -1 said | cut -d';' -f2-)"
    return 1
  fi
}
for version in 12.8.93 12.9.86 13.0.88; do
  assembles "$version" sm_80 acquire.cta.ptx
  assembles "$version" sm_80 release.gpu.ptx
done
for file in acquire.cta.ptx release.gpu.ptx; do
  if assembles 13.5.37 sm_80 "$file"; then exit 1; fi
done
for version in 12.8.93 12.9.86 13.0.88 13.5.37; do
  assembles "$version" sm_100a e5m2.ptx
  assembles "$version" sm_120a e5m2.ptx
  assembles "$version" sm_120a e2m1.ptx
  if assembles "$version" sm_100a e2m1.ptx; then exit 1; fi
done
