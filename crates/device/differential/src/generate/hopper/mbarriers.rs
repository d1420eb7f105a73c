//! Mbarriers: what their phases, counts and transactions are after any sequence of operations, and
//! data that warps hand over in stages.

use super::{declare_barriers, kernel};
use crate::case::Rule;
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;

/// An mbarrier as the ISA describes it.
struct Model {
    /// Arrivals of the next phases.
    expected: u32,
    /// Arrivals that the phase still waits for, and bytes.
    pending: u32,
    bytes: u32,
    /// Phases that have ended.
    phase: u32,
}

impl Model {
    fn new(expected: u32) -> Model {
        Model { expected, pending: expected, bytes: 0, phase: 0 }
    }

    fn settle(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            (self.pending, self.phase) = (self.expected, self.phase + 1);
        }
    }

    fn arrive(&mut self, count: u32) {
        self.pending -= count;
        self.settle();
    }
}

/// Each lane of a warp has an mbarrier of its own, and executes the same operations on it.
pub(super) fn states(random: &mut Random) -> Kernel {
    let mut kernel = kernel(1, 1, 32);
    kernel.declarations += ".shared .align 8 .b64 own[32];\n.reg .b64 state;\n.reg .b32 bar;\n";
    kernel.line("mov.u32 bar, own;\nmad.lo.u32 bar, lane, 8, bar;");
    let mut model = Model::new(1 + random.below(6) as u32);
    kernel.line(format!("mbarrier.init.shared::cta.b64 [bar], {};", model.expected));
    // The number of the phase in which the state was taken.
    let mut taken = None;
    let mut results = 0;
    for _ in 0..6 + random.below(20) {
        operate(&mut kernel, random, &mut model, &mut taken);
        if let Some(test) = test(random, &model, taken) {
            let (word, predicate) = (kernel.register(32), kernel.register(1));
            match test {
                Test::Count => kernel.line(format!("mbarrier.pending_count.b64 {word}, state;")),
                Test::Wait(test) => {
                    kernel.line(format!("{} {predicate}, {};", test[0], test[1]));
                    kernel.line(format!("selp.u32 {word}, 1, 0, {predicate};"));
                }
            }
            kernel.store(&format!("test {results}"), Values::B32, Rule::Exact, &word);
            results += 1;
        }
    }
    let predicate = kernel.register(1);
    let word = kernel.register(32);
    kernel.line(format!(
        "mbarrier.test_wait.parity.shared::cta.b64 {predicate}, [bar], 0;\nselp.u32 {word}, 1, 0, {predicate};"
    ));
    kernel.store("at the end", Values::B32, Rule::Exact, &word);
    kernel
}

/// An operation that the mbarrier may get now.
fn operate(kernel: &mut Kernel, random: &mut Random, model: &mut Model, taken: &mut Option<u32>) {
    let order = *random.pick(&["", ".release.cta", ".release.cluster"]);
    let space = *random.pick(&["shared", "shared::cta"]);
    let form = |name: &str| format!("mbarrier.{name}{order}.{space}.b64");
    let open = model.pending;
    match random.below(10) {
        // The last arrival may come while bytes are missing; then only bytes may come.
        _ if open == 0 => complete(kernel, random, model, space),
        0..3 => {
            let count = 1 + random.below(open as usize) as u32;
            arrive(kernel, (model, taken), (&form("arrive"), &format!(", {count}")), count);
        }
        3 => arrive(kernel, (model, taken), (&form("arrive"), ""), 1),
        4 if open > 1 => {
            let count = 1 + random.below(open as usize - 1) as u32;
            let name = format!("mbarrier.arrive.noComplete.{space}.b64");
            arrive(kernel, (model, taken), (&name, &format!(", {count}")), count);
        }
        5 if model.expected > 1 => {
            let most = (model.expected - 1).min(open);
            let count = 1 + random.below(most as usize) as u32;
            model.expected -= count;
            arrive(kernel, (model, taken), (&form("arrive_drop"), &format!(", {count}")), count);
        }
        6 => {
            let bytes = 1 + random.below(300) as u32;
            kernel.line(format!("mbarrier.expect_tx.relaxed.cta.{space}.b64 [bar], {bytes};"));
            model.bytes += bytes;
        }
        7 if model.bytes > 0 => complete(kernel, random, model, space),
        8 => {
            let bytes = 1 + random.below(300) as u32;
            model.bytes += bytes;
            arrive(kernel, (model, taken), (&form("arrive.expect_tx"), &format!(", {bytes}")), 1);
        }
        _ if random.once_in(4) => restart(kernel, random, model, taken),
        _ => {}
    }
}

/// `count` arrivals by an instruction with these last operands, which takes the phase's state.
fn arrive(
    kernel: &mut Kernel,
    (model, taken): (&mut Model, &mut Option<u32>),
    (name, operands): (&str, &str),
    count: u32,
) {
    kernel.line(format!("{name} state, [bar]{operands};"));
    *taken = Some(model.phase);
    model.arrive(count);
}

