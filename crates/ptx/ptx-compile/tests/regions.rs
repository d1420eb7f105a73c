//! Random regions are executed as machine code and thread by thread, and compared: registers,
//! memory and counters.

#![allow(clippy::needless_range_loop, reason = "threads index several arrays at once")]

use std::ffi::c_void;

use apex_random::Random;
use ptx::ScalarType;
use ptx::instruction::{Comparison, Part, Rounding};
use ptx_compile::{
    Access, Address, Bases, Block, Class, Code, Context, Early, Element, End, Frame, Guard, Instruction,
    LOOP, LaneLoop, MEETING, Mask, Meeting, Operation, Outcome, Reg, Region, Register, Target, Window,
};
use ptx_lower::{Meaning, Modifiers, Op};

const WORDS: u32 = 24;
const LONGS: u32 = 6;
const PREDICATES: u32 = 8;
const WARPS: usize = 2;
const THREADS: usize = 32 * WARPS;
const ELEMENTS: usize = 512;

/// Words that have a meaning of their own; those before them are computed with.
const ONE: Reg = Reg(18);
const LIMIT: Reg = Reg(19);
const COUNTER: Reg = Reg(20);
const INDEX: Reg = Reg(21);
const THREAD: Reg = Reg(22);
const BOUND: Reg = Reg(23);
const COMPUTED: u64 = 18;
/// A predicate for loops, and a long that is an address.
const STAYS: Reg = Reg(WORDS + LONGS + PREDICATES - 1);
/// The threads in a block that others have gone past, and those of them that act.
const HERE: Reg = Reg(WORDS + LONGS + PREDICATES - 3);
const ACTING: Reg = Reg(WORDS + LONGS + PREDICATES - 2);
const POINTER: Reg = Reg(WORDS + LONGS - 1);

fn word(random: &mut Random) -> Reg {
    Reg(random.below(COMPUTED) as u32)
}

fn long(random: &mut Random) -> Reg {
    Reg(WORDS + random.below(u64::from(LONGS) - 1) as u32)
}

fn predicate(random: &mut Random) -> Reg {
    Reg(WORDS + LONGS + random.below(u64::from(PREDICATES) - 3) as u32)
}

fn compute(op: Op, ty: ScalarType, d: Reg, sources: &[Reg]) -> Operation {
    Operation::Compute { meaning: Meaning::plain(op, ty), d, sources: sources.to_vec() }
}

fn compare(relation: Comparison, ty: ScalarType, d: Reg, sources: [Reg; 2]) -> Operation {
    let op = Op::Compare { relation, logic: None, truth: ScalarType::Pred };
    compute(op, ty, d, &sources)
}

const RELATIONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessEqual,
    Comparison::Greater,
    Comparison::GreaterEqual,
];

fn operation(random: &mut Random) -> Operation {
    use ScalarType::{B32, B64, F32, Pred, S32, S64, U32, U64};
    let r = &mut *random;
    let (d, a, b, c) = (word(r), word(r), word(r), word(r));
    let (ld, la, lb, p) = (long(r), long(r), long(r), predicate(r));
    let relation = r.choose(&RELATIONS);
    match r.below(26) {
        16..=25 => wide_operation(r),
        0..=2 => {
            let op = r.choose(&[
                Op::Add,
                Op::Subtract,
                Op::Multiply(Part::Low),
                Op::Divide,
                Op::Minimum,
                Op::Maximum,
            ]);
            compute(op, F32, d, &[a, b])
        }
        3 | 4 => compute(Op::MultiplyAdd(Part::Low), F32, d, &[a, b, c]),
        5 => {
            let op = r.choose(&[Op::SquareRoot, Op::Reciprocal, Op::Absolute, Op::Negate]);
            compute(op, F32, d, &[a])
        }
        6 | 7 => {
            let op = r.choose(&[
                Op::Add,
                Op::Subtract,
                Op::Multiply(Part::Low),
                Op::Minimum,
                Op::Maximum,
                Op::And,
                Op::Or,
                Op::Xor,
                Op::ShiftLeft,
                Op::ShiftRight,
            ]);
            let ty = r.choose(&[U32, S32]);
            compute(op, ty, d, &[a, b])
        }
        8 => compute(Op::MultiplyAdd(Part::Low), S32, d, &[a, b, c]),
        9 => {
            let ty = r.choose(&[U32, S32, F32, U64, S64]);
            let sources = if matches!(ty, U64 | S64) { [la, lb] } else { [a, b] };
            compare(relation, ty, p, sources)
        }
        10 => compute(Op::Select, B32, d, &[a, b, p]),
        11 => compute(Op::Select, B64, ld, &[la, lb, p]),
        12 => {
            let op = r.choose(&[Op::Add, Op::Subtract, Op::And, Op::Or, Op::Xor]);
            compute(op, U64, ld, &[la, lb])
        }
        13 => {
            let op = r.choose(&[Op::ShiftLeft, Op::ShiftRight]);
            compute(op, U64, ld, &[la, a])
        }
        14 => {
            let ty = r.choose(&[U32, S32]);
            compute(Op::MultiplyAdd(Part::Wide), ty, ld, &[a, b, la])
        }
        _ => match r.below(5) {
            0 => compute(Op::Move, B32, d, &[a]),
            1 => compute(Op::Convert { to: U32, finite: false }, U64, d, &[la]),
            2 => compute(Op::Convert { to: S64, finite: false }, S32, ld, &[a]),
            3 => rounded(Op::Convert { to: F32, finite: false }, S32, Rounding::Nearest, d, &[a]),
            _ => compute(Op::Xor, Pred, p, &[p, predicate(r)]),
        },
    }
}

fn rounded(op: Op, ty: ScalarType, rounding: Rounding, d: Reg, sources: &[Reg]) -> Operation {
    let modifiers = Modifiers { rounding: Some(rounding), ..Modifiers::default() };
    Operation::Compute { meaning: Meaning { op, ty, modifiers }, d, sources: sources.to_vec() }
}

const WHOLE: [Rounding; 4] =
    [Rounding::WholeNearest, Rounding::WholeDown, Rounding::WholeUp, Rounding::WholeZero];

