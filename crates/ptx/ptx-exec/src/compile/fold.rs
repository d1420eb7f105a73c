//! Addresses: the parts that accesses know before they are computed.
//!
//! nvcc makes of the access to an element of an array
//!
//! ```text
//! mul.wide.u32 %rd5, %r1, 4;  add.s64 %rd6, %rd4, %rd5;  ld.global.f32 %f2, [%rd6];
//! ```
//!
//! where `%rd4` is a parameter. [`ptx::analysis`] tells the access that its address is
//! `%rd4 + (%r1 << 2)` ([`FunctionCompiler::element`]); steps whose results nobody else reads are
//! *idle*: straight runs pass over them. Nothing is removed, so counts and faults are those of the
//! PTX, and a watched launch computes every register.
//!
//! [`name_patterns`] then says which accesses of a straight run may share what has been found out
//! about the lanes of the register that their addresses depend on.

use ptx::analysis::Atom;
use ptx::body::{InstructionId, Operand, Symbol};
use ptx::instruction::accesses;

use crate::code::{Input, Op, Step};
use crate::compile::frame::SymbolPlace;
use crate::compile::function::FunctionCompiler;
use crate::operands::{AccessArgs, Class, Indexed, PATTERNS, Reg, Role, Space};

impl FunctionCompiler<'_> {
    /// Returns the parts of the current access's address, if it is that of an array's element.
    pub(super) fn element(&mut self, args: &AccessArgs) -> Option<Indexed> {
        let at = self.line.filter(|_| !args.narrow)?;
        let line = &self.body.lines[at];
        for (place, access) in accesses(&self.operations[at], &line.operands).iter().enumerate() {
            let Some(base) = access.base.operand() else { continue };
            if !matches!(self.named(&base), Ok(Some((address, _))) if address == args.address) {
                continue;
            }
            let element = self.values.address(InstructionId(at as u32), place)?.element?;
            let index = Operand::Name(Symbol::Register(element.index));
            let (index, _) = self.named(&index).ok()??;
            return Some(Indexed {
                base: self.argument(element.base, Class::Long)?,
                index: self.bound.get(&index).copied().unwrap_or(index),
                signed: element.signed,
                shift: element.shift as u8,
            });
        }
        None
    }

    /// The input of a class that is one of the kernel's parameters, or the address of a variable.
    pub(super) fn argument(&self, atom: Atom, class: Class) -> Option<Reg> {
        let place = |variable| self.symbol_place(Symbol::Variable(variable)).ok();
        let input = match atom {
            Atom::Parameter { variable, offset, bytes } => match place(variable)? {
                SymbolPlace::Param(start) => {
                    Input::Param { offset: start.checked_add(offset)?, bytes, signed: false }
                }
                _ => return None,
            },
            Atom::Address(variable) => match place(variable)? {
                SymbolPlace::Global(index) => Input::Global(index),
                _ => return None,
            },
            _ => return None,
        };
        self.known_input(class, input)
    }
}

/// Finds the straight steps whose results only idle steps read, and accesses that know their
/// address without it.
pub(super) fn idle(steps: &mut [Step], registers: usize) -> Vec<bool> {
    // Reads that somebody needs, and the steps that write, of each register.
    let mut needed = vec![0u32; registers];
    let mut writers: Vec<Vec<usize>> = vec![Vec::new(); registers];
    let mut open = Vec::new();
    for (at, step) in steps.iter_mut().enumerate() {
        step.registers(&mut |reg, role| match role {
            Role::Use => needed[reg.0 as usize] += 1,
            Role::Def => writers[reg.0 as usize].push(at),
        });
    }
    for step in steps.iter() {
        if let Op::Access { args, .. } = &step.op
            && args.indexed.is_some()
        {
            needed[args.address.0 as usize] -= 1;
            open.push(args.address);
        }
    }
    let mut idle = vec![false; steps.len()];
    while let Some(reg) = open.pop() {
        if needed[reg.0 as usize] > 0 {
            continue;
        }
        for &at in &writers[reg.0 as usize] {
            let step = &mut steps[at];
            let computes = matches!(&step.op, Op::Lanes { args, .. } if !args.e.is_some());
            if !computes || !step.is_straight() || std::mem::replace(&mut idle[at], true) {
                continue;
            }
            step.registers(&mut |reg, role| {
                if role == Role::Use {
                    needed[reg.0 as usize] -= 1;
                    open.push(*reg);
                }
            });
        }
    }
    idle
}

/// Counts the straight steps from each step on, and the idle ones. A run ends before a step at which
/// `starts` tells that a region may be entered.
pub(super) fn mark_straight(steps: &mut [Step], idle: &[bool], starts: impl Fn(usize) -> bool) {
    let (mut straight, mut idle_after) = (0, 0u8);
    for (at, (step, &idle)) in steps.iter_mut().zip(idle).enumerate().rev() {
        straight = if step.is_straight() { straight + 1 } else { 0 };
        // A count that is too small executes an idle step, which does no harm.
        let idle_here = if idle && idle_after < u8::MAX { idle_after + 1 } else { 0 };
        (step.straight, step.idle, step.idle_after) = (straight, idle_here, idle_after);
        idle_after = idle_here;
        if starts(at) {
            (straight, idle_after) = (0, 0);
        }
    }
}

/// The values that the address of an access depends on, except for the offset.
#[derive(Clone, Copy, PartialEq)]
struct Address {
    space: Space,
    /// The base of an indexed address: never written.
    base: Reg,
    register: Reg,
    /// Of an index whether it is signed; else whether the address is a word.
    signed: bool,
    shift: u8,
}

impl Address {
    /// Whether it has the same index.
    fn is_like(&self, other: &Address) -> bool {
        let indexed = self.base.is_some() && other.base.is_some();
        indexed && self.register == other.register && self.signed == other.signed
    }
}

/// Gives the accesses of each straight run places for the patterns that they need; those that need
/// the same share one. Works on places of registers.
pub(super) fn name_patterns(steps: &mut [Step]) {
    // What each place is about; `None` if a register of it has been written since.
    let mut about: [Option<Address>; PATTERNS] = [None; PATTERNS];
    let mut next = 0;
    for step in steps {
        if !step.is_straight() {
            about = [None; PATTERNS];
        }
        if let Op::Access { args, .. } = &mut step.op {
            let key = match &args.indexed {
                Some(Indexed { base, index, signed, shift }) => Address {
                    space: args.space,
                    base: *base,
                    register: *index,
                    signed: *signed,
                    shift: *shift,
                },
                None => Address {
                    space: args.space,
                    base: Reg::NONE,
                    register: args.address,
                    signed: args.narrow,
                    shift: 0,
                },
            };
            let found = about.iter().position(|place| *place == Some(key));
            args.fresh = found.is_none();
            args.like = about
                .iter()
                .position(|place| place.is_some_and(|place| place.is_like(&key)))
                .map(|at| at as u8);
            let place = found.unwrap_or(next);
            if args.fresh {
                next = (next + 1) % PATTERNS;
            }
            args.pattern = place as u8;
            about[place] = Some(key);
        }
        // Classes of written places are not known here: a register of any class ends what is about
        // its number.
        step.registers(&mut |reg, role| {
            if role == Role::Def {
                for place in &mut about {
                    *place = place.filter(|about| about.register != *reg);
                }
            }
        });
    }
}
