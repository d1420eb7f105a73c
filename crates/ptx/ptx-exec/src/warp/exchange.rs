//! Shuffles, votes, matches and reductions within a warp.
//!
//! The lanes that act are those of the step's mask. An instruction with a member mask takes, for
//! each lane, the lanes of its own mask that act too; one without takes all that act.

use ptx::instruction::{Shuffle, Vote};
use ptx_lower::scalar::shuffled;

use crate::arithmetic::numbers::{canonical, maximum, minimum, with_nan};
use crate::code::{FloatChoice, Reduction, WarpOp};
use crate::operands::{Args, Reg};
use crate::registers::lanes::{Lanes, Stored, WARP, each_lane, map, wide_vectors};
use crate::registers::pattern::{PART, PARTS};
use crate::registers::vectors::{ACTIVE, exchange_words, signs};

/// The lanes that have to be there before a warp instruction is executed, as those that act say.
///
/// # Safety
/// The frame has the register `members`, a word.
pub(crate) unsafe fn needed(lanes: &Lanes, op: WarpOp, members: Reg) -> u32 {
    if !members.is_some() || op == WarpOp::ActiveMask {
        return 0;
    }
    let mut needed = 0;
    // SAFETY: the caller's promise.
    let masks = unsafe { lanes.source::<u32>(members) };
    if lanes.mask == u32::MAX {
        return masks.iter().fold(0, |needed, mask| needed | mask);
    }
    each_lane(lanes.mask, |lane| needed |= masks[lane]);
    needed
}