/// `.f64`, longs, conversions, and what is composed of several instructions.
fn wide_operation(r: &mut Random) -> Operation {
    use ScalarType::{F32, F64, S16, S32, S64, U8, U32, U64};
    let (d, a, b, c) = (word(r), word(r), word(r), word(r));
    let (ld, la, lb, lc, p) = (long(r), long(r), long(r), long(r), predicate(r));
    let convert = |to| Op::Convert { to, finite: false };
    match r.below(23) {
        20..=22 => narrow_operation(r),
        0..=2 => {
            let op = r.choose(&[
                Op::Add,
                Op::Subtract,
                Op::Multiply(Part::Low),
                Op::Divide,
                Op::Minimum,
                Op::Maximum,
            ]);
            compute(op, F64, ld, &[la, lb])
        }
        3 => compute(Op::MultiplyAdd(Part::Low), F64, ld, &[la, lb, lc]),
        4 => {
            let op = r.choose(&[Op::SquareRoot, Op::Reciprocal, Op::Absolute, Op::Negate]);
            compute(op, F64, ld, &[la])
        }
        5 => compare(r.choose(&RELATIONS), F64, p, [la, lb]),
        6 => rounded(convert(F32), F64, Rounding::Nearest, d, &[la]),
        7 => compute(convert(F64), F32, ld, &[a]),
        8 => compute(convert(F64), r.choose(&[S32, U32]), ld, &[a]),
        9 => rounded(convert(F32), U32, Rounding::Nearest, d, &[a]),
        10 => rounded(convert(r.choose(&[S32, U32, F32])), F32, r.choose(&WHOLE), d, &[a]),
        11 => match r.below(2) {
            0 => rounded(convert(S32), F64, r.choose(&WHOLE), d, &[la]),
            _ => rounded(convert(F64), F64, r.choose(&WHOLE), ld, &[la]),
        },
        12 => {
            let op = r.choose(&[Op::Divide, Op::Remainder, Op::Multiply(Part::High)]);
            compute(op, r.choose(&[S32, U32]), d, &[a, b])
        }
        13 => compute(Op::Multiply(Part::Low), U64, ld, &[la, lb]),
        14 => compute(Op::MultiplyAdd(Part::Low), S64, ld, &[la, lb, lc]),
        15 => {
            let op = r.choose(&[Op::Minimum, Op::Maximum]);
            compute(op, r.choose(&[S64, U64]), ld, &[la, lb])
        }
        16 => match r.below(3) {
            0 => compute(Op::ShiftRight, S64, ld, &[la, a]),
            1 => compute(Op::Negate, S64, ld, &[la]),
            _ => compute(Op::Absolute, S32, d, &[a]),
        },
        17 => compute(Op::Funnel { left: r.below(2) == 0, wrap: true }, ScalarType::B32, d, &[a, b, c]),
        18 => compute(convert(r.choose(&[S16, U8, U32])), r.choose(&[S16, U8, S32]), d, &[a]),
        _ => match r.below(3) {
            0 => rounded(Op::MultiplyAdd(Part::Low), F32, r.choose(&DIRECTIONS), d, &[a, b, c]),
            1 => {
                let modifiers = Modifiers { saturates: true, ..Modifiers::default() };
                let meaning = Meaning { op: convert(F32), ty: F32, modifiers };
                Operation::Compute { meaning, d, sources: vec![a] }
            }
            _ => {
                let modifiers = Modifiers { approximate: true, ..Modifiers::default() };
                let (op, sources) = match r.below(2) {
                    0 => (Op::Divide, vec![a, b]),
                    _ => (Op::ReciprocalSquareRoot, vec![a]),
                };
                Operation::Compute { meaning: Meaning { op, ty: F32, modifiers }, d, sources }
            }
        },
    }
}

/// Integers of one and two bytes, and `.f16`.
fn narrow_operation(r: &mut Random) -> Operation {
    use ScalarType::{B16, F16, F32, S8, S16, U8, U16};
    let (d, a, b) = (word(r), word(r), word(r));
    let to_single = Op::Convert { to: F32, finite: false };
    match r.below(6) {
        0 => rounded(to_single, r.choose(&[S8, S16, U8, U16]), Rounding::Nearest, d, &[a]),
        1 => compute(to_single, F16, d, &[a]),
        2 => rounded(Op::Convert { to: F16, finite: false }, F32, Rounding::Nearest, d, &[a]),
        3 => compare(r.choose(&RELATIONS), r.choose(&[S16, U16, B16]), predicate(r), [a, b]),
        4 => compute(Op::Multiply(Part::Wide), r.choose(&[S16, U16]), d, &[a, b]),
        _ => {
            let op = r.choose(&[
                Op::Add,
                Op::Subtract,
                Op::Multiply(Part::Low),
                Op::Minimum,
                Op::Maximum,
                Op::And,
                Op::Or,
                Op::Xor,
                Op::ShiftLeft,
                Op::ShiftRight,
            ]);
            compute(op, r.choose(&[S16, U16, B16]), d, &[a, b])
        }
    }
}

const DIRECTIONS: [Rounding; 3] = [Rounding::Down, Rounding::Up, Rounding::Zero];

fn guard(random: &mut Random) -> Option<Guard> {
    (random.below(5) == 0).then(|| Guard { predicate: predicate(random), negated: random.below(2) == 0 })
}

/// An access: loads from the array, stores to the thread's own words.
fn access(random: &mut Random, site: u32) -> Access {
    let d = word(random);
    let store = random.below(3) == 0;
    let (address, offset) = match (store, random.below(3)) {
        (true, _) => {
            (Address::Indexed { index: THREAD, signed: false, shift: 2 }, 256 * random.below(4) as i64)
        }
        (false, 0) => (Address::Long(POINTER), 4 * random.below(8) as i64),
        (false, 1) => (Address::Word(BOUND), 0),
        _ => (Address::Indexed { index: INDEX, signed: true, shift: 2 }, 4 * random.below(8) as i64),
    };
    let data = if !store && random.below(4) == 0 && offset == 0 && !matches!(address, Address::Word(_)) {
        vec![d, Reg((d.0 + 1) % COMPUTED as u32)]
    } else {
        vec![d]
    };
    // Pairs are aligned where the index is even.
    let data = if data.len() == 2 && !matches!(address, Address::Long(_)) { vec![d] } else { data };
    Access {
        site,
        key: u64::from(store),
        address,
        offset,
        data,
        element: Element::Word,
        store,
        of_lane: false,
    }
}

/// An access to longs: loads from the array, stores to the thread's own.
fn access_to_longs(random: &mut Random, site: u32) -> Access {
    let store = random.below(3) == 0;
    let (address, offset) = match store {
        true => {
            (Address::Indexed { index: THREAD, signed: false, shift: 3 }, 4096 + 512 * random.below(2) as i64)
        }
        false => (Address::Long(POINTER), 8 * random.below(4) as i64),
    };
    Access {
        site,
        key: u64::from(store),
        address,
        offset,
        data: vec![long(random)],
        element: Element::Long,
        store,
        of_lane: false,
    }
}

/// An access to bytes or to two at a time: loads from the array, stores to the thread's own.
fn access_to_narrow(random: &mut Random, site: u32) -> Access {
    let (store, bytes, signed) = (random.below(3) == 0, 1 + random.below(2) as u8, random.below(2) == 0);
    let shift = bytes - 1;
    let (address, offset) = match (store, random.below(3)) {
        (true, _) => {
            let address = Address::Indexed { index: THREAD, signed: false, shift };
            (address, 4096 + i64::from(bytes) * (1024 + 64 * random.below(4) as i64))
        }
        (false, 0) => (Address::Long(POINTER), i64::from(bytes) * random.below(8) as i64),
        (false, 1) => (Address::Word(BOUND), i64::from(bytes)),
        _ => (
            Address::Indexed { index: INDEX, signed: true, shift },
            i64::from(bytes) * random.below(8) as i64,
        ),
    };
    let element = Element::Narrow { bytes, signed };
    Access {
        site,
        key: u64::from(store),
        address,
        offset,
        data: vec![word(random)],
        element,
        store,
        of_lane: false,
    }
}

