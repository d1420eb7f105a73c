//! Random structured programs: branches, loops, switches, calls, recursion and early exits, nested
//! at random.
//!
//! A thread's results depend only on its own inputs, except at exchanges through shared memory,
//! which all lanes of a warp reach and which follow a barrier of the warp. Results therefore do not
//! depend on when lanes reconverge.

use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;
use std::fmt::Write;

const BLOCK: u32 = 64;
const PROGRAMS: usize = 96;

/// Variables of a thread.
const VARIABLES: usize = 6;

pub(super) fn generate(cases: &mut Vec<Case>) {
    cases.extend((0..PROGRAMS).map(program));
    cases.push(spin_lock());
    cases.push(uniform());
}

struct Program {
    kernel: Kernel,
    random: Random,
    variables: Vec<String>,
    labels: usize,
    /// Statements that may still be written.
    budget: usize,
    exit_slot: usize,
}

fn program(number: usize) -> Case {
    let name = format!("program: control flow/{number}");
    let mut kernel = Kernel::new(1, BLOCK);
    let variables: Vec<String> = (0..VARIABLES).map(|_| kernel.load(Values::B32)).collect();
    kernel.declarations += &format!(".shared .align 4 .b32 pool[{BLOCK}];\n");
    let exit_slot = kernel.slot("left early", Values::B32, kernel.threads(), Rule::Exact);
    kernel.line(format!("st.global.u32 [out4+{exit_slot}], 0;"));
    let mut program =
        Program { kernel, random: Random::named(&name), variables, labels: 0, budget: 40, exit_slot };
    program.functions();
    let statements = 3 + program.random.below(5);
    for _ in 0..statements {
        program.statement(0);
        if program.random.once_in(3) {
            program.exchange();
        }
    }
    if program.random.once_in(2) {
        program.leave_early();
        program.statement(1);
    }
    for index in 0..VARIABLES {
        let register = program.variables[index].clone();
        program.kernel.store(&format!("x{index}"), Values::B32, Rule::Exact, &register);
    }
    program.kernel.finish(name)
}

impl Program {
    fn label(&mut self) -> usize {
        self.labels += 1;
        self.labels
    }

    fn variable(&mut self) -> String {
        let index = self.random.below(VARIABLES);
        self.variables[index].clone()
    }

    fn line(&mut self, text: String) {
        self.kernel.line(text);
    }

    /// A predicate that depends on the variables.
    fn condition(&mut self) -> String {
        let (predicate, word) = (self.kernel.register(1), self.kernel.register(32));
        let (a, b) = (self.variable(), self.variable());
        let text = match self.random.below(4) {
            0 => format!("setp.lt.s32 {predicate}, {a}, {b};"),
            1 => format!("and.b32 {word}, {a}, 3;\nsetp.eq.u32 {predicate}, {word}, 1;"),
            2 => format!(
                "xor.b32 {word}, {a}, thread;\nand.b32 {word}, {word}, 5;\nsetp.ne.u32 {predicate}, {word}, 0;"
            ),
            _ => format!("setp.hi.u32 {predicate}, {a}, {b};"),
        };
        self.line(text);
        predicate
    }

    fn assignment(&mut self) {
        let (d, a, b) = (self.variable(), self.variable(), self.variable());
        let constant = self.random.next() as u32 >> self.random.below(32);
        let text = match self.random.below(7) {
            0 => format!("add.u32 {d}, {a}, {b};"),
            1 => format!("mad.lo.u32 {d}, {a}, {b}, {constant};"),
            2 => format!("xor.b32 {d}, {a}, {constant};"),
            3 => format!("shf.l.wrap.b32 {d}, {a}, {b}, 7;"),
            4 => format!("sub.u32 {d}, {b}, {a};"),
            5 => format!("min.s32 {d}, {a}, {b};"),
            _ => format!("prmt.b32 {d}, {a}, {b}, 0x2743;"),
        };
        if self.random.once_in(4) {
            let condition = self.condition();
            return self.line(format!("@{condition} {text}"));
        }
        self.line(text);
    }

    fn block(&mut self, depth: usize) {
        for _ in 0..1 + self.random.below(3) {
            self.statement(depth + 1);
        }
    }

    fn statement(&mut self, depth: usize) {
        self.budget = self.budget.saturating_sub(1);
        if self.budget == 0 || depth >= 4 {
            return self.assignment();
        }
        match self.random.below(9) {
            0 | 1 => self.assignment(),
            2 | 3 => self.branch(depth),
            4 | 5 => self.repeat(depth),
            6 => self.switch(depth),
            7 => self.call(),
            _ => self.indirect_call(),
        }
    }

