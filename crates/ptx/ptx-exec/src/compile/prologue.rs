//! Finds the kernels whose [`Prologue`] batches may pass.

use std::collections::HashMap;

use ptx::analysis::{Atom, Term};
use ptx::body::{InstructionId, Operand, Symbol};
use ptx_lower::turned;

use crate::code::prologue::{Check, Prologue, Uniform};
use crate::code::{Input, Op, Step};
use crate::compile::allocate::Span;
use crate::compile::function::FunctionCompiler;
use crate::operands::{Args, Class, Guard, Indexed, Reg, Role, WordComparison};
use crate::registers::shapes::combine;

/// A prologue over virtual registers.
pub(super) struct Candidate {
    prologue: Prologue,
    /// The predicate of the check.
    outcome: Option<Reg>,
}

/// The index of a thread: the sum of `%tid` along an axis and the product of the factors.
pub(super) struct Start {
    thread: Reg,
    factors: [Uniform; 2],
}

/// The prologue of a function that begins with one, if nobody else needs what its steps compute: of
/// the index only accesses to elements of arrays, which can do with its pattern, and steps that are
/// idle therefore.
pub(super) fn find(
    steps: &mut [Step],
    spans: &[Span],
    idle: &[bool],
    inputs: &HashMap<Reg, Input>,
    start: Option<Start>,
) -> Option<Candidate> {
    let candidate = candidate(steps, inputs, start)?;
    let (index, length) = (candidate.prologue.index, candidate.prologue.steps());
    let first = spans.first()?;
    let again = spans.iter().any(|span| span.successors.contains(&0));
    if first.start != 0 || first.end < length + usize::from(candidate.outcome.is_some()) || again {
        return None;
    }
    for (at, step) in steps.iter_mut().enumerate() {
        let element = match &step.op {
            Op::Access { args, .. } => args.indexed.is_some_and(|Indexed { index: of, .. }| of == index),
            _ => false,
        };
        let (mut reads, mut taken) = (0, false);
        step.registers(&mut |reg, role| match role {
            Role::Use => {
                reads += usize::from(*reg == index);
                taken |= Some(*reg) == candidate.outcome && at != length;
                taken |= matches!(inputs.get(reg), Some(Input::Block(_)));
            }
            Role::Def => taken |= *reg == index || Some(*reg) == candidate.outcome,
        });
        if at >= length && (taken || !idle[at] && reads > usize::from(element)) {
            return None;
        }
    }
    Some(candidate)
}

fn candidate(steps: &[Step], inputs: &HashMap<Reg, Input>, start: Option<Start>) -> Option<Candidate> {
    let uniform = |reg: Reg| match inputs.get(&reg)? {
        Input::Block(axis @ 0..3) => Some(Uniform::Block(*axis)),
        Input::Block(_) => None,
        input if !input.is_of_warp() => Some(Uniform::Register(reg)),
        _ => None,
    };
    let Start { thread, factors } = start?;
    let (_, Args { d: index, e, .. }) = lanes(steps.first()?)?;
    if e.is_some() {
        return None;
    }
    let (check, outcome) = steps.get(1..3).and_then(|steps| check(steps, index, uniform)).unzip();
    Some(Candidate { prologue: Prologue { factors, thread, index, check }, outcome })
}

impl FunctionCompiler<'_> {
    /// Returns the computation of the first step if it is the index of a thread: a product of two
    /// numbers that are the same in all lanes, plus the thread.
    pub(super) fn start(&self) -> Option<Start> {
        let at = self.first_line?;
        let Some(Operand::Name(Symbol::Register(register))) = self.body.lines[at].operands.first() else {
            return None;
        };
        let sum = self.values.result(InstructionId(at as u32), *register)?;
        let atoms = |term: &Term| -> Vec<Atom> {
            term.factors.iter().map(|factor| self.values.sums().atom(*factor)).collect()
        };
        let [one, other] = sum.terms.as_slice() else { return None };
        let (thread, product) = match (atoms(one).as_slice(), atoms(other).as_slice()) {
            ([Atom::Thread(axis)], _) if one.coefficient == 1 => (*axis, other),
            (_, [Atom::Thread(axis)]) if other.coefficient == 1 => (*axis, one),
            _ => return None,
        };
        let word = |input| self.known_input(Class::Word, input);
        let mut factors = Vec::new();
        for atom in atoms(product) {
            factors.push(match atom {
                Atom::Block(axis) => Uniform::Block(axis),
                Atom::BlockSize(axis) => Uniform::Register(word(Input::BlockSize(axis))?),
                Atom::GridSize(axis) => Uniform::Register(word(Input::GridSize(axis))?),
                Atom::Parameter { .. } => Uniform::Register(self.argument(atom, Class::Word)?),
                _ => return None,
            });
        }
        if product.coefficient != 1 {
            factors.push(Uniform::Register(word(Input::Constant(product.coefficient))?));
        }
        let thread = word(Input::Thread(thread)).filter(|_| (sum.bits, sum.constant) == (32, 0))?;
        Some(Start { thread, factors: factors.try_into().ok()? })
    }
}