fn instructions(random: &mut Random, sites: &mut u32, lane_loop: Option<Reg>) -> Vec<Instruction> {
    let count = 1 + random.below(12);
    let one = |_| {
        if random.below(5) == 0 {
            *sites += 1;
            let access = random.choose(&[access_to_longs, access_to_narrow, access, access]);
            let guard = match lane_loop {
                Some(mask) => Some(Guard { predicate: mask, negated: false }),
                None => guard(random),
            };
            let access = access(random, *sites - 1);
            return Instruction { guard, operation: Operation::Access(access) };
        }
        let guard = match lane_loop {
            Some(mask) => Some(Guard { predicate: mask, negated: false }),
            None => guard(random),
        };
        Instruction { guard, operation: operation(random) }
    };
    (0..count).map(one).collect()
}

fn plain(operation: Operation) -> Instruction {
    Instruction { guard: None, operation }
}

/// Blocks 3 and 4: some threads go past the second.
fn branch(random: &mut Random, sites: &mut u32) -> [Block; 2] {
    use ScalarType::Pred;
    let mut before = instructions(random, sites, None);
    before.push(plain(compute(Op::Xor, Pred, HERE, &[predicate(random), predicate(random)])));
    let here = Guard { predicate: HERE, negated: false };
    let mut inside = Vec::new();
    for Instruction { guard, operation } in instructions(random, sites, None) {
        let Some(guard) = guard else {
            inside.push(Instruction { guard: Some(here), operation });
            continue;
        };
        let turn = if guard.negated { Op::Not } else { Op::Move };
        inside.push(plain(compute(turn, Pred, ACTING, &[guard.predicate])));
        inside.push(plain(compute(Op::And, Pred, ACTING, &[ACTING, HERE])));
        let acting = Guard { predicate: ACTING, negated: false };
        inside.push(Instruction { guard: Some(acting), operation });
    }
    let guard = Guard { predicate: HERE, negated: true };
    let end = End::Branch { guard, taken: Target::Block(5), next: Target::Block(4) };
    let mask = Some(Mask { here: HERE, later: Vec::new() });
    let end_inside = End::Jump(Target::Block(5));
    [
        Block { instructions: before, end, ..Block::default() },
        Block { mask, instructions: inside, end: end_inside, ..Block::default() },
    ]
}

fn region(random: &mut Random) -> Region {
    let mut registers = Vec::new();
    for (class, count) in [(Class::Word, WORDS), (Class::Long, LONGS), (Class::Predicate, PREDICATES)] {
        registers.extend((0..count).map(|place| Register { class, place }));
    }
    let (mask, laps) = (Reg(registers.len() as u32), Reg(registers.len() as u32 + 1));
    registers.extend([Class::Predicate, Class::Word].map(|class| Register { class, place: 0 }));
    let mut sites = 0;
    let next = |index: u32| End::Jump(Target::Block(index));
    let guard = Guard { predicate: STAYS, negated: false };
    let mut blocks = vec![Block {
        instructions: instructions(random, &mut sites, None),
        end: next(1),
        ..Block::default()
    }];
    let mut body = instructions(random, &mut sites, None);
    body.push(plain(compute(Op::Add, ScalarType::U32, COUNTER, &[COUNTER, ONE])));
    body.push(plain(compare(Comparison::Less, ScalarType::U32, STAYS, [COUNTER, LIMIT])));
    let end = End::Branch { guard, taken: Target::Block(1), next: Target::Block(2) };
    blocks.push(Block { instructions: body, end, ..Block::default() });
    let masked = Some(Guard { predicate: mask, negated: false });
    let mut body = instructions(random, &mut sites, Some(mask));
    let count = compute(Op::Add, ScalarType::U32, COUNTER, &[COUNTER, ONE]);
    // Nobody needs the counter afterwards: threads that have left may go on counting.
    let masked = masked.filter(|_| random.below(2) == 0);
    body.push(Instruction { guard: masked, operation: count });
    body.push(plain(compare(Comparison::NotEqual, ScalarType::U32, STAYS, [COUNTER, BOUND])));
    let end = End::Branch { guard, taken: Target::Block(2), next: Target::Block(3) };
    let lane_loop = Some(LaneLoop { mask, laps, index: 0 });
    blocks.push(Block { lane_loop, instructions: body, end, ..Block::default() });
    blocks.extend(branch(random, &mut sites));
    let instructions = instructions(random, &mut sites, None);
    blocks.push(Block { instructions, end: End::Jump(Target::Exit(0)), ..Block::default() });
    // Registers that nobody needs afterwards die in the region.
    let is_needed =
        |reg: &Reg| *reg != COUNTER && (reg.0 >= COMPUTED as u32 && reg.0 < WORDS || random.below(3) > 0);
    let needed = (0..WORDS + LONGS + PREDICATES - 2).map(Reg).filter(is_needed).collect();
    let mut region = Region { registers, blocks, exits: vec![needed], meetings: Vec::new() };
    for place in 0..MEETINGS {
        if random.below(3) == 0 {
            meet(&mut region, place, random);
        }
    }
    region
}

/// Places at which strips may meet.
const MEETINGS: u32 = 4;

/// Has the strips meet at a place: before the first loop, in it, after it, and at the end.
fn meet(region: &mut Region, place: u32, random: &mut Random) {
    let met = Target::Block(region.blocks.len() as u32);
    let meeting = region.meetings.len() as u32;
    let edge = match (place, &mut region.blocks[..]) {
        (0, [Block { end: End::Jump(edge), .. }, ..]) => edge,
        (1, [_, Block { end: End::Branch { taken, .. }, .. }, ..]) => taken,
        (2, [_, Block { end: End::Branch { next, .. }, .. }, ..]) => next,
        (_, [.., _]) => match &mut region.blocks[5].end {
            End::Jump(edge) => edge,
            _ => panic!("the last block jumps"),
        },
        _ => panic!("the region has other blocks"),
    };
    let next = std::mem::replace(edge, met);
    let (a, d) = (word(random), word(random));
    let held = match random.below(if place == 2 { 5 } else { 4 }) {
        0 => Meeting::Barrier,
        1 => Meeting::Step { uses: vec![a], definitions: vec![d] },
        2 | 3 => {
            let by = 1 << random.below(5);
            let from: [u8; 32] = match random.below(4) {
                0 => std::array::from_fn(|lane| lane as u8 ^ by),
                1 => std::array::from_fn(|lane| (lane as u8 + by).min(31)),
                2 => std::array::from_fn(|lane| (lane as u8).saturating_sub(by)),
                _ => std::array::from_fn(|_| random.below(32) as u8),
            };
            let valid = (random.below(2) == 0).then(|| predicate(random));
            Meeting::Shuffle { d, valid, a, from, inside: random.bits() as u32 }
        }
        // All threads have left the loop.
        _ => Meeting::Branch(Guard { predicate: STAYS, negated: random.below(2) == 0 }),
    };
    let (mut taken, mut next) = (None, next);
    if let Meeting::Branch(guard) = held {
        // The other way goes past the second loop.
        let past = Target::Block(3);
        (taken, next) = if guard.negated { (Some(next), past) } else { (Some(past), next) };
    }
    region.meetings.push(held);
    region.blocks.push(Block { end: End::Meet { meeting, taken, next }, ..Block::default() });
}

