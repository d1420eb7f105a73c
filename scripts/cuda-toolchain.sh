#!/usr/bin/env bash
# Installs a working nvcc into a folder, without a CUDA installation, a GPU or root rights.
#
#   scripts/cuda-toolchain.sh DIR [13|12]        # afterwards: DIR/bin/nvcc program.cu
#
# NVIDIA publishes the parts of its toolkit on PyPI. Unpacked over one another they are a toolkit: cudafe++, cicc,
# ptxas, fatbinary, nvlink, the headers, and libcudart, static and shared. Three things are missing from the wheels and
# are supplied here: the run bits of the binaries, the link `libcudart.so` that `-cudart shared` asks for, and the folder
# `lib64` where nvcc looks for libraries. Versions are pinned, so that tests run against a known compiler.
#
# The second word is the version of the runtime: its headers and libraries. The compiler is that of CUDA 13 in both: there
# are no wheels of an older one.
#
# A folder that already holds this very toolchain is left as it is; one that holds anything else is an error.
set -euo pipefail

compiler=(
  nvidia-cuda-nvcc==13.0.88 # nvcc, cudafe++, ptxas, fatbinary, nvlink
  nvidia-nvvm==13.0.88      # cicc, libdevice
  nvidia-cuda-crt==13.0.88  # the compiler's own headers
)
runtime_13=(
  nvidia-cuda-runtime==13.0.96 # libcudart and its headers, cuda.h
  nvidia-cuda-cccl==13.0.85    # CUB, Thrust, libcu++; cuda_fp16.h and cooperative_groups.h include nv/target
)
runtime_12=(nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-cccl-cu12==12.9.27)

fail() {
  echo "cuda-toolchain: $*" >&2
  exit 1
}

version=${2:-13}
case $#-$version in
  1-13 | 2-13) wheels=("${compiler[@]}" "${runtime_13[@]}") ;;
  2-12) wheels=("${compiler[@]}" "${runtime_12[@]}") ;;
  *) fail "usage: scripts/cuda-toolchain.sh DIR [13|12]" ;;
esac
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "only Linux on x86-64 is supported"
python=$(command -v python3) || fail "python3 with pip is needed to fetch the wheels"

target=${1%/}
stamp=$target/.wheels
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${wheels[*]}" ]; then
  exit 0
fi
if [ -d "$target" ] && [ -n "$(ls -A "$target")" ]; then
  fail "$target is not empty and does not hold this toolchain: name another folder, or remove it"
fi

# Built beside its final place and moved there whole: a run that is interrupted leaves no half toolchain behind.
mkdir -p "$(dirname "$target")"
staging=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$staging"' EXIT

"$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile --only-binary=:all: \
  --target "$staging/wheels" "${wheels[@]}" || fail "pip could not fetch ${wheels[*]}"
root=$staging/wheels/nvidia/cu13
[ -d "$root" ] || fail "the wheels no longer unpack to nvidia/cu13"
if [ "$version" = 12 ]; then
  cp -r "$staging"/wheels/nvidia/{cuda_runtime,cuda_cccl}/{include,lib} "$root"
fi

chmod -R u+x "$root/bin" "$root/nvvm/bin"
ln -s "libcudart.so.$version" "$root/lib/libcudart.so"
ln -s lib "$root/lib64"
echo "${wheels[*]}" >"$root/.wheels"

"$root/bin/nvcc" --version >/dev/null || fail "the nvcc that was unpacked does not run"
[ ! -d "$target" ] || rmdir "$target"
chmod 755 "$root"
mv "$root" "$target"
