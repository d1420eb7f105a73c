//! Instructions by which lanes exchange values, by all lanes of a warp and by halves that have
//! diverged.
//!
//! A shuffle from a lane that does not take part is undefined. Diverged groups are made of whole
//! segments of eight lanes, and shuffles stay in their segments.

use super::expand;
use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::values::Values;

const BLOCK: u32 = 64;

/// The control operand of a shuffle within segments of eight lanes.
const SEGMENTS: u32 = 0x18 << 8;

pub(super) fn generate(cases: &mut Vec<Case>) {
    for mode in ["up", "down", "bfly", "idx"] {
        cases.push(shuffle_all(mode));
        cases.push(diverged(&format!("shfl.sync.{mode}.b32"), "sm_80"));
    }
    for form in expand("vote.sync.{all,any,uni}.pred") {
        cases.push(diverged(&form, "sm_80"));
    }
    cases.push(diverged("vote.sync.ballot.b32", "sm_80"));
    for form in expand("match.{any,all}.sync.{b32,b64}") {
        cases.push(diverged(&form, "sm_80"));
    }
    for form in expand("redux.sync.{add,min,max}.{u32,s32}") {
        cases.push(diverged(&form, "sm_80"));
    }
    for form in expand("redux.sync.{and,or,xor}.b32") {
        cases.push(diverged(&form, "sm_80"));
    }
    cases.push(diverged("elect.sync", "sm_90"));
    cases.push(exchange());
    for form in expand("bar{.cta,}.red.{popc.u32,and.pred,or.pred}") {
        cases.push(barrier(&form));
    }
    for form in expand("barrier{.cta,}.red{.aligned,}.{popc.u32,and.pred,or.pred}") {
        cases.push(barrier(&form));
    }
    // The same with the modifiers in the table's order.
    for form in expand("barrier{.cta,}.red.{popc.aligned.u32,and.aligned.pred,or.aligned.pred}") {
        cases.push(barrier(&form));
    }
}

/// A shuffle by whole warps, with any distance, clamp and segment.
fn shuffle_all(mode: &str) -> Case {
    let mut kernel = Kernel::new(2, BLOCK);
    for (name, control) in
        [("segments of any size", None), ("the whole warp", Some(if mode == "up" { 0 } else { 31 }))]
    {
        let (value, distance) = (kernel.load(Values::B32), kernel.load(Values::Position));
        let control = match control {
            Some(control) => format!("{control}"),
            None => {
                let control = kernel.load(Values::B32);
                kernel.line(format!("and.b32 {control}, {control}, 0x1f1f;"));
                control
            }
        };
        let (result, inside) = (kernel.register(32), kernel.register(1));
        kernel.line(format!(
            "shfl.sync.{mode}.b32 {result}|{inside}, {value}, {distance}, {control}, 0xffffffff;"
        ));
        kernel.store(name, Values::B32, Rule::Exact, &result);
        kernel.store(&format!("{name}: in range"), Values::Pred, Rule::Exact, &inside);
    }
    kernel.finish(format!("shfl.sync.{mode}.b32/all"))
}

/// An instruction by all lanes, then by two groups of lanes on both sides of a branch.
fn diverged(form: &str, target: &'static str) -> Case {
    let mut kernel = Kernel::new(2, BLOCK);
    kernel.set_target("8.0", target);
    let (a, b) = (kernel.load(Values::B32), kernel.load(Values::Cell));
    // Which group a segment of eight lanes is in.
    let side = kernel.load(Values::B32);
    let (left, mask, members) = (kernel.register(1), kernel.register(32), kernel.register(32));
    kernel.line(format!(
        "and.b32 {mask}, lane, 0x18;\nshfl.sync.idx.b32 {side}, {side}, {mask}, 31, 0xffffffff;\nand.b32 {side}, {side}, \
         1;\nsetp.ne.u32 {left}, {side}, 0;\nvote.sync.ballot.b32 {mask}, {left}, 0xffffffff;\nmov.b32 {members}, \
         0xffffffff;"
    ));
    let results: Vec<Written> = (0..3).map(|_| Written::new(&mut kernel, form)).collect();
    kernel.line(results[0].instruction(form, &a, &b, &members));
    kernel.line(format!("@!{left} bra right;"));
    kernel.line(results[1].instruction(form, &a, &b, &mask));
    kernel.line(format!("bra.uni joined;\nright:\nnot.b32 {mask}, {mask};"));
    kernel.line(results[2].instruction(form, &a, &b, &mask));
    kernel.line("joined:");
    for (result, name) in results.iter().zip(["all", "left", "right"]) {
        result.store(&mut kernel, name);
    }
    kernel.finish(format!("{form}/diverged"))
}

/// The registers that a warp instruction writes.
struct Written {
    value: Option<String>,
    predicate: Option<String>,
    /// Further registers of the instruction.
    spare: Vec<String>,
}

