//! Values of registers, and the computations of instructions on them.
//!
//! A value is one number for all lanes or a number for each, and knows whether it was guessed:
//! whether it depends on something that an estimate has no way to know, such as the contents of
//! memory. Numbers are kept zero-extended from the width of the instruction that made them;
//! predicates are 0 and 1.

use super::code::{Computation, Kind};
use ptx::analysis::Request;
use ptx::instruction::{Comparison, Part, Rounding};
use ptx_lower::scalar::{extract_field, funnel, insert_field, lookup, permute_bytes, selectors};
use ptx_lower::{Op, holds};

pub(super) use ptx::analysis::LANES;

/// A register.
#[derive(Clone, Debug)]
pub(super) struct Value {
    /// The number of each lane. In a uniform result that is on its way to a register, the first
    /// counts for all.
    pub(super) lanes: [u64; LANES],
    pub(super) uniform: bool,
    pub(super) guessed: bool,
}

impl Value {
    pub(super) fn uniform(value: u64) -> Value {
        Value { lanes: [value; LANES], uniform: true, guessed: false }
    }

    pub(super) fn of_lanes(lane: impl FnMut(usize) -> u64) -> Value {
        Value { lanes: std::array::from_fn(lane), uniform: false, guessed: false }
    }

    /// The request of the lanes of a mask at these addresses.
    pub(super) fn request(&self, active: u32, bytes: u64) -> Request<'_> {
        Request { addresses: &self.lanes, uniform: self.uniform, active, bytes }
    }

    /// The number of a lane.
    pub(super) fn lane(&self, lane: usize) -> u64 {
        self.lanes[if self.uniform { 0 } else { lane }]
    }

    /// Lanes whose predicate is true.
    pub(super) fn truth(&self) -> u32 {
        if self.uniform {
            return if self.lanes[0] != 0 { u32::MAX } else { 0 };
        }
        self.lanes.iter().enumerate().fold(0, |mask, (lane, &value)| mask | u32::from(value != 0) << lane)
    }

    /// Takes over `new` in the lanes of `mask`; if these are `all` that matter, altogether.
    pub(super) fn merge(&mut self, new: &Value, mask: u32, all: bool) {
        if all {
            self.uniform = new.uniform;
            self.guessed = new.guessed;
            match new.uniform {
                true => self.lanes = [new.lanes[0]; LANES],
                false => self.lanes = new.lanes,
            }
            return;
        }
        self.guessed |= new.guessed;
        if self.uniform && new.uniform && self.lanes[0] == new.lanes[0] {
            return;
        }
        self.uniform = false;
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
            self.lanes[lane] = new.lane(lane);
        }
    }
}

/// The lower bits set.
pub(super) fn ones(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

#[inline(always)]
fn extend(value: u64, bits: u32, signed: bool) -> i64 {
    let unused = 64 - bits.clamp(1, 64);
    if signed { (value << unused) as i64 >> unused } else { (value << unused >> unused) as i64 }
}

/// A number as an integer of its kind.
pub(super) fn integer(value: u64, bits: u32, signed: bool) -> i128 {
    let extended = extend(value, bits, signed);
    if signed { extended.into() } else { (extended as u64).into() }
}

/// A number that looks random and depends on `seed` alone: all bits of an integer, from -1 to below
/// 1 of a floating-point one.
pub(super) fn guess(seed: u64, kind: Kind) -> u64 {
    // The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    let fraction = (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    match kind {
        Kind::Integer { bits: width, .. } => bits & ones(width),
        Kind::Single => (fraction as f32).to_bits().into(),
        Kind::Double => fraction.to_bits(),
    }
}

/// Computes in each lane, of registers.
pub(super) fn compute(form: Computation, from: [Option<&Value>; 4], out: &mut Value) {
    const NOTHING: [u64; LANES] = [0; LANES];
    let given = || from.iter().flatten();
    out.guessed = given().any(|value| value.guessed);
    out.uniform = given().all(|value| value.uniform);
    let operands = from.map(|value| value.map_or(&NOTHING, |value| &value.lanes));
    if out.uniform {
        let first = operands.map(|lanes| [lanes[0]]);
        evaluate(form, first.each_ref(), first_lane(&mut out.lanes));
    } else {
        evaluate(form, operands, &mut out.lanes);
    }
}

fn first_lane(lanes: &mut [u64; LANES]) -> &mut [u64; 1] {
    let (first, _) = lanes.split_first_mut().expect("a warp has lanes");
    std::array::from_mut(first)
}

