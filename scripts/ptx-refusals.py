#!/usr/bin/env python3
"""Compares what the CPU device and ptxas refuse, on random changes to PTX.

    cargo build -p apex-cpu-device
    scripts/ptx-refusals.py [--cases 3000] [--seed 1] [--show] > docs/results/ptx-refusals.txt
    scripts/ptx-refusals.py --target sm_120a > docs/results/ptx-refusals-sm_120a.txt

Takes the kernels of crates/ptx/ptx-exec/tests/ptx that ptxas assembles for sm_80, or with `--target` for sm_90a or sm_120a, changes
each copy in one place, and asks both: ptxas 13.5, which it installs into target/ptx-gates (170 MB with its peers), assembles for
the target; the CPU device of that capability loads the module. The table counts by kind of change; `--show` prints on standard error each
text on which they differ. Needs no GPU; 3,000 cases take about five minutes on two cores.
"""

import argparse
import collections
import concurrent.futures
import ctypes
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXTS = ROOT / "crates/ptx/ptx-exec/tests/ptx"
PACKAGE = "nvidia-cuda-nvcc==13.5.37"
# The header of texts for a target, and the capability of the CPU device that takes them.
TARGETS = {"sm_80": None, "sm_90a": ("8.8", "9.0"), "sm_120a": ("8.8", "12.0")}
SPECIALS = ["%tid.x", "%ntid.y", "%ctaid.z", "%laneid", "%warpid", "%clock", "%clock64", "%lanemask_lt", "%tid"]
WORDS = (
    "u8 s8 u16 s16 b16 u32 s32 b32 u64 s64 b64 f16 f16x2 bf16 f32 f64 b128 pred global shared local const param rn rz "
    "sat ftz approx v2 v4 volatile relaxed acquire gpu cta sys lo hi wide eq lt num add min and cas exch sync aligned "
    "x2 trans noinc"
).split()
NUMBERS = ["-1", "0", "1", "15", "16", "17", "31", "32", "33", "255", "256", "1024", "65536", "4294967296", "1.5"]
NUMBERS += ["0f3F800000", "0d3FF0000000000000", "18446744073709551616"]


def install():
    """ptxas, which is installed if it is not there yet."""
    folder = ROOT / "target/ptx-gates" / PACKAGE.split("==")[1]
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--only-binary=:all:", "--target", folder, PACKAGE], check=True)
    ptxas = next(folder.rglob("ptxas"))
    ptxas.chmod(0o755)
    return ptxas


def kernels(text):
    """Modules of one kernel each, with everything in front of it that is no kernel."""
    parts = re.split(r"(?m)^(?=(?:\.visible |\.weak )?\.(?:entry|func)\b)", re.sub(r"//[^\n]*", "", text))
    shared = parts[0]
    for part in parts[1:]:
        head, _, _ = part.partition("{")
        if ".entry" in head:
            yield shared + part
        else:
            shared += part


class Ptxas:
    def __init__(self, path, target):
        self.path, self.target = path, target

    def refusal(self, text):
        """The first complaint; empty if there is none."""
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(text)
            file.flush()
            command = [self.path, "-arch", self.target, "-o", "/dev/null", file.name]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            return ""
        lines = [line for line in done.stderr.splitlines() if "; error" in line or "fatal" in line]
        return lines[0].split(": ", 1)[-1].strip() if lines else f"status {done.returncode}"


class Device:
    """The CPU device, in this process."""

    LOG, LOG_BYTES = 5, 6

    def __init__(self, path):
        self.driver = ctypes.CDLL(str(path))
        context = ctypes.c_void_p()
        assert self.driver.cuInit(0) == 0
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self.driver.cuCtxSetCurrent(context) == 0

    def refusal(self, text):
        log = ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(self.LOG, self.LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(len(log)))
        module = ctypes.c_void_p()
        result = self.driver.cuModuleLoadDataEx(ctypes.byref(module), text.encode() + b"\0", 2, options, values)
        if result == 0:
            self.driver.cuModuleUnload(module)
            return ""
        return log.value.decode().splitlines()[0] if log.value else f"error {result}"


