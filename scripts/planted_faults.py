"""Plants faults in the generator of machine code, one at a time, and has the tests find them.

    planted_faults.py [--target DIR] [--only WORDS] > docs/results/planted-faults.md

The last commit is copied into a temporary folder, where each fault replaces a piece of the source. The tests of
`ptx-compile` have to fail then; if they pass, those of `ptx-exec` that compare both engines have to. The output
is a table with the first test that failed. The script fails if a fault is found by no test, or if the tests fail
without one.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path("crates/ptx/ptx-compile/src")
COMMANDS = [
    ["cargo", "test", "--quiet", "--locked", "-p", "ptx-compile"],
    ["cargo", "test", "--quiet", "--locked", "-p", "ptx-exec", "--test", "engines"],
]
LIMIT_SECONDS = 1800

# What is wrong, where, the right text, the wrong one.
FAULTS = [
    (
        "encoder: a subtraction adds",
        "assembler.rs",
        "SUBPS: Vex = vex(0, 1, 0x5c)",
        "SUBPS: Vex = vex(0, 1, 0x58)",
    ),
    (
        "encoder: the upper eight registers of an operand are the lower ones",
        "assembler.rs",
        "self.code.extend([0xc4, (reg >> 3 ^ 1) << 7 | 1 << 6 | (base >> 3 ^ 1) << 5 | vex.map]);",
        "self.code.extend([0xc4, (reg >> 3 ^ 1) << 7 | 1 << 6 | 1 << 5 | vex.map]);",
    ),
    (
        "allocator: a register is given away while it is still read",
        "liveness.rs",
        "let stays = units[other].last >= unit.first;",
        "let stays = units[other].last > unit.first + 1;",
    ),
    (
        "allocator: two registers that do not fit share a place on the stack",
        "liveness.rs",
        "homes.stack += 1;\n                    Home::Stack(homes.stack - 1)",
        "homes.stack = 1;\n                    Home::Stack(homes.stack - 1)",
    ),
    (
        "allocator: what a loop reads again is not live at its end",
        "liveness.rs",
        "changed |= live != found.starts[block];\n                found.starts[block] = live;",
        "found.starts[block] = live;",
    ),
    (
        "NaNs: none is replaced where bits escape",
        "nans.rs",
        "Ok(state == State::Dirty)",
        "Ok(false && state == State::Dirty)",
    ),
    (
        "arithmetic: the least of -0 and 0 is 0",
        "generate/compute.rs",
        "(op::MINPS, op::POR)",
        "(op::MINPS, op::PAND)",
    ),
    (
        "arithmetic: a negated guard is read as a plain one",
        "generate/compute.rs",
        "true => self.asm.blend(A, from, Rm::Ymm(A), B),",
        "true => self.asm.blend(A, A, Rm::Ymm(from), B),",
    ),
    (
        "groups: an address that has changed is taken for the same",
        "groups.rs",
        "open.retain(|(address, ..), _| !written.contains(&address.register()));",
        "open.retain(|(address, ..), _| written.len() < 9 || !written.contains(&address.register()));",
    ),
    (
        "accesses: the second four scattered words are those of the first four threads",
        "generate/access.rs",
        "let half = if lane < 4 { from } else { B };",
        "let half = if lane < 8 { from } else { B };",
    ),
    (
        "accesses: addresses known on entering stay those of the first strip",
        "generate.rs",
        "self.asm.add(R8, size_of::<u64>() as i32);",
        "self.asm.add(R8, 0);",
    ),
    (
        "accesses: a strip may begin at the last word of an allocation",
        "context.rs",
        "consecutive: room(bytes + 7 * group.bytes).min(i64::MAX as u64),",
        "consecutive: room(bytes).min(i64::MAX as u64),",
    ),
    (
        "loops: a thread that has left counts another lap",
        "generate.rs",
        "self.asm.vector(op::PSUBD, laps, laps, Rm::Ymm(mask));",
        "self.asm.vector(op::PADDD, laps, laps, Rm::Ymm(mask));",
    ),
    (
        "numbers: a quotient of integers is rounded",
        "generate/numbers.rs",
        "self.asm.with_byte(op::ROUNDPD, A, 0, Rm::Ymm(A), 3);",
        "self.asm.with_byte(op::ROUNDPD, A, 0, Rm::Ymm(A), 0);",
    ),
    (
        "numbers: rounding stays directed after an instruction",
        "generate/compute.rs",
        "self.asm.set_control(DEFAULT_CONTROL);",
        "",
    ),
    (
        "numbers: the product of longs lacks what the upper word of the second adds",
        "generate/numbers.rs",
        "self.asm.vector(op::PADDQ, B, B, Rm::Ymm(C));",
        "",
    ),
    (
        "accesses: the second four longs are taken for consecutive wherever they are",
        "generate/access.rs",
        "0 => bytes * (4 * half + word / 2) as u32,",
        "0 => bytes * (word / 2) as u32,",
    ),
    (
        "branches: threads store that are elsewhere",
        "generate/access.rs",
        "self.asm.test(RAX, 1 << (half * lanes + lane));",
        "self.asm.test(RAX, 0xff);",
    ),
    (
        "branches: an access that only some threads make is not checked",
        "generate/access.rs",
        "self.asm.test(RCX, 15);",
        "self.asm.test(RCX, 0);",
    ),
    (
        "branches: all threads are where some have stopped",
        "generate.rs",
        "for (place, reg) in (at::MASKS..).zip(masks) {",
        "for (place, reg) in (at::MASKS..).zip(masks).skip(1) {",
    ),
    (
        "loops: after one that threads leave one by one, strips are at different times",
        "generate.rs",
        "self.asm.load(R15, RSP, stack::LEFT);",
        "",
    ),
    (
        "quick versions: the careful one does not learn what has been found",
        "generate/quick.rs",
        "self.asm.store_number(RSP, slots.mode, mode);",
        "",
    ),
    (
        "quick versions: every group has the base of the first",
        "generate/quick.rs",
        "map(|place| KEEPERS[place])",
        "map(|_| KEEPERS[0])",
    ),
    (
        "quick versions: the helper overwrites bases",
        "generate.rs",
        "let saved = [R8, R9, R10, R11, R11];",
        "let saved = [R8; 5];",
    ),
    (
        "meetings: every third register stays where it is",
        "generate/meet.rs",
        "if self.unsaved[block].has(reg) {",
        "if self.unsaved[block].has(reg) && reg.0 % 3 != 2 {",
    ),
    (
        "meetings: what is live after one has no place there",
        "liveness.rs",
        "live.iter().for_each(|reg| cover(reg, moment + 1))",
        "live.iter().filter(|reg| meeting.definitions().contains(reg)).for_each(|reg| cover(reg, moment + 1))",
    ),
    (
        "meetings: addresses known on entering are those of the next warp",
        "generate/meet.rs",
        "self.asm.add(R8, -((STRIPS * size_of::<u64>()) as i32));",
        "self.asm.add(R8, 0);",
    ),
    (
        "meetings: laps are noted for the next warp",
        "generate/meet.rs",
        "self.asm.add(RAX, -(STRIPS as i32 * loops * super::VECTOR));",
        "self.asm.add(RAX, 0);",
    ),
    (
        "meetings: a NaN that is not PTX's is exchanged",
        "nans.rs",
        "for reg in liveness.at_end(region, index).iter() {",
        "for reg in liveness.at_end(region, index).iter().take(0) {",
    ),
    (
        "shuffles: a lane takes the word of another strip",
        "generate/meet.rs",
        "mask | 1u8 << at);",
        "mask | 1u8 << (at ^ 1));",
    ),
    (
        "barriers: a warp that is elsewhere is taken for one that waits",
        "generate/meet.rs",
        "self.asm.store_number(RBX, at::APART, 1);\n        self.asm.bind(alike);",
        "self.asm.store_number(RBX, at::APART, 0);\n        self.asm.bind(alike);",
    ),
    (
        "branches of warps: who differs goes on with the others",
        "generate/meet.rs",
        "self.asm.jump_if(If::NotZero, held.refused);\n        self.asm.set(RAX, STRIPS as u32);",
        "self.asm.jump_if(If::NotZero, falls_through);\n        self.asm.set(RAX, STRIPS as u32);",
    ),
    (
        "local memory: that of the first eight lanes is everybody's",
        "generate.rs",
        "self.asm.set(RAX, 8 * size_of::<u64>() as u32);",
        "self.asm.set(RAX, 0);",
    ),
]


def copied(folder):
    """The last commit, in a folder."""
    archive = subprocess.run(["git", "archive", "HEAD"], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)


def failed(command, folder, target):
    """The first test that fails, or how else the command does; None if it passes."""
    environment = os.environ | {"CARGO_TARGET_DIR": str(target), "CARGO_INCREMENTAL": "0"}
    try:
        run = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "no end"
    if run.returncode == 0:
        return None
    said = run.stdout + run.stderr
    if "error: could not compile" in said:
        sys.exit(f"the source does not compile:\n{said[-3000:]}")
    names = re.findall(r"thread '([\w:]+)'", said)
    if names:
        return f"`{names[0]}`"
    signal = re.search(r"signal: (\d+), (SIG\w+)", said)
    return signal.group(2) if signal else f"status {run.returncode}"


def found(folder, target):
    """Who finds a fault: the package, and its test."""
    for command in COMMANDS:
        who = failed(command, folder, target)
        if who:
            return command[command.index("-p") + 1], who
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", help="folder of builds, which another run may use again")
    parser.add_argument("--only", default="", help="only faults whose description has these words")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copied(folder)
        target = Path(arguments.target or folder, "target").resolve()
        if who := found(folder, target):
            sys.exit(f"the tests fail without a fault: {who}")
        rows, missed = [], 0
        for what, file, right, wrong in FAULTS:
            if arguments.only not in what:
                continue
            path = Path(folder, FOLDER, file)
            source = path.read_text()
            if source.count(right) != 1:
                sys.exit(f"{file} does not have this once: {right}")
            path.write_text(source.replace(right, wrong))
            who = found(folder, target)
            path.write_text(source)
            missed += who is None
            rows.append((what, file, *(who or ("-", "no test"))))
            print(f"{what}: {who}", file=sys.stderr, flush=True)
    print("# Faults planted in the generator of machine code\n")
    print("`scripts/planted_faults.py` planted each of these faults, one at a time, and wrote which test failed first.\n")
    print("| fault | file | package | found by |\n| --- | --- | --- | --- |")
    for what, file, package, test in rows:
        print(f"| {what} | `{file}` | {package} | {test} |")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
