#!/usr/bin/env python3
"""Asks four versions of ptxas which targets have which forms of PTX.

    scripts/ptx-gates.py [--tools FOLDER]

Reads the statements in crates/ptx/ptx-retarget/tests/gates/statements.tsv, which a test writes from the
tables of the crate `ptx`, and writes verdicts.tsv beside it: for each statement and each ptxas the targets
that take it. The test `gates` compares tables and verdicts. Installs NVIDIA's wheels, 170 MB, into FOLDER
(target/ptx-gates); needs no GPU and takes a few minutes.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GATES = ROOT / "crates/ptx/ptx-retarget/tests/gates"

# Package, PTX version that it reads, real targets since sm_75. sm_101 became sm_110 in 13.0.
OLD = ["75", "80", "86", "87", "89", "90", "90a", "100", "100a", "120", "120a"]
FAMILIES = ["100f", "103", "103a", "103f", "120f", "121", "121a", "121f"]
TOOLKIT_13 = ["88", "110", "110a", "110f"]
PTXAS = [
    ("nvidia-cuda-nvcc-cu12==12.8.93", "8.7", OLD),
    ("nvidia-cuda-nvcc-cu12==12.9.86", "8.8", OLD + FAMILIES),
    ("nvidia-cuda-nvcc==13.0.88", "9.0", OLD + FAMILIES + TOOLKIT_13),
    ("nvidia-cuda-nvcc==13.5.37", "9.5", OLD + FAMILIES + TOOLKIT_13 + ["107", "107a", "107f"]),
]
# The line of a module's first statement, from 1.
FIRST_LINE = 6


def install(package, tools):
    """The ptxas of a package, which is installed if it is not there yet."""
    folder = tools / package.split("==")[1]
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--only-binary=:all:", "--target", folder, package], check=True)
    ptxas = next(folder.rglob("ptxas"))
    ptxas.chmod(0o755)
    return ptxas


def architecture(ptxas, target):
    """What ptxas is to assemble for: targets before sm_100 go to it too. 12.8 has no virtual
    architectures with a letter."""
    if target.isdigit() and int(target) <= 100:
        return "compute_100"
    return f"sm_{target}" if "12.8." in str(ptxas) else f"compute_{target}"


def errors(ptxas, target, source, file):
    """The lines that ptxas complains about; 0 for the whole."""
    file.write_text(source)
    command = [ptxas, "-arch", architecture(ptxas, target), "-o", "/dev/null", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        return set()
    lines = re.findall(r", line (\d+); (?:error|fatal)", done.stderr)
    return {int(line) for line in lines} or {0}


def accepted(ptxas, version, target, statements, prelude, file):
    """The places of the statements that ptxas takes. It stops at some errors, so it is asked until it
    takes the rest."""
    left = list(range(len(statements)))
    while left:
        text = "\n".join(statements[place] for place in left)
        source = f".version {version}\n.target sm_{target}\n{prelude}{text}\nDONE: ret;\n}}\n"
        wrong = errors(ptxas, target, source, file)
        places = {line - FIRST_LINE for line in wrong}
        if not wrong:
            return set(left)
        if not places <= set(range(len(left))):
            # A crash or an error about the whole: each statement alone.
            return {
                place
                for place in left
                if not errors(
                    ptxas,
                    target,
                    f".version {version}\n.target sm_{target}\n{prelude}{statements[place]}\nDONE: ret;\n}}\n",
                    file,
                )
            }
        left = [place for index, place in enumerate(left) if index not in places]
    return set()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=Path, default=ROOT / "target/ptx-gates")
    tools = parser.parse_args().tools
    tools.mkdir(parents=True, exist_ok=True)
    file = tools / "asked.ptx"
    lines = [line for line in (GATES / "statements.tsv").read_text().splitlines() if not line.startswith("#")]
    rows = [line.split("\t") for line in lines]
    statements = [text for kind, text in rows if kind == "statement"]
    directives = [text for kind, text in rows if kind == "directive"]
    prelude = (GATES / "prelude.txt").read_text()
    head, cells = [], {text: [] for _, text in rows}
    for package, version, targets in PTXAS:
        ptxas = install(package, tools)
        name = package.split("==")[1]
        head.append(f"# ptxas {name}, PTX {version}: {' '.join('sm_' + target for target in targets)}")
        taken = {text: [] for _, text in rows}
        for target in targets:
            for place in accepted(ptxas, version, target, statements, prelude, file):
                taken[statements[place]].append(f"sm_{target}")
            for text in directives:
                module = f".version {version}\n.target sm_{target}\n.address_size 64\n.visible .entry k() {text} {{ ret; }}\n"
                if not errors(ptxas, target, module, file):
                    taken[text].append(f"sm_{target}")
        for text, found in taken.items():
            cells[text].append(" ".join(found))
        print(f"{name}: {sum(map(len, taken.values()))} acceptances", file=sys.stderr)
    # Many statements have the same targets: each list has a number.
    lists = sorted({found for text in cells.values() for found in text})
    head += [f"# {number} = {found}" for number, found in enumerate(lists)]
    numbers = {found: str(number) for number, found in enumerate(lists)}
    body = ["\t".join([kind, text, *[numbers[found] for found in cells[text]]]) for kind, text in rows]
    (GATES / "verdicts.tsv").write_text("\n".join(head + body) + "\n")


if __name__ == "__main__":
    main()
