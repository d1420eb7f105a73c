//! Functions on the bits of one lane.

use ptx::body::SpecialRegister;
use ptx::instruction::{Permutation, Shuffle};

/// The lowest bits set; all of `width` where there are no more.
#[inline(always)]
pub fn field_mask(length: u32, width: u32) -> u64 {
    if length >= width { u64::MAX >> (64 - width) } else { (1 << length) - 1 }
}

/// `bfe` of a number of `width` bits without a sign above them.
#[inline(always)]
pub fn extract_field(a: u64, position: u32, length: u32, width: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let field = if position >= width { 0 } else { a >> position };
    let kept = length.min(width.saturating_sub(position));
    let value = field & field_mask(kept, width);
    if !signed || length == 0 {
        return value;
    }
    let sign_at = (position + length - 1).min(width - 1);
    if a >> sign_at & 1 != 0 { value | !field_mask(kept, width) } else { value }
}

/// `bfi` into `b`, a number of `width` bits.
#[inline(always)]
pub fn insert_field(a: u64, b: u64, position: u32, length: u32, width: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if position >= width {
        return b;
    }
    let mask = field_mask(length, width) << position;
    a << position & mask | b & !mask
}

/// `shf`: the upper word of `b:a` shifted to the left, or the lower one of it shifted to the right.
#[inline(always)]
pub fn funnel(a: u32, b: u32, amount: u32, left: bool, wrap: bool) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    let amount = if wrap { amount & 31 } else { amount.min(32) };
    (if left { both << amount >> 32 } else { both >> amount }) as u32
}

/// `lop3`: any function of three bits, by its table: a tree of choices, by `a`, then `b`, then `c`.
#[inline(always)]
pub fn lookup(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let entry = |index: u32| 0u32.wrapping_sub(table >> index & 1);
    let choose = |bit: u32, one: u32, zero: u32| zero ^ (bit & (zero ^ one));
    let set = choose(b, choose(c, entry(7), entry(6)), choose(c, entry(5), entry(4)));
    let clear = choose(b, choose(c, entry(3), entry(2)), choose(c, entry(1), entry(0)));
    choose(a, set, clear)
}

/// Picks bytes of `b:a`, as selectors of four bits tell; the top bit of a selector asks for copies
/// of the sign.
#[inline(always)]
pub fn permute_bytes(a: u32, b: u32, selectors: [u32; 4]) -> u32 {
    let bytes = u64::from(a) | u64::from(b) << 32;
    let mut result = 0;
    for (index, selector) in selectors.into_iter().enumerate() {
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        let byte = if selector & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        result |= u32::from(byte) << (8 * index);
    }
    result
}

/// `%lanemask_*` of a lane: the lanes that have the relation to it; none for other registers.
pub fn lane_mask(register: SpecialRegister, lane: u32) -> u32 {
    let (own, below) = (1u32 << lane, (1u32 << lane) - 1);
    match register {
        SpecialRegister::LanemaskEq => own,
        SpecialRegister::LanemaskLt => below,
        SpecialRegister::LanemaskLe => own | below,
        SpecialRegister::LanemaskGt => !(own | below),
        SpecialRegister::LanemaskGe => !below,
        _ => 0,
    }
}

/// The lane that `own` reads in a shuffle, and whether it is the one that it asks for: where that
/// may not be read, a lane reads itself. `distance` and `control` are the second and third source.
#[inline(always)]
pub fn shuffled(mode: Shuffle, own: u32, distance: u32, control: u32) -> (u32, bool) {
    let (distance, clamp, segment) = (distance & 31, control & 31, control >> 8 & 31);
    // The last lane that may be read; the first of a shuffle up.
    let highest = own & segment | clamp & !segment;
    let wanted = match mode {
        Shuffle::Up => own.wrapping_sub(distance),
        Shuffle::Down => own + distance,
        Shuffle::Butterfly => own ^ distance,
        Shuffle::Index => own & segment | distance & !segment,
    };
    let may = if mode == Shuffle::Up { wanted as i32 >= highest as i32 } else { wanted <= highest };
    (if may { wanted } else { own }, may)
}

/// The selectors of [`permute_bytes`] that `c` stands for.
#[inline(always)]
pub fn selectors(c: u32, mode: Option<Permutation>) -> [u32; 4] {
    let Some(mode) = mode else { return [c & 15, c >> 4 & 15, c >> 8 & 15, c >> 12 & 15] };
    let low = c & 3;
    match mode {
        Permutation::ForwardFour => [low, low + 1, low + 2, low + 3],
        Permutation::BackwardFour => [low, (low + 7) & 7, (low + 6) & 7, (low + 5) & 7],
        Permutation::ReplicateByte => [low; 4],
        Permutation::ClampLeft => [low, low.max(1), low.max(2), 3],
        Permutation::ClampRight => [0, low.min(1), low.min(2), low],
        Permutation::ReplicateHalf => {
            let half = (c & 1) * 2;
            [half, half + 1, half, half + 1]
        }
    }
}
