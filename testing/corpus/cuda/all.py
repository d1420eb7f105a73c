"""Prints one CUDA C++ source that holds programs of this folder: its first argument says which of them runs.

    python3 all.py [NAME…] >all.cu && nvcc -std=c++17 -lineinfo -I FOLDER all.cu

Without a name, it holds all of them. One file compiles in a seventh of the time of all of them. Each program is in a namespace
of its own, and keeps its lines; the headers that it includes stand before the namespaces.
"""

import pathlib
import re
import sys

folder = pathlib.Path(__file__).resolve().parent
names = sorted(sys.argv[1:] or (path.stem for path in folder.glob("*.cu")))
included = {line for name in names for line in re.findall("^#include <.*>$", (folder / f"{name}.cu").read_text(), re.MULTILINE)}
print('#include "corpus.h"', *sorted(included), "#define main program", sep="\n")
for name in names:
    print(f'namespace {name} {{\n#include "{name}.cu"\n}}')
print("#undef main\nint main(int argc, char **argv) {")
for name in names:
    print(f'    if (argc > 1 && !strcmp(argv[1], "{name}")) return {name}::program(argc - 1, argv + 1);')
print('    return fprintf(stderr, "the first argument names the program\\n"), 2;\n}')