/// What the helper does as a step of a warp: it turns the order of the lanes.
fn turned(words: [u64; 32]) -> [u64; 32] {
    std::array::from_fn(|lane| u64::from((words[31 - lane] as u32).wrapping_add(7)))
}

fn any_long(random: &mut Random) -> u64 {
    let special = [0, 1 << 63, 0x7ff8_0000_0000_0001, 0xfff0_0000_0000_0000, 0x7ff0_0000_0000_0001, 1];
    match random.below(4) {
        0 => special[random.index(special.len())],
        1 | 2 => (f64::from(random.signed()) * random.below(1 << 31) as f64).to_bits(),
        _ => random.bits(),
    }
}

/// A result of numbers of `.f64`: a source that is a NaN, made quiet, or what is computed.
fn of_numbers(sources: &[f64], result: f64) -> u64 {
    let nan = sources.iter().find(|source| source.is_nan());
    nan.map_or(result.to_bits(), |nan| nan.to_bits() | 1 << 51)
}

/// The lesser of two numbers of `.f64`, by bits, or the greater.
fn extremum_of_doubles(least: bool, a: f64, b: f64) -> u64 {
    let first = match a == b {
        true => a.is_sign_negative() == least,
        false if least => a < b,
        false => a > b,
    };
    if b.is_nan() || first { a.to_bits() } else { b.to_bits() }
}

fn whole(value: f64, rounding: Option<Rounding>) -> f64 {
    match rounding {
        Some(Rounding::WholeDown) => value.floor(),
        Some(Rounding::WholeUp) => value.ceil(),
        Some(Rounding::WholeZero) => value.trunc(),
        _ => value.round_ties_even(),
    }
}

/// `a * b + c` in another direction, of which the sum is exact in more digits than `.f64` has: the
/// nearest number, and what it lacks, tell.
fn fused(a: f32, b: f32, c: f32, rounding: Option<Rounding>) -> f32 {
    let nearest = a.mul_add(b, c);
    if !(nearest.is_finite() || a.is_finite() && b.is_finite() && c.is_finite()) {
        return nearest;
    }
    // The product is exact; `low` is what the sum of it and `c` lacks.
    let (product, addend) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + addend;
    let part = sum - product;
    let low = (product - (sum - part)) + (addend - part);
    let compared = f64::from(nearest).partial_cmp(&sum).unwrap();
    let compared = compared.then(0f64.partial_cmp(&low).unwrap());
    let zero = sum == 0.0 && low == 0.0;
    let same_signs = (product.is_sign_negative()) == addend.is_sign_negative();
    match rounding {
        Some(Rounding::Down) if zero && !same_signs => -0.0,
        _ if zero => nearest,
        Some(Rounding::Down) if compared.is_gt() => nearest.next_down(),
        Some(Rounding::Up) if compared.is_lt() => nearest.next_up(),
        Some(Rounding::Zero) if compared.is_gt() && sum > 0.0 => nearest.next_down(),
        Some(Rounding::Zero) if compared.is_lt() && sum < 0.0 => nearest.next_up(),
        _ => nearest,
    }
}

