//! Shuffles, votes, matches and reductions within a warp.
//!
//! The lanes that act are those of the step's mask. An instruction with a member mask takes, for each lane, the lanes
//! of its own mask that act too; one without takes all that act.

use super::code::{Args, FloatChoice, Reduction, Reg, Shuffle, WarpOp};
use super::lanes::{Lanes, WARP, each_lane};
use super::numbers::{maximum, minimum, with_nan};

/// The lanes that have to be there before a warp instruction is executed, as those that act say.
///
/// # Safety
/// The frame has the register `members`, a word.
pub(super) unsafe fn needed(lanes: &Lanes, op: WarpOp, members: Reg) -> u32 {
    if !members.is_some() || op == WarpOp::ActiveMask {
        return 0;
    }
    let mut needed = 0;
    // SAFETY: the caller's promise.
    let masks = unsafe { lanes.source::<u32>(members) };
    each_lane(lanes.mask, |lane| needed |= masks[lane]);
    needed
}

/// Executes a warp instruction.
///
/// # Safety
/// The frame has the registers that `members` and `args` name: words, longs for 64-bit `match`, predicates for votes.
pub(super) unsafe fn run(lanes: &Lanes, op: WarpOp, members: Reg, args: &Args) {
    let mask = lanes.mask;
    let groups: [u32; WARP] = if members.is_some() {
        // SAFETY: the caller's promise.
        let masks = unsafe { lanes.source::<u32>(members) };
        std::array::from_fn(|lane| masks[lane] & mask)
    } else {
        [mask; WARP]
    };
    // SAFETY: the caller's promise, for every register below.
    unsafe {
        match op {
            WarpOp::Sync => {}
            WarpOp::Shuffle(mode) => shuffle(lanes, mode, args),
            WarpOp::ActiveMask => lanes.write(args.d, &[mask; WARP]),
            WarpOp::All | WarpOp::Any | WarpOp::Uniform | WarpOp::Ballot => {
                let votes = lanes.predicate(args.a) ^ if args.immediate != 0 { u32::MAX } else { 0 };
                vote(lanes, op, votes, &groups, args);
            }
            WarpOp::MatchAny { long } | WarpOp::MatchAll { long } => {
                let values: [u64; WARP] = match long {
                    true => *lanes.source::<u64>(args.a),
                    false => lanes.source::<u32>(args.a).map(u64::from),
                };
                find_matches(lanes, op, &values, &groups, args);
            }
            WarpOp::Redux(reduction) => {
                let values = *lanes.source::<u32>(args.a);
                let result = groups.map(|group| reduce(reduction, &values, group));
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
unsafe fn shuffle(lanes: &Lanes, mode: Shuffle, args: &Args) {
    // SAFETY: the caller's promise.
    let (values, distances, controls) =
        unsafe { (lanes.source::<u32>(args.a), lanes.source::<u32>(args.b), lanes.source::<u32>(args.c)) };
    let mut results = *values;
    let mut valid = 0u32;
    for lane in 0..WARP {
        let (distance, control) = (distances[lane] & 31, controls[lane]);
        let (clamp, segment) = (control & 31, control >> 8 & 31);
        let (own, highest) = (lane as u32, (lane as u32 & segment) | (clamp & !segment));
        let lowest = own & segment;
        let (source, inside) = match mode {
            // Up compares with the clamp as a lower bound.
            Shuffle::Up => {
                let source = own.wrapping_sub(distance);
                (source, source as i32 >= highest as i32)
            }
            Shuffle::Down => (own + distance, own + distance <= highest),
            Shuffle::Butterfly => (own ^ distance, own ^ distance <= highest),
            Shuffle::Index => {
                let source = lowest | (distance & !segment);
                (source, source <= highest)
            }
        };
        let source = if inside { source & 31 } else { own };
        results[lane] = values[source as usize];
        valid |= u32::from(inside) << lane;
    }
    // SAFETY: the caller's promise.
    unsafe {
        lanes.write(args.d, &results);
        if args.e.is_some() {
            lanes.write_predicate(args.e, valid);
        }
    }
}

/// # Safety
/// As for [`run`].
unsafe fn vote(lanes: &Lanes, op: WarpOp, votes: u32, groups: &[u32; WARP], args: &Args) {
    let outcome = |group: u32| match op {
        WarpOp::All => votes & group == group,
        WarpOp::Any => votes & group != 0,
        _ => votes & group == group || votes & group == 0,
    };
    // SAFETY: the caller's promise.
    unsafe {
        if op == WarpOp::Ballot {
            lanes.write(args.d, &groups.map(|group| votes & group));
        } else {
            let bits = (0..WARP).fold(0, |bits, lane| bits | u32::from(outcome(groups[lane])) << lane);
            lanes.write_predicate(args.d, bits);
        }
    }
}

/// # Safety
/// As for [`run`].
unsafe fn find_matches(lanes: &Lanes, op: WarpOp, values: &[u64; WARP], groups: &[u32; WARP], args: &Args) {
    let mut results = [0; WARP];
    let mut all = 0u32;
    each_lane(lanes.mask, |lane| {
        let mut same = 0;
        each_lane(groups[lane], |other| same |= u32::from(values[other] == values[lane]) << other);
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

fn reduce(reduction: Reduction, values: &[u32; WARP], group: u32) -> u32 {
    let combine = |a: u32, b: u32| match reduction {
        Reduction::Add => a.wrapping_add(b),
        Reduction::MinSigned => (a as i32).min(b as i32) as u32,
        Reduction::MaxSigned => (a as i32).max(b as i32) as u32,
        Reduction::Min => a.min(b),
        Reduction::Max => a.max(b),
        Reduction::And => a & b,
        Reduction::Or => a | b,
        Reduction::Xor => a ^ b,
        Reduction::MinFloat(choice) => choose(choice, a, b, minimum),
        Reduction::MaxFloat(choice) => choose(choice, a, b, maximum),
    };
    let mut result = None;
    each_lane(group, |lane| result = Some(result.map_or(values[lane], |sofar| combine(sofar, values[lane]))));
    match (reduction, result) {
        // Alone, a number comes out as a choice between it and itself.
        (Reduction::MinFloat(_) | Reduction::MaxFloat(_), Some(bits)) => combine(bits, bits),
        _ => result.unwrap_or(0),
    }
}

fn choose(choice: FloatChoice, a: u32, b: u32, f: impl Fn(f32, f32) -> f32) -> u32 {
    let [a, b] = [a, b].map(|bits| f32::from_bits(if choice.magnitude { bits & 0x7fff_ffff } else { bits }));
    (if choice.nan { with_nan(a, b, f(a, b)) } else { f(a, b) }).to_bits()
}
