#!/usr/bin/env bash
# numba-cuda 0.30.4 (PyPI: numba-cuda) knows two levels of optimisation for kernels, whatever NUMBA_OPT says.
#
# Seen, and expected by this script; no GPU or driver is needed:
#   NUMBA_OPT=1, 2 and 3   give the same PTX, which is that of no NUMBA_OPT
#   NUMBA_OPT=0            gives PTX that is more than twice as long
# One would guess that 1 optimises less than 3, as it does for Numba's code for the CPU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check 'numba-cuda[cu13]==0.30.4' numba==0.68.1 nvidia-nvvm==13.5.37
cat >compile.py <<'P'
from numba import cuda, types


def weighted(x, n):
    i = cuda.grid(1)
    if i < n:
        total = 0.0
        for j in range(4):
            total += x[i] * j
        x[i] = total


print(cuda.compile_ptx(weighted, types.void(types.float32[:], types.int32), cc=(8, 0))[0])
P
env -u NUMBA_OPT venv/bin/python compile.py >unset.ptx
for level in 0 1 2 3; do
  NUMBA_OPT=$level venv/bin/python compile.py >"$level.ptx"
  echo "NUMBA_OPT=$level: $(wc -c <"$level.ptx") bytes of PTX (unset: $(wc -c <unset.ptx))"
done
for level in 1 2 3; do
  cmp unset.ptx "$level.ptx"
done
[ "$(wc -c <0.ptx)" -gt $((2 * $(wc -c <3.ptx))) ]