/// What an operation of [`wide_operation`] computes; `None` if it is another.
fn evaluate_wide(meaning: &Meaning, s: &[u64]) -> Option<u64> {
    use ScalarType::{B32, F32, F64, S16, S32, S64, U8, U32, U64};
    let (f, w) = (|index: usize| f32::from_bits(s[index] as u32), |index: usize| s[index] as u32);
    let g = |index: usize| f64::from_bits(s[index]);
    let rounding = meaning.modifiers.rounding;
    let binary = |value: f64| Some(of_numbers(&[g(0), g(1)], value));
    match (meaning.op, meaning.ty) {
        (Op::Add, F64) => binary(g(0) + g(1)),
        (Op::Subtract, F64) => binary(g(0) - g(1)),
        (Op::Multiply(_), F64) => binary(g(0) * g(1)),
        (Op::Divide, F64) => binary(g(0) / g(1)),
        (Op::Minimum | Op::Maximum, F64) => Some(extremum_of_doubles(meaning.op == Op::Minimum, g(0), g(1))),
        (Op::MultiplyAdd(_), F64) => Some(of_numbers(&[g(0), g(1), g(2)], g(0).mul_add(g(1), g(2)))),
        (Op::SquareRoot, F64) => Some(of_numbers(&[g(0)], g(0).sqrt())),
        (Op::Reciprocal, F64) => Some(of_numbers(&[g(0)], 1.0 / g(0))),
        (Op::Absolute, F64) => Some(s[0] & i64::MAX as u64),
        (Op::Negate, F64) => Some(s[0] ^ 1 << 63),
        (Op::Compare { relation, .. }, F64) => Some(relates(relation, g(0), g(1))),
        (Op::Convert { to: F32, .. }, F64) => Some(canonical(g(0) as f32)),
        (Op::Convert { to: F64, .. }, F32) => Some(of_numbers(&[f(0).into()], f(0).into())),
        (Op::Convert { to: F64, .. }, S32) => Some(f64::from(w(0) as i32).to_bits()),
        (Op::Convert { to: F64, .. }, U32) => Some(f64::from(w(0)).to_bits()),
        (Op::Convert { to: F64, .. }, F64) => Some(of_numbers(&[g(0)], whole(g(0), rounding))),
        (Op::Convert { to: F32, .. }, U32) => Some(canonical(w(0) as f32)),
        (Op::Convert { to: F32, .. }, F32) if meaning.modifiers.saturates => {
            Some(canonical(if f(0) > 0.0 { f(0).min(1.0) } else { 0.0 }))
        }
        (Op::Convert { to: F32, .. }, F32) => Some(canonical(whole(f(0).into(), rounding) as f32)),
        (Op::Convert { to: S32, .. }, F32) => Some((whole(f(0).into(), rounding) as i32 as u32).into()),
        (Op::Convert { to: U32, .. }, F32) => Some((whole(f(0).into(), rounding) as u32).into()),
        (Op::Convert { to: S32, .. }, F64) => {
            let value = if g(0).is_nan() { i32::MIN } else { whole(g(0), rounding) as i32 };
            Some(u64::from(value as u32))
        }
        (Op::Convert { to: to @ (S16 | U8 | U32), .. }, from @ (S16 | U8 | S32)) => {
            let cut = |value: u32, ty| match ty {
                S16 => value as i16 as u32,
                U8 => value as u8 as u32,
                _ => value,
            };
            Some(cut(cut(w(0), from), to).into())
        }
        (Op::Divide | Op::Remainder, U32 | S32) if w(1) == 0 => Some(u64::from(u32::MAX)),
        (Op::Divide, U32) => Some((w(0) / w(1)).into()),
        (Op::Remainder, U32) => Some((w(0) % w(1)).into()),
        (Op::Divide, S32) => Some(((w(0) as i32).wrapping_div(w(1) as i32) as u32).into()),
        (Op::Remainder, S32) => Some(((w(0) as i32).wrapping_rem(w(1) as i32) as u32).into()),
        (Op::Multiply(Part::High), U32) => Some((u64::from(w(0)) * u64::from(w(1))) >> 32),
        (Op::Multiply(Part::High), S32) => {
            Some(u64::from(((i64::from(w(0) as i32) * i64::from(w(1) as i32)) >> 32) as u32))
        }
        (Op::Multiply(_), U64) => Some(s[0].wrapping_mul(s[1])),
        (Op::MultiplyAdd(Part::Low), S64) => Some(s[0].wrapping_mul(s[1]).wrapping_add(s[2])),
        (Op::Minimum, S64) => Some((s[0] as i64).min(s[1] as i64) as u64),
        (Op::Maximum, S64) => Some((s[0] as i64).max(s[1] as i64) as u64),
        (Op::Minimum, U64) => Some(s[0].min(s[1])),
        (Op::Maximum, U64) => Some(s[0].max(s[1])),
        (Op::ShiftRight, S64) => Some((s[0] as i64 >> w(1).min(63)) as u64),
        (Op::Negate, S64) => Some(s[0].wrapping_neg()),
        (Op::Absolute, S32) => Some((w(0) as i32).wrapping_abs() as u32 as u64),
        (Op::Funnel { left, .. }, B32) => {
            let both = s[1] << 32 | s[0];
            Some(if left { both << (w(2) % 32) >> 32 } else { both >> (w(2) % 32) & 0xffff_ffff })
        }
        (Op::MultiplyAdd(_), F32) if rounding.is_some() => Some(canonical(fused(f(0), f(1), f(2), rounding))),
        (Op::Divide, F32) if meaning.modifiers.approximate => {
            let huge = f(1).abs() > f32::from_bits(0x7e80_0000) && f(1).is_finite();
            Some(canonical(if huge { f(0) * 0f32.copysign(f(1)) } else { f(0) / f(1) }))
        }
        (Op::ReciprocalSquareRoot, F32) => Some(canonical((1.0 / f64::from(f(0)).sqrt()) as f32)),
        _ => None,
    }
}

/// What an operation of [`narrow_operation`] computes; `None` if it is another.
fn evaluate_narrow(meaning: &Meaning, s: &[u64]) -> Option<u64> {
    use ScalarType::{B16, F16, F32, S8, S16, U8, U16};
    let small = |index: usize| match meaning.ty {
        S8 => i32::from(s[index] as i8),
        U8 => i32::from(s[index] as u8),
        S16 => i32::from(s[index] as i16),
        _ => i32::from(s[index] as u16),
    };
    let amount = || s[1] as u32;
    match (meaning.op, meaning.ty) {
        (Op::Convert { to: F32, .. }, F16) => return Some(canonical(of_half(s[0] as u16))),
        (Op::Convert { to: F16, .. }, F32) => return Some(to_half(f32::from_bits(s[0] as u32)).into()),
        (Op::Convert { to: F32, .. }, S8 | S16 | U8 | U16) => {
            return Some((small(0) as f32).to_bits().into());
        }
        (Op::Convert { .. }, _) => return None,
        (_, S16 | U16 | B16) => {}
        _ => return None,
    }
    let result = match meaning.op {
        Op::Compare { relation, .. } => return Some(relates(relation, small(0), small(1))),
        Op::Multiply(Part::Wide) => return Some(u64::from(small(0).wrapping_mul(small(1)) as u32)),
        Op::Add => small(0) + small(1),
        Op::Subtract => small(0) - small(1),
        Op::Multiply(_) => small(0).wrapping_mul(small(1)),
        Op::Minimum => small(0).min(small(1)),
        Op::Maximum => small(0).max(small(1)),
        Op::And => small(0) & small(1),
        Op::Or => small(0) | small(1),
        Op::Xor => small(0) ^ small(1),
        Op::ShiftLeft => small(0).checked_shl(amount()).unwrap_or(0),
        Op::ShiftRight => small(0) >> amount().min(31),
        _ => return None,
    };
    let signed = meaning.ty == S16;
    Some(if signed { result as i16 as u32 } else { u32::from(result as u16) }.into())
}

/// The number of a half.
fn of_half(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 0x3ff));
    let magnitude = match exponent {
        31 if fraction != 0.0 => f32::NAN,
        31 => f32::INFINITY,
        0 => fraction * 2f32.powi(-24),
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if bits >> 15 != 0 { -magnitude } else { magnitude }
}

/// The half next to a number: of those next to it, the even one.
fn to_half(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let sign = (value.to_bits() >> 16) as u16 & 0x8000;
    let magnitude = value.abs();
    // Half a unit of the last place beyond the greatest.
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    let (mut below, mut above) = (0, 0x7c00);
    while above - below > 1 {
        let middle = (below + above) / 2;
        *if of_half(middle) <= magnitude { &mut below } else { &mut above } = middle;
    }
    let middle = match above {
        0x7c00 => 65520.0,
        _ => (f64::from(of_half(below)) + f64::from(of_half(above))) / 2.0,
    };
    let up = match f64::from(magnitude).total_cmp(&middle) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => below % 2 != 0,
    };
    sign | if up { above } else { below }
}

fn canonical(value: f32) -> u64 {
    u64::from(if value.is_nan() { 0x7fff_ffff } else { value.to_bits() })
}

/// The lesser number of the bits of two, where -0 is less than 0 and a NaN loses.
fn lesser(a: u32, b: u32) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    match (x.is_nan(), y.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if x == y => a | b,
        _ if x < y => a,
        _ => b,
    }
}

fn relates<T: PartialOrd>(relation: Comparison, a: T, b: T) -> u64 {
    ptx_lower::holds(relation, a, b).into()
}