impl Written {
    fn new(kernel: &mut Kernel, form: &str) -> Written {
        let has_predicate = ["shfl", "match.all", "elect"].iter().any(|opcode| form.starts_with(opcode))
            || form.ends_with("pred");
        let value = (!form.ends_with("pred")).then(|| kernel.register(32));
        let predicate = has_predicate.then(|| kernel.register(1));
        // Lanes on the other side keep these.
        value.iter().for_each(|value| kernel.line(format!("mov.b32 {value}, 0x5a5a5a5a;")));
        predicate.iter().for_each(|predicate| kernel.line(format!("setp.ne.u32 {predicate}, 0, 0;")));
        let spare = vec![kernel.register(1), kernel.register(64), kernel.register(32)];
        Written { value, predicate, spare }
    }

    fn instruction(&self, form: &str, a: &str, b: &str, members: &str) -> String {
        let [test, long, word] = self.spare.as_slice() else { return String::new() };
        let destination = match (&self.value, &self.predicate) {
            (Some(value), Some(predicate)) => format!("{value}|{predicate}"),
            (Some(value), None) => value.clone(),
            (None, Some(predicate)) => predicate.clone(),
            (None, None) => String::new(),
        };
        let opcode = form.split('.').next().unwrap_or(form);
        match opcode {
            // The distance is below eight, and for `idx` a lane of the segment.
            "shfl" if form.contains(".up") => {
                format!(
                    "shr.u32 {word}, {b}, 2;\nand.b32 {word}, {word}, 7;\n{form} {destination}, {a}, {word}, {SEGMENTS}, {members};"
                )
            }
            "shfl" => format!(
                "shr.u32 {word}, {b}, 2;\nand.b32 {word}, {word}, 7;\n{form} {destination}, {a}, {word}, {}, {members};",
                SEGMENTS | 7
            ),
            "vote" => format!(
                "and.b32 {word}, {b}, 4;\nsetp.ne.u32 {test}, {word}, 0;\n{form} {destination}, {test}, {members};"
            ),
            "match" if form.ends_with("b64") => {
                format!(
                    "and.b32 {word}, {b}, 4;\nmov.b64 {long}, {{{word}, {word}}};\n{form} {destination}, {long}, {members};"
                )
            }
            "match" => format!("and.b32 {word}, {b}, 12;\n{form} {destination}, {word}, {members};"),
            "elect" => format!("{form} {destination}, {members};"),
            _ => format!("{form} {destination}, {a}, {members};"),
        }
    }

    fn store(&self, kernel: &mut Kernel, name: &str) {
        if let Some(value) = &self.value {
            kernel.store(name, Values::B32, Rule::Exact, value);
        }
        if let Some(predicate) = &self.predicate {
            kernel.store(&format!("{name}: predicate"), Values::Pred, Rule::Exact, predicate);
        }
    }
}

/// Lanes pass values through shared memory, ordered by `bar.warp.sync` alone, again and again.
fn exchange() -> Case {
    let mut kernel = Kernel::new(2, BLOCK);
    kernel.declarations += &format!(".shared .align 4 .b32 pool[{BLOCK}];\n");
    let value = kernel.load(Values::B32);
    let [mine, other] = [0, 1].map(|_| kernel.register(64));
    let (round, index, more) = (kernel.register(32), kernel.register(32), kernel.register(1));
    let taken = kernel.register(32);
    kernel.line(format!(
        "mov.u64 {mine}, pool;\nmad.wide.u32 {mine}, thread, 4, {mine};\nmov.u32 {round}, 1;\nagain:\nst.shared.u32 \
         [{mine}], {value};\nbar.warp.sync 0xffffffff;\nxor.b32 {index}, thread, {round};\nmov.u64 {other}, \
         pool;\nmad.wide.u32 {other}, {index}, 4, {other};\nld.shared.u32 {taken}, [{other}];\nmad.lo.u32 {value}, {value}, \
         3, {taken};\nbar.warp.sync 0xffffffff;\nadd.u32 {round}, {round}, 1;\nsetp.lt.u32 {more}, {round}, 32;\n@{more} bra \
         again;"
    ));
    kernel.store("value", Values::B32, Rule::Exact, &value);
    kernel.finish("bar.warp.sync/exchange".into())
}

/// A barrier with a reduction, by all threads of the block.
fn barrier(form: &str) -> Case {
    let mut kernel = Kernel::new(4, BLOCK);
    for negated in ["", "!"] {
        let predicate = kernel.load(Values::Pred);
        let count = form.contains("popc");
        let result = kernel.register(if count { 32 } else { 1 });
        kernel.line(format!("{form} {result}, 0, {negated}{predicate};"));
        let name = if negated.is_empty() { "as it is" } else { "negated" };
        kernel.store(name, if count { Values::B32 } else { Values::Pred }, Rule::Exact, &result);
    }
    kernel.finish(format!("{form}/0"))
}