/// The check that a comparison and the step after it make, and the predicate between them.
fn check(steps: &[Step], index: Reg, uniform: impl Fn(Reg) -> Option<Uniform>) -> Option<(Check, Reg)> {
    let [comparison, branch] = steps else { return None };
    let (Some(WordComparison { relation, signed }), args) = lanes(comparison)? else { return None };
    let Op::Jump { target } = branch.op else { return None };
    let wanted = match branch.guard {
        Guard::If(reg) if reg == args.d => true,
        Guard::Unless(reg) if reg == args.d => false,
        _ => return None,
    };
    if args.e.is_some() || args.immediate != combine::NONE {
        return None;
    }
    let (relation, bound) = match (args.a == index, args.b == index) {
        (true, false) => (relation, uniform(args.b)?),
        (false, true) => (turned(relation), uniform(args.a)?),
        _ => return None,
    };
    Some((Check { relation, signed, bound, wanted, target }, args.d))
}

/// Returns the comparison, if it is one, and the operands of a straight step on registers.
fn lanes(step: &Step) -> Option<(Option<WordComparison>, Args)> {
    match &step.op {
        Op::Lanes { compares, args, .. } if step.is_straight() => Some((*compares, *args)),
        _ => None,
    }
}

impl Candidate {
    /// Steps before the branch, or before the rest of a kernel that has none.
    pub(super) fn steps(&self) -> usize {
        self.prologue.steps()
    }

    /// The registers that late steps may still have to write.
    pub(super) fn registers(&self) -> impl Iterator<Item = Reg> {
        std::iter::once(self.prologue.index).chain(self.outcome)
    }

    /// The prologue, its registers in their places.
    pub(super) fn placed(self, place: impl Fn(Reg) -> Reg) -> Prologue {
        let uniform = |of: Uniform| match of {
            Uniform::Register(reg) => Uniform::Register(place(reg)),
            block => block,
        };
        let Prologue { factors, thread, index, check } = self.prologue;
        Prologue {
            factors: factors.map(uniform),
            thread: place(thread),
            index: place(index),
            check: check.map(|check| Check { bound: uniform(check.bound), ..check }),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::program::Program;

    /// Whether batches may pass the beginning of a kernel, which is followed by this.
    fn is_found(beginning: &str, rest: &str) -> bool {
        let source = format!(
            ".version 7.0\n.target sm_80\n.address_size 64\n
             .visible .entry k(.param .u64 out, .param .u32 n) {{
                 .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
                 ld.param.u64 %rd1, [out]; ld.param.u32 %r2, [n];
                 mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
                 {beginning}
                 mul.wide.s32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r2;
                 {rest}
             END: ret; }}"
        );
        let module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("test", &source)));
        Program::compile(&module).unwrap().functions[0].code.prologue.is_some()
    }

    #[test]
    fn a_beginning_is_found_if_nobody_else_needs_it() {
        let usual = "mad.lo.s32 %r1, %r3, %r4, %r5; setp.ge.s32 %p1, %r1, %r2; @%p1 bra END;";
        assert!(is_found(usual, ""));
        assert!(is_found("mad.lo.s32 %r1, %r3, %r4, %r5;", ""));
        assert!(is_found("mad.lo.s32 %r1, %r4, %r3, %r5; setp.lt.u32 %p1, %r2, %r1; @!%p1 bra END;", ""));
        let others = [
            "st.global.u32 [%rd1], %r1;",
            "st.global.u32 [%rd1], %r3;",
            "add.u32 %r1, %r1, 1;",
            "@%p1 st.global.u32 [%rd1], %r2;",
        ];
        for other in others {
            assert!(!is_found(usual, other), "{other}");
        }
        // Not the index of a thread.
        assert!(!is_found("mad.lo.s32 %r1, %r3, %r4, %r2;", ""));
        assert!(!is_found("mad.lo.s32 %r1, %r3, %r5, %r5;", ""));
        // Equal at neither end says nothing of what is between them.
        assert!(!is_found("mad.lo.s32 %r1, %r3, %r4, %r5; setp.eq.s32 %p1, %r1, %r2; @%p1 bra END;", ""));
        // Executed again.
        let again = "AGAIN: mad.lo.s32 %r1, %r3, %r4, %r5; setp.ge.s32 %p1, %r1, %r2; @%p1 bra END;";
        assert!(!is_found(again, "bra AGAIN;"));
    }
}