    fn branch(&mut self, depth: usize) {
        let (label, condition) = (self.label(), self.condition());
        let negation = if self.random.once_in(2) { "!" } else { "" };
        self.line(format!("@{negation}{condition} bra otherwise{label};"));
        self.block(depth);
        if self.random.once_in(2) {
            self.line(format!("bra done{label};\notherwise{label}:"));
            self.block(depth);
            self.line(format!("done{label}:"));
        } else {
            self.line(format!("otherwise{label}:"));
        }
    }

    /// A loop of at most 7 turns, with a break in the middle perhaps, or a `continue`.
    fn repeat(&mut self, depth: usize) {
        let (label, counter, more) = (self.label(), self.kernel.register(32), self.kernel.register(1));
        let bound = self.variable();
        self.line(format!("and.b32 {counter}, {bound}, 7;\nloop{label}:"));
        self.line(format!(
            "setp.eq.u32 {more}, {counter}, 0;\n@{more} bra end{label};\nsub.u32 {counter}, {counter}, 1;"
        ));
        self.block(depth);
        if self.random.once_in(2) {
            let condition = self.condition();
            let target = if self.random.once_in(2) { "end" } else { "loop" };
            self.line(format!("@{condition} bra {target}{label};"));
            self.assignment();
        }
        self.line(format!("bra loop{label};\nend{label}:"));
    }

    fn switch(&mut self, depth: usize) {
        let (label, index) = (self.label(), self.kernel.register(32));
        let choice = self.variable();
        let cases = 2 + self.random.below(4);
        self.line(format!("rem.u32 {index}, {choice}, {cases};"));
        let targets: Vec<String> = (0..cases).map(|case| format!("case{label}_{case}")).collect();
        self.line(format!(
            "targets{label}: .branchtargets {};\nbrx.idx {index}, targets{label};",
            targets.join(", ")
        ));
        for target in &targets {
            self.line(format!("{target}:"));
            self.block(depth.max(2));
            // Some cases fall through to the next.
            if !self.random.once_in(3) {
                self.line(format!("bra end{label};"));
            }
        }
        self.line(format!("end{label}:"));
    }

    /// The module's functions: one that branches and returns early, one that calls itself.
    fn functions(&mut self) {
        let [first, second, bound] = [0, 1, 2].map(|_| self.random.next() as u32);
        let _ = write!(
            self.kernel.module,
            ".func (.reg .b32 result) mix(.reg .b32 a, .reg .b32 b)\n{{\n.reg .pred p;\nsetp.lt.u32 p, a, b;\nxor.b32 \
             result, a, {first};\n@p ret;\nmad.lo.u32 result, a, b, {second};\nret;\n}}\n\
             .func (.param .b32 result) recurse(.param .b32 a, .param .b32 depth)\n{{\n.reg .pred p;\n.reg .b32 x, n, \
             y;\nld.param.u32 x, [a];\nld.param.u32 n, [depth];\nsetp.eq.u32 p, n, 0;\n@p bra bottom;\nsub.u32 n, n, \
             1;\nmad.lo.u32 y, x, 3, {bound};\n{{\n.param .b32 p0;\n.param .b32 p1;\n.param .b32 r;\nst.param.b32 [p0], \
             y;\nst.param.b32 [p1], n;\ncall (r), recurse, (p0, p1);\nld.param.b32 y, [r];\n}}\nadd.u32 x, x, \
             y;\nbottom:\nst.param.b32 [result], x;\nret;\n}}\n\
             .func (.param .b32 result) twist(.param .b32 a, .param .b32 depth)\n{{\n.reg .b32 x, n;\nld.param.u32 x, \
             [a];\nld.param.u32 n, [depth];\nshf.l.wrap.b32 x, x, x, n;\nst.param.b32 [result], x;\nret;\n}}\n"
        );
    }

    fn call(&mut self) {
        let (d, a, b) = (self.variable(), self.variable(), self.variable());
        if self.random.once_in(2) {
            return self.line(format!("call ({d}), mix, ({a}, {b});"));
        }
        let depth = self.kernel.register(32);
        self.line(format!(
            "and.b32 {depth}, {b}, 7;\n{{\n.param .b32 p0;\n.param .b32 p1;\n.param .b32 r;\nst.param.b32 [p0], \
             {a};\nst.param.b32 [p1], {depth};\ncall (r), recurse, (p0, p1);\nld.param.b32 {d}, [r];\n}}"
        ));
    }