/// Executes a warp instruction.
///
/// # Safety
/// The frame has the registers that `members` and `args` name: words, longs for 64-bit `match`,
/// predicates for votes.
pub(crate) unsafe fn run(lanes: &Lanes, op: WarpOp, members: Reg, args: &Args) {
    /// # Safety
    /// As for [`run`]; the CPU has the features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
    unsafe fn wide(lanes: &Lanes, op: WarpOp, members: Reg, args: &Args) {
        // SAFETY: the caller's promise.
        unsafe { run_lanes(lanes, op, members, args) }
    }
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the caller's promise; the CPU has the features.
        return unsafe { wide(lanes, op, members, args) };
    }
    // SAFETY: the caller's promise.
    unsafe { run_lanes(lanes, op, members, args) }
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn run_lanes(lanes: &Lanes, op: WarpOp, members: Reg, args: &Args) {
    let mask = lanes.mask;
    let groups: [u32; WARP] = if members.is_some() {
        // SAFETY: the caller's promise.
        map(unsafe { lanes.source::<u32>(members) }, |members| members & mask)
    } else {
        [mask; WARP]
    };
    // SAFETY: the caller's promise, for every register below.
    unsafe {
        match op {
            WarpOp::Sync => {}
            WarpOp::Shuffle(mode) => shuffle(lanes, mode, args),
            WarpOp::ActiveMask => lanes.write(args.d, &[mask; WARP]),
            WarpOp::Vote(question) => {
                let votes = lanes.predicate(args.a) ^ if args.immediate != 0 { u32::MAX } else { 0 };
                vote(lanes, question, votes, &groups, args);
            }
            WarpOp::MatchAny { long } | WarpOp::MatchAll { long } => match long {
                true => find_matches(lanes, op, lanes.source::<u64>(args.a), &groups, args),
                false => find_matches(lanes, op, lanes.source::<u32>(args.a), &groups, args),
            },
            WarpOp::Redux(reduction) => {
                let values = *lanes.source::<u32>(args.a);
                // Mostly all lanes have the same members.
                let mut last = (0, reduce(reduction, &values, 0));
                let mut result = [0; WARP];
                for (result, group) in result.iter_mut().zip(groups) {
                    if group != last.0 {
                        last = (group, reduce(reduction, &values, group));
                    }
                    *result = last.1;
                }
                lanes.write(args.d, &result);
            }
            WarpOp::Elect => {
                let leaders = groups.map(|group| group.trailing_zeros() & 31);
                lanes.write(args.d, &leaders);
                if args.e.is_some() {
                    let bit = |lane: usize| u32::from(leaders[lane] as usize == lane) << lane;
                    lanes.write_predicate(args.e, (0..WARP).fold(0, |bits, lane| bits | bit(lane)));
                }
            }
        }
    }
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn shuffle(lanes: &Lanes, mode: Shuffle, args: &Args) {
    // SAFETY: the caller's promise.
    let (values, distances, controls) =
        unsafe { (lanes.source::<u32>(args.a), lanes.source::<u32>(args.b), lanes.source::<u32>(args.c)) };
    let (from, valid) = match mode {
        Shuffle::Up => sources(distances, controls, |own, b, c| shuffled(Shuffle::Up, own, b, c)),
        Shuffle::Down => sources(distances, controls, |own, b, c| shuffled(Shuffle::Down, own, b, c)),
        Shuffle::Butterfly => {
            sources(distances, controls, |own, b, c| shuffled(Shuffle::Butterfly, own, b, c))
        }
        Shuffle::Index => sources(distances, controls, |own, b, c| shuffled(Shuffle::Index, own, b, c)),
    };
    let results = exchange_words(values, &from);
    // SAFETY: the caller's promise.
    unsafe {
        lanes.write(args.d, &results);
        if args.e.is_some() {
            lanes.write_predicate(args.e, valid);
        }
    }
}

/// The lane that each lane reads, and for which lanes that is the one wanted, as `source` tells of
/// each.
#[inline(always)]
fn sources(
    distances: &[u32; WARP],
    controls: &[u32; WARP],
    source: impl Fn(u32, u32, u32) -> (u32, bool),
) -> ([u32; WARP], u32) {
    let (mut from, mut valid) = ([0; WARP], 0);
    for part in 0..PARTS {
        let (mut sources, mut inside) = ([0; PART], [0; PART]);
        for lane in 0..PART {
            let at = part * PART + lane;
            let (source, may) = source(at as u32, distances[at], controls[at]);
            sources[lane] = source;
            inside[lane] = if may { u32::MAX } else { 0 };
        }
        from[part * PART..][..PART].copy_from_slice(&sources);
        valid |= signs(&inside) << (part * PART);
    }
    (from, valid)
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn vote(lanes: &Lanes, question: Vote, votes: u32, groups: &[u32; WARP], args: &Args) {
    // SAFETY: the caller's promise.
    unsafe {
        match question {
            Vote::Ballot => lanes.write(args.d, &map(groups, |group| votes & group)),
            Vote::All => lanes.write_predicate(args.d, holding(groups, |group| votes & group == group)),
            Vote::Any => lanes.write_predicate(args.d, holding(groups, |group| votes & group != 0)),
            Vote::Uniform => {
                let uniform = |group: u32| votes & group == group || votes & group == 0;
                lanes.write_predicate(args.d, holding(groups, uniform));
            }
        }
    }
}

/// The lanes for whose value `test` holds, as bits.
#[inline(always)]
fn holding<T: Copy>(values: &[T; WARP], test: impl Fn(T) -> bool) -> u32 {
    let mut bits = 0;
    for part in 0..PARTS {
        let mut holds = [0; PART];
        for lane in 0..PART {
            holds[lane] = if test(values[part * PART + lane]) { u32::MAX } else { 0 };
        }
        bits |= signs(&holds) << (part * PART);
    }
    bits
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn find_matches<T: Copy + PartialEq>(
    lanes: &Lanes,
    op: WarpOp,
    values: &[T; WARP],
    groups: &[u32; WARP],
    args: &Args,
) {
    let mut results = [0; WARP];
    let mut all = 0u32;
    each_lane(lanes.mask, |lane| {
        let same = holding(values, |other| other == values[lane]) & groups[lane];
        let everyone = same == groups[lane];
        all |= u32::from(everyone) << lane;
        results[lane] = match op {
            WarpOp::MatchAll { .. } if !everyone => 0,
            _ => same,
        };
    });
    // SAFETY: the caller's promise.
    unsafe {
        lanes.write(args.d, &results);
        if args.e.is_some() {
            lanes.write_predicate(args.e, all);
        }
    }
}

/// The values of a group combined; 0 of an empty one.
#[inline(always)]
fn reduce(reduction: Reduction, values: &[u32; WARP], group: u32) -> u32 {
    if group == 0 {
        return 0;
    }
    match reduction {
        Reduction::Add => combined(values, group, 0, u32::wrapping_add),
        Reduction::MinSigned => {
            combined(values, group, i32::MAX as u32, |a, b| (a as i32).min(b as i32) as u32)
        }
        Reduction::MaxSigned => {
            combined(values, group, i32::MIN as u32, |a, b| (a as i32).max(b as i32) as u32)
        }
        Reduction::Min => combined(values, group, u32::MAX, u32::min),
        Reduction::Max => combined(values, group, 0, u32::max),
        Reduction::And => combined(values, group, u32::MAX, |a, b| a & b),
        Reduction::Or => combined(values, group, 0, |a, b| a | b),
        Reduction::Xor => combined(values, group, 0, |a, b| a ^ b),
        Reduction::MinFloat(choice) => chosen(choice, values, group, minimum),
        Reduction::MaxFloat(choice) => chosen(choice, values, group, maximum),
    }
}

/// The values of a group combined by an operation that may be done in any order and has a neutral
/// value.
#[inline(always)]
fn combined(values: &[u32; WARP], group: u32, neutral: u32, f: impl Fn(u32, u32) -> u32) -> u32 {
    let mut sums = [neutral; PART];
    for part in 0..PARTS {
        let active = &ACTIVE[(group >> (part * PART)) as usize % ACTIVE.len()];
        for lane in 0..PART {
            sums[lane] = f(sums[lane], u32::pick(active[lane], values[part * PART + lane], neutral));
        }
    }
    sums.into_iter().fold(neutral, f)
}

/// The number of a group that is chosen, lane after lane. Alone, a number comes out as a choice
/// between it and itself.
fn chosen(choice: FloatChoice, values: &[u32; WARP], group: u32, f: impl Fn(f32, f32) -> f32 + Copy) -> u32 {
    let mut result = None;
    each_lane(group, |lane| {
        result = Some(result.map_or(values[lane], |sofar| choose(choice, sofar, values[lane], f)));
    });
    result.map_or(0, |bits| choose(choice, bits, bits, f))
}

fn choose(choice: FloatChoice, a: u32, b: u32, f: impl Fn(f32, f32) -> f32) -> u32 {
    let [a, b] = [a, b].map(|bits| f32::from_bits(if choice.magnitude { bits & 0x7fff_ffff } else { bits }));
    canonical(if choice.nan { with_nan(a, b, f(a, b)) } else { f(a, b) }).to_bits()
}