/// What an operation computes.
fn evaluate(meaning: &Meaning, s: &[u64]) -> u64 {
    use ScalarType::{F32, Pred, S32, S64, U32, U64};
    let f = |index: usize| f32::from_bits(s[index] as u32);
    let w = |index: usize| s[index] as u32;
    let negative = 0x8000_0000u32;
    if let Some(value) = evaluate_narrow(meaning, s).or_else(|| evaluate_wide(meaning, s)) {
        return value;
    }
    match (meaning.op, meaning.ty) {
        (Op::Move, _) => s[0],
        (Op::Select, _) => {
            if s[2] != 0 {
                s[0]
            } else {
                s[1]
            }
        }
        (Op::Compare { relation, .. }, ty) => match ty {
            F32 => relates(relation, f(0), f(1)),
            U32 => relates(relation, w(0), w(1)),
            S32 => relates(relation, w(0) as i32, w(1) as i32),
            U64 => relates(relation, s[0], s[1]),
            _ => relates(relation, s[0] as i64, s[1] as i64),
        },
        (Op::Convert { to: F32, .. }, _) => canonical(w(0) as i32 as f32),
        (Op::Convert { to: S64, .. }, _) => w(0) as i32 as u64,
        (Op::Convert { .. }, _) => u64::from(w(0)),
        (Op::Add, F32) => canonical(f(0) + f(1)),
        (Op::Subtract, F32) => canonical(f(0) - f(1)),
        (Op::Multiply(_), F32) => canonical(f(0) * f(1)),
        (Op::MultiplyAdd(_), F32) => canonical(f(0).mul_add(f(1), f(2))),
        (Op::Divide, F32) => canonical(f(0) / f(1)),
        (Op::Minimum, F32) => canonical(f32::from_bits(lesser(w(0), w(1)))),
        (Op::Maximum, F32) => {
            // NaNs lose whatever their sign.
            let turn = |bits: u32| bits ^ negative;
            canonical(f32::from_bits(turn(lesser(turn(w(0)), turn(w(1))))))
        }
        (Op::SquareRoot, F32) => canonical(f(0).sqrt()),
        (Op::Reciprocal, F32) => canonical(1.0 / f(0)),
        (Op::Absolute, F32) => u64::from(w(0) & !negative),
        (Op::Negate, F32) => u64::from(w(0) ^ negative),
        (Op::Xor, Pred) => s[0] ^ s[1],
        (Op::And, Pred) => s[0] & s[1],
        (Op::Not, Pred) => s[0] ^ 1,
        (Op::MultiplyAdd(Part::Wide), U32) => (s[0] * s[1]).wrapping_add(s[2]),
        (Op::MultiplyAdd(Part::Wide), _) => {
            (i64::from(w(0) as i32) * i64::from(w(1) as i32)).wrapping_add(s[2] as i64) as u64
        }
        (op, U64) => match op {
            Op::Add => s[0].wrapping_add(s[1]),
            Op::Subtract => s[0].wrapping_sub(s[1]),
            Op::And => s[0] & s[1],
            Op::Or => s[0] | s[1],
            Op::Xor => s[0] ^ s[1],
            Op::ShiftLeft => s[0].checked_shl(w(1)).unwrap_or(0),
            _ => s[0].checked_shr(w(1)).unwrap_or(0),
        },
        (op, ty) => u64::from(match op {
            Op::Add => w(0).wrapping_add(w(1)),
            Op::Subtract => w(0).wrapping_sub(w(1)),
            Op::Multiply(_) => w(0).wrapping_mul(w(1)),
            Op::MultiplyAdd(_) => w(0).wrapping_mul(w(1)).wrapping_add(w(2)),
            Op::Minimum if ty == S32 => (w(0) as i32).min(w(1) as i32) as u32,
            Op::Minimum => w(0).min(w(1)),
            Op::Maximum if ty == S32 => (w(0) as i32).max(w(1) as i32) as u32,
            Op::Maximum => w(0).max(w(1)),
            Op::And => w(0) & w(1),
            Op::Or => w(0) | w(1),
            Op::Xor => w(0) ^ w(1),
            Op::ShiftLeft => w(0).checked_shl(w(1)).unwrap_or(0),
            Op::ShiftRight if ty == S32 => (w(0) as i32 >> w(1).min(31)) as u32,
            Op::ShiftRight => w(0).checked_shr(w(1)).unwrap_or(0),
            other => unreachable!("{other:?}"),
        }),
    }
}

/// Registers of all threads, and the memory.
#[derive(Clone, PartialEq)]
struct State {
    /// By register, then by thread.
    values: Vec<Vec<u64>>,
    array: Vec<u32>,
    own: Vec<u32>,
}

impl State {
    fn new(random: &mut Random) -> State {
        let special = [0, 0x8000_0000, 0x7fc0_0001, 0xff80_0000, 0x7f80_0001, 0x3f80_0000, 1, u32::MAX];
        let any = |random: &mut Random| match random.below(3) {
            0 => special[random.index(special.len())],
            1 => (random.signed() * 4.0).to_bits(),
            _ => random.bits() as u32,
        };
        let mut values: Vec<Vec<u64>> = (0..WORDS + LONGS + PREDICATES)
            .map(|reg| {
                let value = |_| match reg {
                    _ if reg < WORDS => u64::from(any(random)),
                    _ if reg < WORDS + LONGS => any_long(random),
                    _ => random.below(2),
                };
                (0..THREADS).map(value).collect()
            })
            .collect();
        let mut array: Vec<u32> = (0..ELEMENTS).map(|_| any(random)).collect();
        array.shrink_to_fit();
        values[ONE.0 as usize].fill(1);
        values[COUNTER.0 as usize].fill(0);
        let limit = random.below(4);
        values[LIMIT.0 as usize].fill(limit);
        let choice = random.below(5);
        // The strips alike, or one after the other in another way.
        let turns = random.below(3) == 0;
        for thread in 0..THREADS {
            let choice = if turns { (choice + thread as u64 / 8) % 5 } else { choice };
            let shape = |choice: u64, random: &mut Random| match choice {
                0 => thread as u64 + 4,
                1 => 17,
                2 => (thread as u64 / 8) * 16,
                // The second four as the first.
                4 => (thread as u64 / 8) * 16 + thread as u64 % 4,
                _ => random.below(ELEMENTS as u64 - 16),
            };
            values[INDEX.0 as usize][thread] = shape(choice, random);
            // Words of its own, at which its neighbours' are next or not.
            values[THREAD.0 as usize][thread] = thread as u64 ^ if limit.is_multiple_of(2) { 0 } else { 5 };
            values[BOUND.0 as usize][thread] = 4 * (1 + random.below(11));
            let other = (choice + 1) % 5;
            // Any, of longs in the array.
            let halved = if other == 3 { 2 } else { 1 };
            values[POINTER.0 as usize][thread] = 8 * (shape(other, random) / halved);
        }
        State { values, array, own: vec![0; 8 * THREADS * 4] }
    }

