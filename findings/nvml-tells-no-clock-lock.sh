#!/usr/bin/env bash
# NVML 13.5.37 (PyPI: nvidia-nvml-dev) can lock a GPU's clocks and can reset the lock, but no
# function reads it back.
#
# Seen, and expected by this script, in the header alone; no GPU is needed:
#   functions about locked clocks: two that set, two that reset, none that gets
#   getters whose description names these: the two that list which clocks may be locked
#   reasons for low clocks: the one for settings (bit 2) is "no longer used"; none names locks
# One would guess that what nvidia-smi -lgc sets can be asked for, as application clocks can.
# A tool that locks clocks cannot put back the lock of another tool, and can see it only by what it
# does: a busy GPU that nothing else holds and that stays below its highest clock.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  nvidia-nvml-dev==13.5.37
cat >locked.py <<'P'
import pathlib, re

header = next(pathlib.Path("packages").rglob("nvml.h")).read_text()
declared = set(re.findall(r"^(?:DEPRECATED\([\d.]+\) )?nvmlReturn_t DECLDIR (nvml\w+)\(", header, re.M))
locked = sorted(name for name in declared if "LockedClocks" in name)
print("about locked clocks:", locked)
assert len(declared) > 300 and "nvmlDeviceGetApplicationsClock" in declared
assert locked == [
    "nvmlDeviceResetGpuLockedClocks",
    "nvmlDeviceResetMemoryLockedClocks",
    "nvmlDeviceSetGpuLockedClocks",
    "nvmlDeviceSetMemoryLockedClocks",
]
described = re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*nvmlReturn_t DECLDIR (nvml\w+)\(", header, re.S)
getters = sorted(name for text, name in described if "Get" in name and "LockedClocks" in text)
print("getters that name them:", getters)
assert getters == ["nvmlDeviceGetSupportedGraphicsClocks", "nvmlDeviceGetSupportedMemoryClocks"]
lines = header.splitlines()
at = next(n for n, line in enumerate(lines) if "define nvmlClocksEventReasonApplicationsClocksSetting" in line)
last = max(n for n, line in enumerate(lines) if re.search(r"define nvmlClocksEventReason\w+ +0x", line))
first = min(n for n, line in enumerate(lines) if re.search(r"define nvmlClocksEventReason\w+ +0x", line))
text = "\n".join(lines[first - 10 : last + 1])
print("reason for settings:", lines[at].strip())
assert "0x0000000000000002" in lines[at] and "No longer used" in "".join(lines[at - 3 : at])
assert "locked" not in text.lower()
P
python3 locked.py
