//! Addresses: what accesses can know of them before they are computed.
//!
//! nvcc makes of the access to an element of an array
//!
//! ```text
//! mul.wide.u32 %rd5, %r1, 4;  add.s64 %rd6, %rd4, %rd5;  ld.global.f32 %f2, [%rd6];
//! ```
//!
//! where `%rd4` is a parameter. [`fold`] tells the access that its address is `%rd4 + (%r1 << 2)`;
//! if no other step reads the product and the sum, they are *idle*: straight runs pass over them.
//! Nothing is removed, so counts and faults are those of the PTX, and a watched launch computes
//! every register.
//!
//! [`name_patterns`] then says which accesses of a straight run may share what has been found out
//! about the lanes of the register that their addresses depend on.

use std::collections::HashMap;

use crate::code::{Op, Step};
use crate::compile::allocate::Span;
use crate::operands::{Args, Class, Indexed, Meaning, PATTERNS, Reg, Role, Space};

/// Inputs that addresses may be made of.
pub(super) struct Known<'c> {
    /// Longs that are the same in all lanes of all warps of a block, and never written.
    pub(super) uniform: &'c dyn Fn(Reg) -> bool,
    /// The bits of a constant.
    pub(super) constant: &'c dyn Fn(Reg) -> Option<u64>,
}

/// Largest shift of an index: elements of up to 64 KiB.
const MAX_SHIFT: u32 = 16;

/// Tells accesses what their addresses are made of; returns which steps are idle.
pub(super) fn fold(steps: &mut [Step], spans: &[Span], classes: &[Class], known: &Known) -> Vec<bool> {
    let writes = count(steps, classes.len(), Role::Def);
    let reads = count(steps, classes.len(), Role::Use);
    // Reads of each register that accesses no longer need.
    let mut saved = vec![0; classes.len()];
    let mut sums: Vec<(usize, usize, Reg, Reg)> = Vec::new();
    for span in spans {
        // Where each register was last written in this span.
        let mut written: HashMap<Reg, usize> = HashMap::new();
        for at in span.start..span.end {
            let place = |reg: Reg, written: &HashMap<Reg, usize>| {
                written.get(&reg).copied().filter(|_| writes[reg.0 as usize] == 1)
            };
            let address = match &steps[at].op {
                Op::Access { args, .. } if !args.narrow => Some(args.address),
                _ => None,
            };
            if let Some(address) = address
                && let Some(sum) = place(address, &written)
                && let Some((base, product)) = addition(&steps[sum], known)
                && let Some(multiplication) = place(product, &written)
                && let Some(indexed) = product_of(&steps[multiplication], base, known)
                && written.get(&indexed.index).is_none_or(|&index| index < multiplication)
            {
                if let Op::Access { args, .. } = &mut steps[at].op {
                    args.indexed = Some(indexed);
                }
                saved[address.0 as usize] += 1;
                sums.push((sum, multiplication, address, product));
            }
            steps[at].registers(&mut |reg, role| {
                if role == Role::Def {
                    written.insert(*reg, at);
                }
            });
        }
    }
    idle(steps.len(), &sums, &reads, saved)
}

/// The steps of folded addresses (sum, product, and the registers they write) that nobody else
/// reads.
fn idle(steps: usize, sums: &[(usize, usize, Reg, Reg)], reads: &[u32], mut saved: Vec<u32>) -> Vec<bool> {
    let mut idle = vec![false; steps];
    for &(sum, _, address, product) in sums {
        if saved[address.0 as usize] == reads[address.0 as usize] && !idle[sum] {
            idle[sum] = true;
            saved[product.0 as usize] += 1;
        }
    }
    for &(_, multiplication, _, product) in sums {
        idle[multiplication] |= saved[product.0 as usize] == reads[product.0 as usize];
    }
    idle
}

/// How often each register is read or written.
fn count(steps: &mut [Step], registers: usize, wanted: Role) -> Vec<u32> {
    let mut counts = vec![0; registers];
    for step in steps {
        step.registers(&mut |reg, role| counts[reg.0 as usize] += u32::from(role == wanted));
    }
    counts
}

/// The base and the other summand, if the step adds to a base.
fn addition(step: &Step, known: &Known) -> Option<(Reg, Reg)> {
    match &step.op {
        Op::Lanes { meaning: Meaning::AddLong, args: Args { a, b, .. }, .. } if step.is_straight() => {
            match ((known.uniform)(*a), (known.uniform)(*b)) {
                (true, false) => Some((*a, *b)),
                (false, true) => Some((*b, *a)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The address `base + product`, if the step computes the product of a word and a power of two.
fn product_of(step: &Step, base: Reg, known: &Known) -> Option<Indexed> {
    match &step.op {
        Op::Lanes { meaning: Meaning::MultiplyWide { signed }, args: Args { a, b, .. }, .. }
            if step.is_straight() =>
        {
            let factor = (known.constant)(*b).filter(|factor| factor.is_power_of_two())?;
            let shift = factor.trailing_zeros();
            (shift <= MAX_SHIFT).then_some(Indexed { base, index: *a, signed: *signed, shift: shift as u8 })
        }
        _ => None,
    }
}

/// Counts the straight steps from each step on, and the idle ones.
pub(super) fn mark_straight(steps: &mut [Step], idle: &[bool]) {
    let (mut straight, mut idle_after) = (0, 0u8);
    for (step, &idle) in steps.iter_mut().zip(idle).rev() {
        straight = if step.is_straight() { straight + 1 } else { 0 };
        // A count that is too small executes an idle step, which does no harm.
        let idle_here = if idle && idle_after < u8::MAX { idle_after + 1 } else { 0 };
        (step.straight, step.idle, step.idle_after) = (straight, idle_here, idle_after);
        idle_after = idle_here;
    }
}

/// What the address of an access depends on, but for the offset.
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