    /// Whether the threads of each strip have the same value.
    fn is_same(&self, register: &Register) -> bool {
        let first = match register.class {
            Class::Word => 0,
            Class::Long => WORDS,
            Class::Predicate => WORDS + LONGS,
        };
        let values = &self.values[(first + register.place) as usize];
        values.chunks(8).all(|strip| strip.iter().all(|value| *value == strip[0]))
    }

    fn get(&self, reg: Reg, thread: usize) -> u64 {
        self.values[reg.0 as usize][thread]
    }

    fn acts(&self, guard: Option<Guard>, thread: usize) -> bool {
        guard.is_none_or(|guard| (self.get(guard.predicate, thread) != 0) != guard.negated)
    }

    /// Executes an instruction for a thread.
    fn execute(&mut self, instruction: &Instruction, thread: usize) {
        match &instruction.operation {
            Operation::Compute { meaning, d, sources } => {
                let sources: Vec<u64> = sources.iter().map(|&reg| self.get(reg, thread)).collect();
                self.values[d.0 as usize][thread] = evaluate(meaning, &sources);
            }
            Operation::Access(access) => {
                let base = match access.address {
                    Address::Indexed { index, shift, .. } => (self.get(index, thread) as usize) << shift,
                    other => self.get(other.register(), thread) as usize,
                };
                let at = base + access.offset as usize;
                let bytes = access.element.bytes() as usize;
                for (element, &reg) in access.data.iter().enumerate() {
                    let place = at + element * bytes;
                    match access.store {
                        true => {
                            let value = self.get(reg, thread).to_le_bytes();
                            bytes_of(&mut self.own)[place..place + bytes].copy_from_slice(&value[..bytes]);
                        }
                        false => {
                            let found = &bytes_of(&mut self.array)[place..place + bytes];
                            self.values[reg.0 as usize][thread] = extended(access.element, found);
                        }
                    }
                }
            }
        }
    }

    /// Executes a region thread by thread, from meeting to meeting. Loops of the mask need none.
    fn run(&mut self, region: &Region) {
        let mut target = Target::Block(0);
        while let Target::Block(block) = target {
            let ends: Vec<Target> =
                (0..THREADS).map(|thread| self.run_thread(region, thread, block as usize)).collect();
            assert!(ends.iter().all(|end| *end == ends[0]));
            let Target::Block(met) = ends[0] else { break };
            let End::Meet { meeting, taken, next } = region.blocks[met as usize].end else { break };
            target = match (&region.meetings[meeting as usize], taken) {
                (Meeting::Branch(guard), Some(taken)) if self.acts(Some(*guard), 0) => taken,
                (held, _) => {
                    (0..WARPS).for_each(|warp| self.hold(held, 32 * warp));
                    next
                }
            };
        }
    }

    /// Executes a region for a thread up to a meeting or an exit.
    fn run_thread(&mut self, region: &Region, thread: usize, mut block: usize) -> Target {
        loop {
            let Block { lane_loop, instructions, end, .. } = &region.blocks[block];
            for instruction in instructions {
                if lane_loop.is_some() || self.acts(instruction.guard, thread) {
                    self.execute(instruction, thread);
                }
            }
            let target = match *end {
                End::Jump(target) => target,
                End::Branch { guard, taken, .. } if self.acts(Some(guard), thread) => taken,
                End::Branch { next, .. } => next,
                End::Meet { .. } => return Target::Block(block as u32),
            };
            match target {
                Target::Block(next) => block = next as usize,
                Target::Exit(_) => return target,
            }
        }
    }

    /// What a meeting does for the warp whose first thread is this one.
    fn hold(&mut self, meeting: &Meeting, first: usize) {
        let values = |state: &State, reg: Reg| -> [u64; 32] {
            state.values[reg.0 as usize][first..first + 32].try_into().unwrap()
        };
        match meeting {
            Meeting::Barrier | Meeting::Branch(_) => {}
            Meeting::Step { uses, definitions } => {
                let result = turned(values(self, uses[0]));
                self.values[definitions[0].0 as usize][first..first + 32].copy_from_slice(&result);
            }
            Meeting::Shuffle { d, valid, a, from, inside } => {
                let words = values(self, *a);
                for lane in 0..32 {
                    self.values[d.0 as usize][first + lane] = words[usize::from(from[lane])];
                    if let Some(valid) = valid {
                        self.values[valid.0 as usize][first + lane] = u64::from(inside >> lane & 1);
                    }
                }
            }
        }
    }
}

/// The bytes of words.
fn bytes_of(words: &mut [u32]) -> &mut [u8] {
    // SAFETY: they are as many bytes, and any are words.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 4 * words.len()) }
}

/// What a register holds of an element that has been loaded.
fn extended(element: Element, bytes: &[u8]) -> u64 {
    let number = bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    match element {
        Element::Narrow { bytes, signed: true } => {
            let unused = 32 - 8 * u32::from(bytes);
            ((number as u32) << unused).cast_signed().wrapping_shr(unused).cast_unsigned().into()
        }
        _ => number,
    }
}

/// What the helper works on.
struct Host {
    accesses: Vec<Access>,
    array: *mut u32,
    own: *mut u32,
    own_words: usize,
    groups: Vec<(usize, ptx_compile::Group)>,
    windows: *mut Window,
    frames: Vec<Frame>,
    meetings: Vec<Meeting>,
    calls: usize,
}

unsafe extern "sysv64" fn help(context: *mut Context, site: u32, mask: u32) -> u32 {
    if site & LOOP != 0 {
        return 0;
    }
    // SAFETY: the test passes them, and nobody else uses them.
    let (context, host) = unsafe { (&mut *context, &mut *(*context).user.cast::<Host>()) };
    if site & MEETING != 0 {
        let Meeting::Step { uses, definitions } = &host.meetings[(site & !MEETING) as usize] else {
            return 1;
        };
        let words: *mut [u32; 32] = host.frames[context.warp as usize].words.cast();
        // SAFETY: the frame has the registers, whose places are their numbers.
        unsafe {
            let result = turned((*words.add(uses[0].0 as usize)).map(u64::from));
            words.add(definitions[0].0 as usize).write(result.map(|word| word as u32));
        }
        return 0;
    }
    host.calls += 1;
    let access = host.accesses.iter().find(|access| access.site == site).unwrap();
    let (start, words) = if access.store { (host.own, host.own_words) } else { (host.array, ELEMENTS) };
    let word = |lane: usize| (context.address[lane / 2] >> (32 * (lane % 2))) as u32;
    for lane in (0..8).filter(|lane| mask >> lane & 1 != 0) {
        let bytes = match access.address {
            Address::Indexed { shift, .. } => (word(lane) as usize) << shift,
            Address::Word(_) => word(lane) as usize,
            Address::Long(_) => context.address[lane] as usize - start as usize,
        };
        let size = access.element.bytes() as usize;
        for element in 0..access.data.len() {
            let at = bytes + access.offset as usize + element * size;
            assert!(at + size <= 4 * words);
            // SAFETY: inside the array.
            let memory = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>().add(at), size) };
            // A long's two words follow each other, in two rows.
            let rows = bytes_of(context.data.as_flattened_mut());
            let place = match access.element {
                Element::Long => 8 * lane,
                _ => 32 * element + 4 * lane,
            };
            match access.store {
                true => memory.copy_from_slice(&rows[place..place + size]),
                false => {
                    let number = extended(access.element, memory).to_le_bytes();
                    let size = size.max(4);
                    rows[place..place + size].copy_from_slice(&number[..size]);
                }
            }
        }
    }
    let (index, group) = host.groups[site as usize];
    let bias = if let Address::Long(_) = access.address { 0 } else { start as u64 };
    let window = Window::new(start as u64, start as u64 + 4 * words as u64, bias, &group);
    // SAFETY: there are as many windows as groups.
    unsafe { host.windows.add(index).write(window) };
    0
}