INSTRUCTION = re.compile(r"^\s*(@!?%\w+\s+)?[a-z][\w]*(\.[\w:]+)*(\s[^;]*)?;\s*$")


def places(lines, pattern):
    return [at for at, line in enumerate(lines) if re.search(pattern, line)]


def instructions(lines):
    return [at for at, line in enumerate(lines) if INSTRUCTION.match(line) and "%" in line]


def replaced(draw, lines, at, pattern, new):
    """The line with one of its matches replaced by what `new` makes of it."""
    found = list(re.finditer(pattern, lines[at]))
    if not found:
        return None
    match = draw.choice(found)
    return lines[at][: match.start()] + new(match.group()) + lines[at][match.end() :]


REGISTER = r"(?<![\w.@!])%[a-z]+\d+"


def special_register(draw, lines):
    at = draw.choice(instructions(lines))
    return at, replaced(draw, lines, at, REGISTER, lambda _: draw.choice(SPECIALS))


def other_register(draw, lines):
    at, other = draw.choice(instructions(lines)), draw.choice(instructions(lines))
    found = re.findall(REGISTER, lines[other])
    return at, found and replaced(draw, lines, at, REGISTER, lambda _: draw.choice(found))


def constant_operand(draw, lines):
    at = draw.choice(instructions(lines))
    return at, replaced(draw, lines, at, REGISTER + r"|(?<=[ ,+])-?\d\w*", lambda _: draw.choice(NUMBERS))


def modifier(draw, lines):
    at = draw.choice(instructions(lines))
    way = draw.randrange(3)
    word = draw.choice(WORDS)
    new = (lambda _: "." + word, lambda _: "", lambda old: f"{old}.{word}")[way]
    return at, replaced(draw, lines, at, r"(?<=[a-z0-9])\.[a-z]\w*(?=[.\s])", new)


def operand_count(draw, lines):
    at = draw.choice(instructions(lines))
    return at, replaced(draw, lines, at, r", [^,{}\[\]();]+(?=[,;])", lambda old: draw.choice(["", old + old]))


def address(draw, lines):
    at = draw.choice(places(lines, r"\[.*\].*;"))
    new = [lambda a: f"[{a[1:-1]}+{draw.choice(NUMBERS)}]", lambda a: a[1:-1], lambda _: "[nowhere]"]
    new += [lambda _: f"[{draw.choice(NUMBERS)}]", lambda _: f"[{draw.choice(SPECIALS)}]"]
    return at, replaced(draw, lines, at, r"\[[^\[\]]+\]", draw.choice(new))


def declaration(draw, lines):
    at = draw.choice(places(lines, r"\.(reg|shared|global|local|const|param)\b.*"))
    way = draw.randrange(4)
    if way == 0:
        return at, ""
    if way == 1:
        return at, lines[at] + "\n" + lines[at]
    if way == 2:
        return at, replaced(draw, lines, at, r"(?<=\.)(pred|[busf]\d+)\b", lambda _: draw.choice(WORDS[:18]))
    return at, replaced(draw, lines, at, r"\d+", lambda _: draw.choice(NUMBERS))


def label(draw, lines):
    at = draw.choice(places(lines, r"^\s*\$?\w+:|\bbra\b"))
    return at, draw.choice(["", lines[at] + "\n" + lines[at], re.sub(r"\w+(?=[:;])", "nowhere", lines[at])])


def statement(draw, lines):
    at = draw.choice(instructions(lines))
    return at, draw.choice(["", lines[at] + "\n" + lines[at], lines[at].replace(";", ""), lines[at] + "\n}"])


def guard(draw, lines):
    at = draw.choice(instructions(lines))
    name = draw.choice(["%p1", "%r1", "%rd1", "!%p1", "%nope", "%laneid", "p", "!!%p1"])
    return at, f"\t@{name} {lines[at].strip()}"


