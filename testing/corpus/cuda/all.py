"""Prints one CUDA C++ source that holds all programs of this folder: its first argument says which of them runs.

    python3 all.py >all.cu && nvcc -std=c++17 -lineinfo -I FOLDER all.cu

One file compiles in a seventh of the time of all of them. Each program is in a namespace of its own, and keeps its lines.
"""

import pathlib

folder = pathlib.Path(__file__).resolve().parent
names = sorted(path.stem for path in folder.glob("*.cu"))
print('#include "corpus.h"\n#include <future>\n#include <thread>\n#define main program')
for name in names:
    print(f'namespace {name} {{\n#include "{name}.cu"\n}}')
print("#undef main\nint main(int argc, char **argv) {")
for name in names:
    print(f'    if (argc > 1 && !strcmp(argv[1], "{name}")) return {name}::program(argc - 1, argv + 1);')
print('    return fprintf(stderr, "the first argument names the program\\n"), 2;\n}')
