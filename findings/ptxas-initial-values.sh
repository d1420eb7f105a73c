#!/usr/bin/env bash
# ptxas 13.5.37 (PyPI: nvidia-cuda-nvcc) reads initial values of PTX variables otherwise than C does.
#
# Seen, and expected by this script:
#   {{1}, {2}, {3}} for a[3][2]   the numbers are filled in from the front, zeros follow: 1 2 3 0 0 0, not 1 0 2 0 3 0
#   0f3f800000 as an f64          is the pattern 0x000000003f800000, not 1.0
#   -7 % 4                        is 1: the remainder is that of unsigned numbers, while -8 / 4 is -2
#   1 << 65                       is 2: the count is modulo 64
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages nvidia-cuda-nvcc==13.5.37
chmod +x packages/nvidia/cu13/bin/ptxas
packages/nvidia/cu13/bin/ptxas --version | tail -2

# name, declaration, expected bytes
check() {
  printf '.version 8.0\n.target sm_80\n.address_size 64\n%s\n' "$2" >case.ptx
  packages/nvidia/cu13/bin/ptxas -arch=sm_80 case.ptx -o case.cubin
  python3 - "$1" "$3" <<'P'
import struct, sys

data = open("case.cubin", "rb").read()
at, = struct.unpack_from("<Q", data, 0x28)
size, count, names = struct.unpack_from("<HHH", data, 0x3A)
sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
name = lambda s: data[sections[names][4] + s[0] :].split(b"\0")[0].decode()
found = next(data[s[4] : s[4] + s[5]].hex() for s in sections if name(s) == ".nv.global.init")
print(f"{sys.argv[1]}: {found}")
sys.exit(f"expected {sys.argv[2]}" if found != sys.argv[2] else 0)
P
}
check 'nested' '.visible .global .align 4 .u32 a[3][2] = {{1}, {2}, {3}};' 010000000200000003000000000000000000000000000000
check '0f as f64' '.visible .global .align 8 .f64 a[1] = {0f3f800000};' 0000803f00000000
check '-7 % 4' '.visible .global .align 8 .s64 a[1] = {-7 % 4};' 0100000000000000
check '-8 / 4' '.visible .global .align 8 .s64 a[1] = {-8 / 4};' feffffffffffffff
check '1 << 65' '.visible .global .align 8 .u64 a[1] = {1 << 65};' 0200000000000000
