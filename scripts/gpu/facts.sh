#!/usr/bin/env bash
# Collects facts about the driver and the device that the recorder, its calibration and the occupancy formula rest on.
#
#   scripts/gpu/facts.sh [OUT]
#
# Writes into OUT:
#   driver.txt                driver, device, host: versions, symbols, clock source, device files
#   addresses.csv             which exported symbol cuGetProcAddress_v2 returns for which name, version and flags
#   device.csv                all attributes of device 0
#   occupancy.csv             the driver's occupancy for random launch configurations
#   occupancy-refused.csv     the configurations that it refuses, and with which error
#   call-costs.csv            CPU time of single driver calls
#   captures.csv              which questions to the driver invalidate a stream capture
#   event-pairs.csv           what event pairs read around kernels of known length
source "$(dirname "$0")/common.sh"
rows=${ROWS:-6000}

"$nvcc" -arch="$arch" -cubin -o "$build/kernels.cubin" "$programs/kernels.cu" &
"$nvcc" -arch="$arch" -cubin -o "$build/occupancy.cubin" "$programs/occupancy_kernels.cu" &
"$nvcc" -arch="$arch" -cudart static -o "$build/handle_runtime" "$programs/handle_runtime.cu" &
for name in occupancy addresses call_costs captures event_pairs handles; do build_c "$name" & done
gcc -O2 -Wall -shared -fPIC -I"$cuda/include" -Wl,-soname,libcuda.so.1 -o "$build/handle_shim.so" "$programs/handle_shim.c" -ldl &
wait_all
nm -D --defined-only "$driver" | awk '$3 ~ /^cu/ { sub(/@.*/, "", $3); print $3 }' | sort -u >"$build/symbols"

# step NAME COMMAND...: a failing step is named and does not keep the others from running.
failed=0
step() {
  local name=$1
  shift
  "$@" || { echo "facts: $name failed ($?)" >&2; failed=1; }
}

describe() {
  provenance "scripts/gpu/facts.sh"
  echo "## driver library"
  ls -lL "$driver"
  readlink -f "$driver"
  readelf -d "$driver" | grep -E 'SONAME|NEEDED' || true
  readelf -n "$driver" | grep 'Build ID' || true
  ldconfig -p | grep -E 'libcuda|libcupti|libcudart' || true
  ls -l /dev/nvidia* || true
  echo "## defined dynamic symbols: $(nm -D --defined-only "$driver" | wc -l), of which cu*: $(wc -l <"$build/symbols")"
  nm -D --defined-only "$driver" | awk '{ print $2, $3 }' | grep -v '^T cu' || true
  echo "## host"
  uname -srm
  getconf GNU_LIBC_VERSION
  lscpu | grep -E '^(Model name|CPU\(s\)|Thread|Core|Socket|NUMA|Hypervisor|L3)' || true
  grep -m1 ^flags /proc/cpuinfo | tr ' ' '\n' | grep -E 'tsc|hypervisor' | tr '\n' ' ' || true
  echo
  echo "clock source: $(cat /sys/devices/system/clocksource/clocksource0/current_clocksource 2>/dev/null || echo unknown)"
  echo "## toolkit"
  "$nvcc" --version | tail -2
  echo "## device"
  nvidia-smi --query-gpu=name,driver_version,compute_cap,clocks.sm,clocks.max.sm,clocks.mem,pstate,persistence_mode,compute_mode,mig.mode.current --format=csv
  echo "## CUkernel cast to CUfunction"
  "$build/handles" "$build/kernels.cubin" kernel || echo "exit $?"
  echo "## CUfunction cast to CUkernel"
  "$build/handles" "$build/kernels.cubin" function || echo "exit $?"
  echo "## what <<<>>> gives to cuLaunchKernel"
  REAL_LIBCUDA=$driver LD_PRELOAD=$build/handle_shim.so "$build/handle_runtime" || echo "exit $?"
}

step driver describe >"$out/driver.txt" 2>&1
{ provenance "scripts/gpu/facts.sh"; step addresses "$build/addresses" "$build/symbols" "$driver"; } >"$out/addresses.csv"
step occupancy "$build/occupancy" "$build/occupancy.cubin" "$rows" 20261120 "$build/answers" "$build/refusals" "$build/device"
for pair in answers:occupancy refusals:occupancy-refused device:device; do
  { provenance "scripts/gpu/facts.sh"; cat "$build/${pair%%:*}"; } >"$out/${pair##*:}.csv"
done
{ provenance "scripts/gpu/facts.sh"; step costs "$build/call_costs" "$build/kernels.cubin"; } >"$out/call-costs.csv"
{ provenance "scripts/gpu/facts.sh"; step captures "$build/captures" "$build/kernels.cubin"; } >"$out/captures.csv"
{ provenance "scripts/gpu/facts.sh"; step pairs "$build/event_pairs" "$build/kernels.cubin"; } >"$out/event-pairs.csv"
exit "$failed"
