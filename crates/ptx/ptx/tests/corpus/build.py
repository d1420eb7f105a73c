#!/usr/bin/env python3
"""Compiles the .cu files beside this one to compressed PTX with NVRTC, which needs no GPU.

    build.py NAME LIBNVRTC INCLUDE_DIRS TARGET...

NAME goes into the file names (nvrtc12, nvrtc13), INCLUDE_DIRS are separated by colons. The libraries come from the
wheels nvidia-cuda-nvrtc-cu12 and nvidia-cuda-nvrtc, the headers from nvidia-cuda-runtime(-cu12), nvidia-cuda-crt and
nvidia-cuda-cccl. A target such as 80+debug@calls compiles calls.cu alone, with debugging information.
"""

import ctypes
import pathlib
import re
import subprocess
import sys


def compile_file(library, source, includes, target):
    architecture, _, mode = target.partition("+")
    options = [f"--gpu-architecture=compute_{architecture}", "--std=c++17", "--device-int128"]
    options += [f"--include-path={directory}" for directory in includes]
    options += {"": [], "debug": ["--device-debug"], "lines": ["--generate-line-info"]}[mode]
    program = ctypes.c_void_p()
    text = source.read_bytes()
    check(library.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None))
    arguments = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    result = library.nvrtcCompileProgram(program, len(options), arguments)
    if result != 0:
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        sys.exit(f"{source.name} for {target}:\n{log.value.decode()}")
    size = ctypes.c_size_t()
    check(library.nvrtcGetPTXSize(program, ctypes.byref(size)))
    ptx = ctypes.create_string_buffer(size.value)
    check(library.nvrtcGetPTX(program, ptx))
    return ptx.value.decode()


def check(result):
    if result != 0:
        sys.exit(f"NVRTC error {result}")


def main():
    name, path, includes, *targets = sys.argv[1:]
    library = ctypes.CDLL(path)
    here = pathlib.Path(__file__).parent
    for source in sorted(here.glob("*.cu")):
        seen = set()
        for target, _, only in (target.partition("@") for target in targets):
            if only not in ("", source.stem):
                continue
            ptx = compile_file(library, source, includes.split(":"), target)
            # Only file names: paths of the machine say nothing.
            ptx = re.sub(r'(\.file\s+\d+ ")[^"]*/', r"\1", ptx)
            # Most targets differ in nothing but the line that names them.
            body = re.sub(r"\.target .*", "", ptx)
            if body in seen:
                continue
            seen.add(body)
            packed = subprocess.run([here / "../../../../../scripts/zstd", "compress"], input=ptx.encode(), stdout=subprocess.PIPE, check=True)
            (here / f"{source.stem}.{name}.sm_{target.replace('+', '_')}.ptx.zst").write_bytes(packed.stdout)


main()
