"""Compiles one CUDA C++ file to PTX with the NVRTC library given: nvrtc_compile.py LIBNVRTC [OPTION]... SOURCE

The PTX goes to standard output, without the comment lines in which NVRTC names its build and with source files named
without their folder: what is checked in then changes only when the code does.
"""

import ctypes
import os
import re
import sys

# The macro keeps NVRTC's built-in <nv/target> out, which otherwise
# leaves 38 unused globals in every module. Generic lambdas are host code unless told otherwise.
OPTIONS = ["--std=c++17", "-D__NV_TARGET_H", "--device-as-default-execution-space"]


def compile_to_ptx(nvrtc, name, source, includes, more):
    """Returns the PTX, or exits with the compiler's log. `includes` is the folder of its headers, `more` are
    further options."""

    def check(call, *arguments):
        result = getattr(nvrtc, call)(*arguments)
        if result != 0:
            nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            sys.exit(f"{name}: {call}: {nvrtc.nvrtcGetErrorString(result).decode()}")

    def text(size_call, text_call):
        size = ctypes.c_size_t()
        check(size_call, program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        check(text_call, program, buffer)
        return buffer.value.decode()

    program = ctypes.c_void_p()
    check("nvrtcCreateProgram", ctypes.byref(program), source, name.encode(), 0, None, None)
    options = [option.encode() for option in (f"-I{includes}", *OPTIONS, *more)]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    if failed:
        sys.exit(text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog"))
    return text("nvrtcGetPTXSize", "nvrtcGetPTX")


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: nvrtc_compile.py LIBNVRTC [OPTION]... SOURCE")
    library, *more, path = sys.argv[1:]
    with open(path, "rb") as file:
        source = file.read()
    folder, name = os.path.split(os.path.abspath(path))
    ptx = compile_to_ptx(ctypes.CDLL(library), name, source, folder, more)
    body = "\n".join(line for line in ptx.splitlines() if not line.startswith("//"))
    print(re.sub(r'(\.file\s+\d+\s+")[^"]*/', r"\1", body).strip())


if __name__ == "__main__":
    main()
