#!/usr/bin/env bash
# nvJitLink 13.0.88 (PyPI: nvidia-nvjitlink) gives PTX back only for link-time optimisation, whatever goes in.
#
# Seen, and expected by this script; no GPU or driver is needed:
#   nvJitLinkCreate with -arch=compute_80 -ptx        fails: the option needs -lto
#   nvJitLinkCreate with -arch=compute_80 -lto -ptx   succeeds
#   … and then PTX as an input of nvJitLinkAddData or of the link fails: it must be LTO-IR
# One would guess that a linker which takes PTX and has an option for PTX links PTX to PTX.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages nvidia-nvjitlink==13.0.88
python3 - <<'P'
import ctypes, glob

lib = ctypes.CDLL(glob.glob("packages/nvidia/**/libnvJitLink.so.13", recursive=True)[0])
major, minor = ctypes.c_uint(), ctypes.c_uint()
lib.nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor))
print(f"nvJitLink {major.value}.{minor.value}")
PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n\0"


def link(*options):
    """The status of creation, and that of adding and linking PTX."""
    handle = ctypes.c_void_p()
    given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    created = lib.nvJitLinkCreate(ctypes.byref(handle), len(options), given)
    if created:
        return created, None
    kind_ptx = 2
    added = lib.nvJitLinkAddData(handle, kind_ptx, PTX, ctypes.c_size_t(len(PTX)), b"k.ptx")
    return created, added or lib.nvJitLinkComplete(handle)


seen = {options: link(*options.split()) for options in ("-arch=compute_80 -ptx", "-arch=compute_80 -lto -ptx", "-arch=sm_80")}
for options, (created, later) in seen.items():
    print(f"{options}: create {created}, link {later}")
assert seen["-arch=compute_80 -ptx"][0] != 0
assert seen["-arch=compute_80 -lto -ptx"][0] == 0 and seen["-arch=compute_80 -lto -ptx"][1] != 0
assert seen["-arch=sm_80"] == (0, 0), "PTX is linked to machine code"
P