def directive(draw, lines):
    at = draw.choice(places(lines, r"\.entry"))
    number = lambda: draw.choice(NUMBERS[:13])
    more = f"{number()}, {number()}, {number()}"
    kinds = [f".maxntid {more}", f".reqntid {more}", f".minnctapersm {number()}", f".maxnreg {number()}", ".noreturn"]
    kinds += [f".maxntid {number()} .minnctapersm {number()}", ".explicitcluster", f".reqnctapercluster {number()}"]
    kinds += [f".maxntid {number()} .reqntid {number()}", f'.pragma "{number()}"; ']
    place = lines[at].rfind(")")
    return at, place > 0 and f"{lines[at][: place + 1]} {draw.choice(kinds)} {lines[at][place + 1 :]}"


def header(draw, lines):
    at = draw.choice(places(lines, r"^\.(version|target|address_size)"))
    kinds = [".version 6.2", ".version 7.0", ".version 8.9", ".version 99.0", ".target sm_70", ".target sm_81", ""]
    kinds += [".target sm_90", ".target sm_80, debug", ".target sm_80, nothing", ".address_size 32", ".address_size 16"]
    return at, draw.choice(kinds)


CHANGES = [special_register, other_register, constant_operand, modifier, operand_count, address, declaration]
CHANGES += [label, statement, guard, directive, header]


def changed(draw, text):
    """A kind of change and a text that has one."""
    while True:
        change, lines = draw.choice(CHANGES), text.splitlines()
        try:
            at, line = change(draw, lines)
        except IndexError:
            continue
        if line is None or line is False or line == [] or line == lines[at]:
            continue
        lines[at] = line
        return change.__name__.replace("_", " "), lines[at], "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print the texts on which they differ")
    parser.add_argument("--ptxas", type=Path, help="another ptxas of toolkit 13.5")
    parser.add_argument("--device", type=Path, default=ROOT / "target/debug/libapex_cpu_device.so")
    parser.add_argument("--target", choices=TARGETS, default="sm_80")
    options = parser.parse_args()
    target, header = options.target, TARGETS[options.target]
    if header:
        os.environ["APEX_CPU_CAPABILITY"] = header[1]
    ptxas, device = Ptxas(options.ptxas or install(), target), Device(options.device)
    draw = random.Random(options.seed)
    texts = [kernel for file in sorted(TEXTS.glob("*.ptx")) for kernel in kernels(file.read_text())]
    if header:
        line = f".version {header[0]}\n.target {target}"
        texts = [re.sub(r"\.version .*\n\.target .*", line, text, count=1) for text in texts]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        texts = [text for text, refusal in zip(texts, pool.map(ptxas.refusal, texts)) if not refusal]
        cases = [changed(draw, draw.choice(texts)) for _ in range(options.cases)]
        theirs = list(pool.map(lambda case: ptxas.refusal(case[2]), cases))
    ours = [device.refusal(text) for _, _, text in cases]
    counts = collections.defaultdict(collections.Counter)
    for (kind, line, _), their, our in zip(cases, theirs, ours):
        who = {(True, True): "both", (True, False): "ptxas", (False, True): "device", (False, False): "none"}
        counts[kind][who[bool(their), bool(our)]] += 1
        if options.show and bool(their) != bool(our):
            print(f"{kind}: {line.strip()}\n    {'ptxas: ' + their if their else 'device: ' + our}", file=sys.stderr)
    command = f"scripts/ptx-refusals.py --cases {options.cases} --seed {options.seed}"
    command += f" --target {target}" if header else ""
    print(f"{command}: ptxas 13.5.37 for {target}, {len(texts)} kernels")
    print("| kind of change | both refuse | both take | ptxas alone refuses | the CPU device alone refuses |")
    print("| --- | ---: | ---: | ---: | ---: |")
    counts["all"] = sum(counts.values(), collections.Counter())
    for kind, count in counts.items():
        print(f"| {kind} | {count['both']} | {count['none']} | {count['ptxas']} | {count['device']} |")


if __name__ == "__main__":
    main()