fn evaluate<const N: usize>(form: Computation, from: [&[u64; N]; 4], out: &mut [u64; N]) {
    match form.from {
        Kind::Integer { bits, signed } => integers(form, bits, signed, from, out),
        Kind::Single => floats(form, from, out, single, |value| (value as f32).to_bits().into()),
        Kind::Double => floats(form, from, out, f64::from_bits, f64::to_bits),
    }
}

fn integers<const N: usize>(
    form: Computation,
    bits: u32,
    signed: bool,
    from: [&[u64; N]; 4],
    out: &mut [u64; N],
) {
    let [a, b, c, d] = from;
    let kept = ones(form.to.bits());
    let x = |value: u64| extend(value, bits, signed);
    let z = |value: u64| value & ones(bits);
    let high = |a: u64, b: u64| {
        let product = integer(a, bits, signed).wrapping_mul(integer(b, bits, signed));
        (product as u128 >> bits) as u64
    };
    macro_rules! each {
        ($i:ident => $value:expr) => {
            for ($i, out) in out.iter_mut().enumerate() {
                *out = ($value) as u64 & kept;
            }
        };
    }
    match form.op {
        Op::Move => each!(i => a[i]),
        Op::Add => each!(i => a[i].wrapping_add(b[i])),
        Op::Subtract => each!(i => a[i].wrapping_sub(b[i])),
        Op::Multiply(Part::High) => each!(i => high(a[i], b[i])),
        Op::Multiply(_) => each!(i => x(a[i]).wrapping_mul(x(b[i]))),
        Op::MultiplyAdd(Part::High) => each!(i => high(a[i], b[i]).wrapping_add(c[i])),
        Op::MultiplyAdd(_) => each!(i => x(a[i]).wrapping_mul(x(b[i])).wrapping_add(c[i] as i64)),
        Op::Divide if signed => each!(i => x(a[i]).checked_div(x(b[i])).unwrap_or(-1)),
        Op::Divide => each!(i => z(a[i]).checked_div(z(b[i])).unwrap_or(u64::MAX)),
        Op::Remainder if signed => each!(i => x(a[i]).checked_rem(x(b[i])).unwrap_or(0)),
        Op::Remainder => each!(i => z(a[i]).checked_rem(z(b[i])).unwrap_or(a[i])),
        Op::Minimum if signed => each!(i => x(a[i]).min(x(b[i]))),
        Op::Minimum => each!(i => z(a[i]).min(z(b[i]))),
        Op::Maximum if signed => each!(i => x(a[i]).max(x(b[i]))),
        Op::Maximum => each!(i => z(a[i]).max(z(b[i]))),
        Op::Absolute => each!(i => x(a[i]).wrapping_abs()),
        Op::Negate => each!(i => a[i].wrapping_neg()),
        Op::And => each!(i => a[i] & b[i]),
        Op::Or => each!(i => a[i] | b[i]),
        Op::Xor => each!(i => a[i] ^ b[i]),
        Op::Not => each!(i => !a[i]),
        Op::ShiftLeft => each!(i => if z32(b[i]) >= bits { 0 } else { a[i] << z32(b[i]) }),
        Op::ShiftRight => {
            each!(i => if signed { x(a[i]) >> z32(b[i]).min(63) } else if z32(b[i]) >= bits { 0 } else { (z(a[i]) >> z32(b[i])) as i64 })
        }
        Op::Table(table) => each!(i => lookup(z32(a[i]), z32(b[i]), z32(c[i]), table.into())),
        Op::Funnel { left, wrap } => each!(i => funnel(z32(a[i]), z32(b[i]), z32(c[i]), left, wrap)),
        Op::ExtractBits => each!(i => extract_field(z(a[i]), z32(b[i]), z32(c[i]), bits, signed)),
        Op::InsertBits => each!(i => insert_field(a[i], b[i], z32(c[i]), z32(d[i]), bits)),
        Op::Permute(mode) => {
            each!(i => permute_bytes(z32(a[i]), z32(b[i]), selectors(z32(c[i]), mode)))
        }
        Op::CountOnes => each!(i => z(a[i]).count_ones()),
        Op::CountLeadingZeros => each!(i => z(a[i]).leading_zeros().saturating_sub(64 - bits)),
        Op::ReverseBits => each!(i => a[i].reverse_bits() >> (64 - bits.clamp(1, 64))),
        Op::Select => each!(i => if c[i] != 0 { a[i] } else { b[i] }),
        Op::Pack(shift) => each!(i => z(a[i]) | b[i].checked_shl(shift).unwrap_or(0)),
        Op::Unpack(shift) => each!(i => a[i].checked_shr(shift).unwrap_or(0)),
        Op::Convert { .. } => match form.to {
            Kind::Integer { .. } => each!(i => x(a[i])),
            Kind::Single => each!(i => (integer(a[i], bits, signed) as f32).to_bits()),
            Kind::Double => each!(i => (integer(a[i], bits, signed) as f64).to_bits()),
        },
        _ => *out = *a,
    }
}