/// The addresses of groups that are known on entering, where a strip accesses consecutive words;
/// every third is left out.
fn bases(code: &Code, accesses: &[Access], state: &State) -> Vec<Bases> {
    let of_group = |(place, early): (usize, &Early)| {
        let (access, group) = (&accesses[early.access], code.groups()[early.group]);
        let (start, words) = match access.store {
            true => (state.own.as_ptr(), state.own.len()),
            false => (state.array.as_ptr(), ELEMENTS),
        };
        let mut bases = [0; ptx_compile::WARPS * ptx_compile::STRIPS];
        for (strip, base) in bases.iter_mut().enumerate().take(THREADS / 8) {
            let value = |lane: usize| state.values[access.address.register().0 as usize][8 * strip + lane];
            let address = |lane: usize| match access.address {
                Address::Indexed { shift, .. } => start as u64 + (value(lane) << shift),
                Address::Word(_) => start as u64 + value(lane),
                Address::Long(_) => value(lane),
            };
            let end = address(7).wrapping_add(group.most as u64 + group.bytes);
            let is_known = (1..8)
                .all(|lane| address(lane) == address(0).wrapping_add(group.bytes * lane as u64))
                && end <= start as u64 + 4 * words as u64;
            if is_known && (place + strip) % 3 != 2 {
                *base = address(0).wrapping_add(group.least as u64);
            }
        }
        bases
    };
    code.early().iter().enumerate().map(of_group).collect()
}

/// Executes a region as machine code; how often the helper was called.
fn run(code: &Code, region: &Region, state: &mut State) -> usize {
    let address = state.array.as_mut_ptr() as u64;
    state.values[POINTER.0 as usize].iter_mut().for_each(|value| *value += address);
    let mut words = [[[0u32; 32]; WORDS as usize]; WARPS];
    let mut longs = [[[0u64; 32]; LONGS as usize]; WARPS];
    let mut predicates = [[0u32; PREDICATES as usize]; WARPS];
    for (index, register) in region.registers.iter().enumerate().take(state.values.len()) {
        for thread in 0..THREADS {
            let (value, place) = (state.values[index][thread], register.place as usize);
            let (warp, lane) = (thread / 32, thread % 32);
            match register.class {
                Class::Word => words[warp][place][lane] = value as u32,
                Class::Long => longs[warp][place][lane] = value,
                Class::Predicate => predicates[warp][place] |= (value as u32) << lane,
            }
        }
    }
    let mut frames: Vec<Frame> = Vec::new();
    for warp in 0..WARPS {
        frames.push(Frame {
            words: words[warp].as_mut_ptr().cast(),
            longs: longs[warp].as_mut_ptr().cast(),
            predicates: predicates[warp].as_mut_ptr(),
            lanes: std::ptr::null(),
        });
    }
    let accesses =
        region.blocks.iter().flat_map(|block| &block.instructions).filter_map(|one| match &one.operation {
            Operation::Access(access) => Some(access.clone()),
            Operation::Compute { .. } => None,
        });
    let mut windows = vec![Window::default(); code.groups().len()];
    let accesses: Vec<Access> = accesses.collect();
    let bases = bases(code, &accesses, state);
    let mut host = Host {
        accesses,
        array: state.array.as_mut_ptr(),
        own: state.own.as_mut_ptr(),
        own_words: state.own.len(),
        groups: code.group_of().iter().map(|&group| (group, code.groups()[group])).collect(),
        windows: windows.as_mut_ptr(),
        frames: frames.clone(),
        meetings: region.meetings.clone(),
        calls: 0,
    };
    let mut counters = vec![0; code.counters()];
    let mut laps = vec![[0; 8]; WARPS * code.laps()];
    let user = (&raw mut host).cast::<c_void>();
    // SAFETY: the CPU has the instructions, the frames the registers; the windows lie in the
    // arrays.
    let outcome = unsafe { code.run(&frames, &mut windows, &bases, &mut counters, &mut laps, (help, user)) };
    assert_eq!(outcome, Outcome::Left(0));
    let calls = host.calls;
    for (index, register) in region.registers.iter().enumerate().take(state.values.len()) {
        for thread in 0..THREADS {
            let (warp, lane, place) = (thread / 32, thread % 32, register.place as usize);
            state.values[index][thread] = match register.class {
                Class::Word => words[warp][place][lane].into(),
                Class::Long => longs[warp][place][lane],
                Class::Predicate => u64::from(predicates[warp][place] >> lane & 1),
            };
        }
    }
    state.values[POINTER.0 as usize].iter_mut().for_each(|value| *value -= address);
    // The block that is executed once, and the loop.
    assert_eq!(counters[0], 4 * WARPS as u64);
    assert_eq!(counters[1], 4 * WARPS as u64 * state.values[LIMIT.0 as usize][0].max(1));
    calls
}

#[test]
fn random_regions_compute_what_their_threads_do() {
    if !ptx_compile::is_available() {
        return;
    }
    let mut calls = 0;
    for seed in 0..1500 {
        let mut random = Random::new(seed);
        let region = region(&mut random);
        let start = State::new(&mut random);
        // Right guesses, and any.
        let guesses = seed % 3 > 0;
        let is_same = |register: &Register| match guesses {
            true => start.is_same(register),
            false => (seed >> (register.place % 8)) & 1 == 0,
        };
        let code = Code::generate(&region, &is_same).expect("the region is small");
        let (mut expected, mut found) = (start.clone(), start);
        expected.run(&region);
        calls += run(&code, &region, &mut found);
        let needed = region.exits[0].iter();
        for &reg in needed {
            for thread in 0..THREADS {
                let (expected, found) = (expected.get(reg, thread), found.get(reg, thread));
                assert_eq!(found, expected, "seed {seed}: {reg:?} of thread {thread}\n{region:#?}");
            }
        }
        assert!(expected.own == found.own && expected.array == found.array, "seed {seed}: memory");
    }
    assert!(calls > 100, "the helper was called {calls} times");
}