/// Some of the bytes that are missing come.
fn complete(kernel: &mut Kernel, random: &mut Random, model: &mut Model, space: &str) {
    let bytes = 1 + random.below(model.bytes as usize) as u32;
    kernel.line(format!("mbarrier.complete_tx.relaxed.cta.{space}.b64 [bar], {bytes};"));
    model.bytes -= bytes;
    model.settle();
}

/// The mbarrier ends, and another one begins in its place.
fn restart(kernel: &mut Kernel, random: &mut Random, model: &mut Model, taken: &mut Option<u32>) {
    *model = Model::new(1 + random.below(9) as u32);
    *taken = None;
    kernel.line(format!(
        "mbarrier.inval.shared::cta.b64 [bar];\nmbarrier.init.shared::cta.b64 [bar], {};",
        model.expected
    ));
}

/// Something that is asked of an mbarrier.
enum Test {
    Count,
    /// The instruction, and its operands behind the predicate.
    Wait([String; 2]),
}

fn test(random: &mut Random, model: &Model, taken: Option<u32>) -> Option<Test> {
    let order = *random.pick(&["", ".acquire.cta", ".acquire.cluster"]);
    let name = if random.once_in(3) { "try_wait" } else { "test_wait" };
    let hint = if name == "try_wait" { ", 32" } else { "" };
    match random.below(5) {
        0 if taken.is_some() => Some(Test::Count),
        // A state is good for its phase and the next one.
        1 if taken.is_some_and(|taken| model.phase - taken <= 1) => Some(Test::Wait([
            format!("mbarrier.{name}{order}.shared::cta.b64"),
            format!("[bar], state{hint}"),
        ])),
        2 | 3 => Some(Test::Wait([
            format!("mbarrier.{name}.parity{order}.shared::cta.b64"),
            format!("[bar], {}{hint}", random.below(2)),
        ])),
        _ => None,
    }
}

/// One warp fills stages in turn, the others read all of them. A stage is filled again when all
/// have read it.
pub(super) fn stages(random: &mut Random) -> Kernel {
    let warps = 2 + random.below(3) as u32;
    let (stages, rounds) = (1 + random.below(4), 2 + random.below(10));
    let mut kernel = kernel(1, 1, 32 * warps);
    declare_barriers(&mut kernel, 2 * stages, 32);
    // Those behind the first `stages` say that a stage is empty.
    for stage in stages..2 * stages {
        kernel.line(format!(
            "@first mbarrier.inval.shared::cta.b64 [bars+{}];\n@first mbarrier.init.shared::cta.b64 [bars+{}], {};",
            8 * stage,
            8 * stage,
            32 * (warps - 1)
        ));
    }
    kernel.declarations += &format!(".shared .align 16 .b8 room[{}];\n", 128 * stages);
    let given = kernel.load(Values::B32);
    let [sum, round, stage, parity, at, bar, cell, value, other] = [(); 9].map(|()| kernel.register(32));
    let [produces, again, ready] = [(); 3].map(|()| kernel.register(1));
    let late = if random.below(2) == 0 { "nanosleep.u32 200;\n" } else { "" };
    let turn = random.below(31) + 1;
    let wait = |label: &str, place: &str, parity: &str| {
        format!(
            "{label}:\nmbarrier.try_wait.parity.shared::cta.b64 {ready}, [{place}], {parity};\n@!{ready} bra {label};"
        )
    };
    kernel.line(format!(
        "bar.sync 0;\nsetp.lt.u32 {produces}, thread, 32;\nmov.u32 {sum}, 0;\nmov.u32 {round}, 0;\nmov.u32 {stage}, 0;\nmov.u32 \
         {parity}, 0;\nturn:\nmov.u32 {bar}, bars;\nmad.lo.u32 {bar}, {stage}, 8, {bar};\nmov.u32 {at}, room;\nmad.lo.u32 {at}, \
         {stage}, 128, {at};\n@!{produces} bra reads;\nxor.b32 {other}, {parity}, 1;\n{}\nmad.lo.u32 {value}, {round}, 77, \
         {given};\nmad.lo.u32 {cell}, lane, 4, {at};\nst.shared.u32 [{cell}], {value};\n{late}mbarrier.arrive.shared::cta.b64 _, \
         [{bar}];\nxor.b32 {sum}, {sum}, {value};\nbra behind;\nreads:\n{}\nadd.u32 {cell}, lane, {turn};\nand.b32 {cell}, {cell}, \
         31;\nmad.lo.u32 {cell}, {cell}, 4, {at};\nld.shared.u32 {value}, [{cell}];\nmbarrier.arrive.shared::cta.b64 _, \
         [{bar}+{}];\nmad.lo.u32 {sum}, {sum}, 31, {value};\nbehind:\nadd.u32 {stage}, {stage}, 1;\nsetp.lt.u32 {again}, {stage}, \
         {stages};\n@{again} bra same;\nmov.u32 {stage}, 0;\nxor.b32 {parity}, {parity}, 1;\nsame:\nadd.u32 {round}, {round}, \
         1;\nsetp.lt.u32 {again}, {round}, {rounds};\n@{again} bra turn;",
        wait("empty", &format!("{bar}+{}", 8 * stages), &other),
        wait("full", &bar, &parity),
        8 * stages
    ));
    kernel.store("sum", Values::B32, Rule::Exact, &sum);
    kernel
}