/// A register as an `.f32`.
#[inline(always)]
fn single(bits: u64) -> f64 {
    f32::from_bits(bits as u32).into()
}

/// The lower word.
#[inline(always)]
fn z32(value: u64) -> u32 {
    value as u32
}

/// Computed in double precision, from `x` of registers and `narrow` to one: an estimate needs to be
/// near, not exact.
fn floats<const N: usize>(
    form: Computation,
    [a, b, c, _]: [&[u64; N]; 4],
    out: &mut [u64; N],
    x: impl Fn(u64) -> f64,
    narrow: impl Fn(f64) -> u64,
) {
    macro_rules! each {
        ($i:ident => $value:expr) => {
            for ($i, out) in out.iter_mut().enumerate() {
                *out = narrow($value);
            }
        };
    }
    match form.op {
        Op::Add => each!(i => x(a[i]) + x(b[i])),
        Op::Subtract => each!(i => x(a[i]) - x(b[i])),
        Op::Multiply(_) => each!(i => x(a[i]) * x(b[i])),
        Op::MultiplyAdd(_) => each!(i => x(a[i]) * x(b[i]) + x(c[i])),
        Op::Divide => each!(i => x(a[i]) / x(b[i])),
        Op::Minimum => each!(i => x(a[i]).min(x(b[i]))),
        Op::Maximum => each!(i => x(a[i]).max(x(b[i]))),
        Op::Absolute => each!(i => x(a[i]).abs()),
        Op::Negate => each!(i => -x(a[i])),
        Op::SquareRoot => each!(i => x(a[i]).sqrt()),
        Op::Reciprocal => each!(i => 1.0 / x(a[i])),
        Op::Select => *out = std::array::from_fn(|i| if c[i] != 0 { a[i] } else { b[i] }),
        Op::Convert { .. } => *out = std::array::from_fn(|i| convert(x(a[i]), form.to, form.rounding)),
        _ => *out = *a,
    }
}

fn convert(value: f64, to: Kind, rounding: Option<Rounding>) -> u64 {
    let rounded = match rounding {
        Some(Rounding::WholeNearest) => value.round_ties_even(),
        Some(Rounding::WholeZero) => value.trunc(),
        Some(Rounding::WholeDown) => value.floor(),
        Some(Rounding::WholeUp) => value.ceil(),
        _ => value,
    };
    match to {
        Kind::Single => (rounded as f32).to_bits().into(),
        Kind::Double => rounded.to_bits(),
        Kind::Integer { bits, signed: true } => {
            let most = (ones(bits) >> 1) as i64;
            (rounded as i64).clamp(-most - 1, most) as u64 & ones(bits)
        }
        Kind::Integer { bits, signed: false } => (rounded as u64).min(ones(bits)),
    }
}

/// Compares in each lane, registers; true is 1.
pub(super) fn compare(relation: Comparison, kind: Kind, a: &Value, b: &Value, out: &mut Value) {
    out.guessed = a.guessed || b.guessed;
    out.uniform = a.uniform && b.uniform;
    if out.uniform {
        related(relation, kind, &[a.lanes[0]], &[b.lanes[0]], first_lane(&mut out.lanes));
    } else {
        related(relation, kind, &a.lanes, &b.lanes, &mut out.lanes);
    }
}

fn related<const N: usize>(relation: Comparison, kind: Kind, a: &[u64; N], b: &[u64; N], out: &mut [u64; N]) {
    match kind {
        Kind::Integer { bits, signed: true } => {
            ordered(relation, a, b, out, |value| extend(value, bits, true))
        }
        Kind::Integer { bits, signed: false } => ordered(relation, a, b, out, |value| value & ones(bits)),
        Kind::Single => ordered(relation, a, b, out, |value| f32::from_bits(value as u32)),
        Kind::Double => ordered(relation, a, b, out, f64::from_bits),
    }
}

#[inline(always)]
fn ordered<T: PartialOrd + Copy, const N: usize>(
    relation: Comparison,
    a: &[u64; N],
    b: &[u64; N],
    out: &mut [u64; N],
    number: impl Fn(u64) -> T,
) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = u64::from(holds(relation, number(a[i]), number(b[i])));
    }
}