    /// Calls one of two functions through a pointer that differs between lanes.
    fn indirect_call(&mut self) {
        let (d, a, b, condition) = (self.variable(), self.variable(), self.variable(), self.condition());
        let [one, other] = [0, 1].map(|_| self.kernel.register(64));
        let (depth, label) = (self.kernel.register(32), self.label());
        self.line(format!(
            "and.b32 {depth}, {b}, 3;\nmov.u64 {one}, recurse;\nmov.u64 {other}, twist;\nselp.b64 {one}, {one}, {other}, \
             {condition};\n{{\n.param .b32 p0;\n.param .b32 p1;\n.param .b32 r;\nst.param.b32 [p0], {a};\nst.param.b32 [p1], \
             {depth};\nprototype{label}: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\ncall (r), {one}, \
             (p0, p1), prototype{label};\nld.param.b32 {d}, [r];\n}}"
        ));
    }

    /// Every thread gives a variable to another thread of its warp. In a few programs ptxas drops
    /// these barriers, taking the warp for converged: see the known differences.
    fn exchange(&mut self) {
        let (d, a) = (self.variable(), self.variable());
        let [mine, other] = [0, 1].map(|_| self.kernel.register(64));
        let (index, distance) = (self.kernel.register(32), 1 + self.random.below(31));
        self.line(format!(
            "mov.u64 {mine}, pool;\nmad.wide.u32 {mine}, thread, 4, {mine};\nst.shared.u32 [{mine}], {a};\nbar.warp.sync \
             0xffffffff;\nxor.b32 {index}, thread, {distance};\nmov.u64 {other}, pool;\nmad.wide.u32 {other}, {index}, 4, \
             {other};\nld.shared.u32 {d}, [{other}];\nbar.warp.sync 0xffffffff;"
        ));
    }

    /// Some threads say so and leave.
    fn leave_early(&mut self) {
        let (condition, a, slot, stay) = (self.condition(), self.variable(), self.exit_slot, self.label());
        self.line(format!(
            "@!{condition} bra stay{stay};\nor.b32 {a}, {a}, 1;\nst.global.u32 [out4+{slot}], {a};\nexit;\nstay{stay}:"
        ));
    }
}

/// Every lane takes the same lock: without independent thread scheduling this never ends.
fn spin_lock() -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.declarations += ".shared .align 4 .b32 lock, sum;\n";
    let value = kernel.load(Values::B32);
    let (free, first, old) = (kernel.register(1), kernel.register(1), kernel.register(32));
    kernel.line(format!(
        "setp.eq.u32 {first}, thread, 0;\n@{first} st.shared.u32 [lock], 0;\n@{first} st.shared.u32 [sum], 0;\nbar.sync \
         0;\nagain:\natom.acquire.cta.shared.cas.b32 {old}, [lock], 0, 1;\nsetp.ne.u32 {free}, {old}, 0;\n@{free} bra \
         again;\nld.volatile.shared.u32 {old}, [sum];\nadd.u32 {old}, {old}, {value};\nst.volatile.shared.u32 [sum], \
         {old};\nmembar.cta;\natom.release.cta.shared.exch.b32 {old}, [lock], 0;\nbar.sync 0;\nld.shared.u32 {old}, [sum];"
    ));
    kernel.store("sum", Values::B32, Rule::Exact, &old);
    kernel.finish("program: spin lock/0".into())
}

/// Control flow that is the same for all lanes of a warp, and says so.
fn uniform() -> Case {
    let mut kernel = Kernel::new(2, BLOCK);
    kernel.module +=
        ".func (.reg .b32 result) third(.reg .b32 a)\n{\nmul.hi.u32 result, a, 1431655766;\nret.uni;\n}\n";
    let value = kernel.load(Values::B32);
    let warp = kernel.register(32);
    kernel.line(format!(
        "shr.u32 {warp}, row, 5;\nand.b32 {warp}, {warp}, 1;\ncall.uni ({value}), third, ({value});\ntargets: .branchtargets \
         even, odd;\nbrx.idx.uni {warp}, targets;\neven:\nadd.u32 {value}, {value}, 11;\nbra.uni done;\nodd:\nshl.b32 {value}, \
         {value}, 3;\nbra.uni done;\ndone:"
    ));
    kernel.store("value", Values::B32, Rule::Exact, &value);
    kernel.finish("program: uniform/0".into())
}
