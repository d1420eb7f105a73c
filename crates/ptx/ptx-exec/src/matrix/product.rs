//! The arithmetic of matrix products.
//!
//! Integers are exact; `.f64` is a chain of fused multiply-adds in the order of k. What tensor
//! cores do with `.f16`, `.bf16` and `.tf32` is not documented by NVIDIA. The model is that of
//! Hopper as MMA-Sim gives it (Xie and others, "MMA-Sim", arXiv 2511.10909; its authors report
//! bitwise equality with an H100), which refines Fasi and others, "Numerical behavior of NVIDIA
//! tensor cores" (PeerJ Computer Science 7:e330, 2021):
//!
//! 1. All products of an instruction and the accumulator make one sum ([`Float::terms`] says where
//!    ptxas splits one into several). Products are exact.
//! 2. Every addend is cut off, towards zero, [`KEPT`] bits below the largest exponent among them;
//!    an exponent is the sum of those of the factors, whatever the product of their significands.
//!    Zeros take part, with [`ZERO_EXPONENT`] as theirs.
//! 3. The cut addends are added exactly. An `.f32` result is rounded towards zero, an `.f16` one to
//!    nearest even. Subnormals are kept on either side. A sum of zero is +0.
//! 4. Eight-bit floats have no unit of their own in Hopper's `mma`: ptxas 13.0 makes them halves,
//!    adds the products of every first and second of four, then those of every third and fourth,
//!    and C at last, rounded to nearest even.
//! 5. A NaN, an infinity times zero or infinities of both signs give the NaN with all bits set but
//!    the sign.

use std::ops::Range;

use crate::arithmetic::half::f32_to_f16;
use crate::arithmetic::soft::{self, F64, Rounding};
use crate::matrix::layout::Shape;
use crate::matrix::narrow::Narrow;

/// Bits below the largest exponent to which the addends are aligned: on Hopper (24 on Ampere).
const KEPT: u32 = 25;

/// Exponent that a factor or accumulator of zero counts with.
pub(super) const ZERO_EXPONENT: i32 = -126;

/// Most elements of a line that floating-point products take at once.
const MOST_TERMS: usize = 16;

/// The multiplication and addition of elements of up to 32 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arithmetic {
    /// Tensor cores' floating point.
    Float(Float),
    /// Eight-bit floats, added up in `.f16` or `.f32`.
    Eighths { a: soft::Format, b: soft::Format, sum: Format },
    /// Floats of eight bits and less where tensor cores have a unit for them.
    Narrow(Narrow),
    /// Integers of up to 8 bits; whether the result saturates rather than wraps.
    Integer { a: Integer, b: Integer, saturate: bool },
    /// Bits, 32 at a time: how many are set in both, or in one of both.
    Bits { and: bool },
}

/// Integers of a few bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Integer {
    pub(crate) bits: u32,
    pub(crate) signed: bool,
}

/// The formats of a floating-point product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Float {
    pub(crate) factor: Format,
    pub(crate) c: Format,
    pub(crate) d: Format,
    /// Products that are added at once; the rest of k follows in further steps.
    pub(crate) terms: usize,
}

/// A floating-point format, its bits at the bottom of a word. `.tf32` is `.f32` without its last
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    F16,
    Bf16,
    Tf32,
    F32,
}

impl Format {
    /// Bits of the fraction.
    pub(super) fn fraction(self) -> u32 {
        match self {
            Format::F16 | Format::Tf32 => 10,
            Format::Bf16 => 7,
            Format::F32 => 23,
        }
    }

    fn largest_exponent(self) -> i32 {
        if self == Format::F16 { 15 } else { 127 }
    }

    /// Bits that fill the register below the fraction.
    fn padding(self) -> u32 {
        if self == Format::Tf32 { 13 } else { 0 }
    }

    fn nan(self) -> u32 {
        if self == Format::F16 { 0x7fff } else { 0x7fff_ffff }
    }

    /// Bits of the exponent.
    fn width(self) -> u32 {
        if self == Format::F16 { 5 } else { 8 }
    }

    pub(super) fn unpack(self, bits: u32) -> Number {
        let Parts { significand, sign, exponent, special } = self.parts(bits);
        let special = (special != 0).then_some(match (significand == 1 << self.fraction(), sign == 0) {
            (true, true) => f64::INFINITY,
            (true, false) => f64::NEG_INFINITY,
            _ => f64::NAN,
        });
        Number { negative: sign != 0, exponent, significand, special }
    }

    /// The parts of a number, without branches, so that loops over numbers vectorise.
    #[inline(always)]
    fn parts(self, bits: u32) -> Parts {
        let bits = bits >> self.padding();
        let most = (1 << self.width()) - 1;
        let fraction = bits & ((1 << self.fraction()) - 1);
        let field = bits >> self.fraction() & most;
        let sign = -((bits >> (self.fraction() + self.width()) & 1) as i32);
        let smallest = 1 - self.largest_exponent();
        let subnormal = if fraction == 0 { ZERO_EXPONENT } else { smallest };
        let exponent = if field == 0 { subnormal } else { field as i32 + smallest - 1 };
        let significand = fraction | u32::from(field != 0) << self.fraction();
        Parts { significand, sign, exponent, special: u32::from(field == most) }
    }

    /// `sum * 2^exponent`, rounded to nearest even (`.f16`) or towards zero.
    pub(super) fn pack(self, sum: i64, exponent: i32) -> u32 {
        if sum == 0 {
            return 0;
        }
        let magnitude = sum.unsigned_abs();
        let (fraction, largest) = (self.fraction() as i32, self.largest_exponent());
        let smallest = 1 - largest - fraction;
        let top = 63 - magnitude.leading_zeros() as i32 + exponent;
        let quantum = (top - fraction).max(smallest);
        let shift = quantum - exponent;
        let kept = match shift {
            ..=0 => magnitude << -shift,
            1..=63 => {
                let (kept, lost) = (magnitude >> shift, magnitude & ((1 << shift) - 1));
                let half = 1u64 << (shift - 1);
                let up = self == Format::F16 && (lost > half || lost == half && kept & 1 != 0);
                kept + u64::from(up)
            }
            _ => 0,
        };
        // A carry out of the significand moves the exponent by itself.
        let infinity = (2 * largest as u64 + 1) << fraction;
        let bits = (((quantum - smallest) as u64) << fraction).saturating_add(kept).min(infinity) as u32;
        let sign = if self == Format::F16 { 0x8000 } else { 0x8000_0000 };
        if sum < 0 && kept != 0 { bits | sign } else { bits }
    }

    /// The NaN, or an infinity of the sign.
    pub(super) fn not_finite(self, sum: f64) -> u32 {
        if sum.is_nan() {
            return self.nan();
        }
        let beyond = if sum > 0.0 { 1 } else { -1 };
        self.pack(beyond, self.largest_exponent() + 1)
    }
}

/// A number in parts that vectors have: the significand, all bits set for a negative one, the
/// exponent, and whether it is not finite.
struct Parts {
    significand: u32,
    sign: i32,
    exponent: i32,
    special: u32,
}

/// A number taken apart: `±significand * 2^(exponent - fraction bits)`, or one that is not finite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    pub(super) negative: bool,
    pub(super) exponent: i32,
    pub(super) significand: u32,
    pub(super) special: Option<f64>,
}

impl Number {
    /// The value, as far as only its kind matters: finite numbers become 0 or ±1.
    fn kind(&self) -> f64 {
        let finite = if self.significand == 0 { 0.0 } else { 1.0 };
        self.special.unwrap_or(if self.negative { -finite } else { finite })
    }
}

/// A row of A: what the loop over k needs of it.
struct Row {
    significands: [u32; MOST_TERMS],
    /// All bits set for negative numbers.
    signs: [i32; MOST_TERMS],
    exponents: [i32; MOST_TERMS],
    finite: bool,
}

impl Row {
    #[inline(always)]
    fn new(format: Format, elements: &[u32]) -> Row {
        let mut bits = [0; MOST_TERMS];
        bits[..elements.len()].copy_from_slice(elements);
        let (mut significands, mut signs) = ([0; MOST_TERMS], [0; MOST_TERMS]);
        let (mut exponents, mut special) = ([0; MOST_TERMS], 0);
        for index in 0..MOST_TERMS {
            let parts = format.parts(bits[index]);
            significands[index] = parts.significand;
            signs[index] = parts.sign;
            exponents[index] = parts.exponent;
            special |= parts.special;
        }
        Row { significands, signs, exponents, finite: special == 0 }
    }
}

/// Columns that are computed at once.
const WIDE: usize = 8;

/// Up to eight columns of B, term by term so that the loop over columns vectorises. Columns that
/// are missing are zero.
struct Columns {
    significands: [[u32; WIDE]; MOST_TERMS],
    signs: [[i32; WIDE]; MOST_TERMS],
    exponents: [[i32; WIDE]; MOST_TERMS],
    finite: [bool; WIDE],
}

impl Columns {
    #[inline(always)]
    fn new<'e>(format: Format, columns: impl Iterator<Item = &'e [u32]>) -> Columns {
        let mut all = Columns {
            significands: [[0; WIDE]; MOST_TERMS],
            signs: [[0; WIDE]; MOST_TERMS],
            exponents: [[0; WIDE]; MOST_TERMS],
            finite: [true; WIDE],
        };
        for (column, elements) in columns.enumerate() {
            let line = Row::new(format, elements);
            for index in 0..elements.len() {
                all.significands[index][column] = line.significands[index];
                all.signs[index][column] = line.signs[index];
                all.exponents[index][column] = line.exponents[index];
            }
            all.finite[column] = line.finite;
        }
        all
    }
}

impl Float {
    /// For each column the sum of its products with `row`, and the exponent to which they are
    /// aligned, given that of the accumulator. The sum counts units of [`KEPT`] bits below it.
    #[inline(always)]
    fn sums(&self, row: &Row, columns: &Columns, terms: usize, largest: &mut [i32; WIDE]) -> [i32; WIDE] {
        for term in 0..terms {
            for column in 0..WIDE {
                let exponent = row.exponents[term] + columns.exponents[term][column];
                largest[column] = largest[column].max(exponent);
            }
        }
        // Significands have at most 11 bits, so a product at the scale of the sum has at most 27,
        // and 16 of them fit.
        let scale = KEPT - 2 * self.factor.fraction();
        let mut sums = [0i32; WIDE];
        for term in 0..terms {
            for column in 0..WIDE {
                let exponent = row.exponents[term] + columns.exponents[term][column];
                let product = (row.significands[term] * columns.significands[term][column]) << scale;
                let cut = (product >> (largest[column] - exponent).min(31)) as i32;
                let sign = row.signs[term] ^ columns.signs[term][column];
                sums[column] += (cut ^ sign) - sign;
            }
        }
        sums
    }

    /// The result where a number is not finite.
    #[cold]
    fn not_finite(&self, a: &[u32], b: &[u32], c: Number, d: Format) -> u32 {
        let kind = |bits: u32| self.factor.unpack(bits).kind();
        let sum = a.iter().zip(b).fold(c.kind(), |sum, (&a, &b)| sum + kind(a) * kind(b));
        d.not_finite(sum)
    }

    /// One step: `cells`, which are `from`, become `to`. Of the lines of the factors it takes these
    /// terms.
    #[inline(always)]
    fn step(
        &self,
        shape: Shape,
        (a, b): (&[u32], &[u32]),
        terms: Range<usize>,
        cells: &mut [u32],
        (from, to): (Format, Format),
    ) {
        for (block, b_lines) in b.chunks(WIDE * shape.k).enumerate() {
            let columns = Columns::new(self.factor, lines(b_lines, shape.k).map(|line| &line[terms.clone()]));
            for (index, a_line) in lines(a, shape.k).enumerate() {
                let a_line = &a_line[terms.clone()];
                let row = Row::new(self.factor, a_line);
                let first = index * shape.n + block * WIDE;
                let cells = &mut cells[first..first + b_lines.len() / shape.k];
                let mut bits = [0; WIDE];
                bits[..cells.len()].copy_from_slice(cells);
                let addends = bits.map(|bits| from.parts(bits));
                let mut largest: [i32; WIDE] = std::array::from_fn(|column| addends[column].exponent);
                let sums = self.sums(&row, &columns, terms.len(), &mut largest);
                let mut totals = [0f64; WIDE];
                for (column, c) in addends.iter().enumerate() {
                    let shift = (largest[column] - c.exponent).min(31);
                    let addend = (c.significand << (KEPT - from.fraction()) >> shift) as i32;
                    totals[column] = f64::from(sums[column]) + f64::from((addend ^ c.sign) - c.sign);
                }
                let packed = pack_all(to, &totals, &largest);
                for (column, cell) in cells.iter_mut().enumerate() {
                    let finite = row.finite && columns.finite[column] && addends[column].special == 0;
                    *cell = match finite {
                        true => packed[column],
                        false => {
                            let b_line = &b_lines[column * shape.k..][terms.clone()];
                            self.not_finite(a_line, b_line, from.unpack(*cell), to)
                        }
                    };
                }
            }
        }
    }

    #[inline(always)]
    fn multiply(&self, shape: Shape, (a, b): (&[u32], &[u32]), c: &[u32], d: &mut [u32]) {
        // Steps hand on what they accumulate in `.f16` only if both ends are.
        let both = self.c == Format::F16 && self.d == Format::F16;
        let between = if both { Format::F16 } else { Format::F32 };
        let mut format = self.c;
        d.copy_from_slice(c);
        for first in (0..shape.k).step_by(self.terms) {
            let terms = first..(first + self.terms).min(shape.k);
            self.step(shape, (a, b), terms, d, (format, between));
            format = between;
        }
        if self.d != between {
            d.iter_mut().for_each(|cell| *cell = f32_to_f16(f32::from_bits(*cell)).into());
        }
    }
}

/// The normal magnitudes of `.f32`.
const SINGLES: Range<f64> = f32::MIN_POSITIVE as f64..f64::from_bits((1023 + 128) << 52);

/// [`Format::pack`] of whole numbers, which count units of [`KEPT`] bits below the exponents. For
/// `.f32` they are cut to 24 bits, which is exact but for what is subnormal then or too large.
#[inline(always)]
fn pack_all(to: Format, sums: &[f64; WIDE], exponents: &[i32; WIDE]) -> [u32; WIDE] {
    let mut packed = [0; WIDE];
    let mut is_exact = to == Format::F32;
    for column in 0..WIDE {
        let exponent = exponents[column] - KEPT as i32;
        let cut = f64::from_bits(sums[column].to_bits() & !((1 << 29) - 1));
        let scale = f64::from_bits(((exponent + 1023) as u64) << 52);
        let magnitude = (cut * scale).abs();
        is_exact &= (magnitude == 0.0) | SINGLES.contains(&magnitude);
        packed[column] = ((cut * scale) as f32).to_bits();
    }
    if is_exact {
        return packed;
    }
    std::array::from_fn(|column| to.pack(sums[column] as i64, exponents[column] - KEPT as i32))
}

/// The lines of a matrix.
fn lines<T>(elements: &[T], length: usize) -> std::slice::ChunksExact<'_, T> {
    elements.chunks_exact(length)
}

/// Eight-bit floats as halves, in the order in which they are multiplied.
fn halves(from: soft::Format, elements: &[u32], length: usize) -> Vec<u32> {
    let half = |&bits: &u32| soft::convert(bits.into(), from, soft::F16, Rounding::NearestEven) as u32;
    let part = |line: &[u32], start: usize| -> Vec<u32> {
        line.chunks_exact(4).flat_map(|four| &four[start..start + 2]).map(half).collect()
    };
    lines(elements, length).flat_map(|line| [part(line, 0), part(line, 2)].concat()).collect()
}

impl Integer {
    #[inline(always)]
    fn extend(self, bits: u32) -> i32 {
        let unused = 32 - self.bits;
        if self.signed { (bits << unused) as i32 >> unused } else { bits as i32 }
    }
}

/// `d[i][j] = f(a[i], b[j]) + c[i][j]`, where `f` fits into 32 bits.
#[inline(always)]
fn each_pair(
    shape: Shape,
    (a, b): (&[i32], &[i32]),
    c: &[u32],
    d: &mut [u32],
    f: impl Fn(i32, i32) -> i32,
    add: impl Fn(i32, i32) -> i32,
) {
    let rows = lines(a, shape.k).zip(c.chunks_exact(shape.n)).zip(d.chunks_exact_mut(shape.n));
    for ((a, c), d) in rows {
        for ((b, &c), d) in lines(b, shape.k).zip(c).zip(d) {
            let sum = a.iter().zip(b).fold(0i32, |sum, (&a, &b)| sum.wrapping_add(f(a, b)));
            *d = add(sum, c as i32) as u32;
        }
    }
}

impl Arithmetic {
    /// `d = a * b + c`: A by rows, B by columns, C and D by rows.
    #[inline(always)]
    pub(super) fn multiply(&self, shape: Shape, (a, b): (&[u32], &[u32]), c: &[u32], d: &mut [u32]) {
        match *self {
            Arithmetic::Float(float) => float.multiply(shape, (a, b), c, d),
            Arithmetic::Narrow(narrow) => narrow.multiply(shape, (a, b), c, d),
            Arithmetic::Eighths { a: a_type, b: b_type, sum } => {
                let (a, b) = (halves(a_type, a, shape.k), halves(b_type, b, shape.k));
                let float = Float { factor: Format::F16, c: sum, d: sum, terms: shape.k / 2 };
                float.multiply(shape, (&a, &b), &vec![0; c.len()], d);
                let format = if sum == Format::F16 { soft::F16 } else { soft::F32 };
                d.iter_mut().zip(c).for_each(|(d, &c)| {
                    *d = soft::add((*d).into(), c.into(), format, Rounding::NearestEven) as u32;
                });
            }
            Arithmetic::Integer { a: a_type, b: b_type, saturate } => {
                let a: Vec<i32> = a.iter().map(|&bits| a_type.extend(bits)).collect();
                let b: Vec<i32> = b.iter().map(|&bits| b_type.extend(bits)).collect();
                let product = |a: i32, b: i32| a * b;
                match saturate {
                    true => each_pair(shape, (&a, &b), c, d, product, i32::saturating_add),
                    false => each_pair(shape, (&a, &b), c, d, product, i32::wrapping_add),
                }
            }
            Arithmetic::Bits { and } => {
                let words = |words: &[u32]| -> Vec<i32> { words.iter().map(|&word| word as i32).collect() };
                let (a, b) = (words(a), words(b));
                match and {
                    true => {
                        let both = |a: i32, b: i32| (a & b).count_ones() as i32;
                        each_pair(shape, (&a, &b), c, d, both, i32::wrapping_add);
                    }
                    false => {
                        let one = |a: i32, b: i32| (a ^ b).count_ones() as i32;
                        each_pair(shape, (&a, &b), c, d, one, i32::wrapping_add);
                    }
                }
            }
        }
    }
}

/// `d = a * b + c` in `.f64`, laid out as for [`Arithmetic::multiply`].
#[inline(always)]
pub(super) fn multiply_double(
    rounding: Rounding,
    shape: Shape,
    (a, b): (&[u64], &[u64]),
    c: &[u64],
    d: &mut [u64],
) {
    let fma = |sum: u64, (&a, &b): (&u64, &u64)| match rounding {
        Rounding::NearestEven => f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(sum)).to_bits(),
        _ => soft::fma(a, b, sum, F64, rounding),
    };
    for ((a, c), d) in lines(a, shape.k).zip(c.chunks_exact(shape.n)).zip(d.chunks_exact_mut(shape.n)) {
        for ((b, &c), d) in lines(b, shape.k).zip(c).zip(d) {
            *d = a.iter().zip(b).fold(c, fma);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_random::Random;

    /// The value of a finite number, and its exponent as the model counts it.
    fn decode(format: Format, bits: u32) -> (f64, i32) {
        let (value, smallest) = match format {
            Format::F16 => (f64::from(crate::arithmetic::half::f16_to_f32(bits as u16)), -14),
            Format::Bf16 => (f64::from(f32::from_bits(bits << 16)), -126),
            Format::Tf32 => (f64::from(f32::from_bits(bits & !0x1fff)), -126),
            Format::F32 => (f64::from(f32::from_bits(bits)), -126),
        };
        let exponent = (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
        (value, if value == 0.0 { ZERO_EXPONENT } else { exponent.max(smallest) })
    }

    /// One step by way of `f64`, which is exact here.
    fn reference(float: &Float, a: &[u32], b: &[u32], c: u32) -> f64 {
        let decoded = |bits: &u32| decode(float.factor, *bits);
        let mut terms = vec![decode(float.c, c)];
        terms.extend(a.iter().map(decoded).zip(b.iter().map(decoded)).map(|(a, b)| (a.0 * b.0, a.1 + b.1)));
        let largest = terms.iter().map(|term| term.1).max().unwrap_or(0);
        let unit = 2f64.powi(largest - 25);
        terms.iter().map(|term| (term.0 / unit).trunc()).sum::<f64>() * unit
    }

    /// A number whose exponent lies in the middle of its format's, sometimes zero or subnormal.
    fn element(format: Format, random: &mut Random, spread: u64) -> u32 {
        let any = random.bits();
        let (fraction, width) = (format.fraction(), if format == Format::F16 { 5 } else { 8 });
        let middle = (1u64 << (width - 1)) - 1 - spread / 2;
        let field = match any % 11 {
            0 => 0,
            _ => middle + (any >> 8) % (spread + 1),
        };
        let significand = if any % 17 == 0 { 0 } else { any >> 20 & ((1 << fraction) - 1) };
        let sign = (any >> 63) << (fraction + width);
        ((sign | field << fraction | significand) as u32) << format.padding()
    }

    #[test]
    fn steps_are_those_of_the_model() {
        let mut random = Random::new(3);
        for factor in [Format::F16, Format::Bf16, Format::Tf32] {
            for (terms, spread) in [(4, 1), (8, 6), (16, 14), (16, 2), (8, 28)] {
                for _ in 0..3000 {
                    let float = Float { factor, c: Format::F32, d: Format::F32, terms };
                    let mut line =
                        || -> Vec<u32> { (0..terms).map(|_| element(factor, &mut random, spread)).collect() };
                    let (a, b) = (line(), line());
                    let c = element(Format::F32, &mut random, 2 * spread);
                    let mut d = [0];
                    float.multiply(Shape { m: 1, n: 1, k: terms }, (&a, &b), &[c], &mut d);
                    let exact = reference(&float, &a, &b, c);
                    // Towards zero: to 24 bits of the sum.
                    let nearest = exact as f32;
                    let away = f64::from(nearest).abs() > exact.abs();
                    let expected = nearest.to_bits() - u32::from(away);
                    assert_eq!(d[0], if exact == 0.0 { 0 } else { expected }, "{a:x?} {b:x?} {c:x}");
                }
            }
        }
    }

    #[test]
    fn half_accumulators_round_to_nearest() {
        let mut random = Random::new(8);
        for _ in 0..20_000 {
            let float = Float { factor: Format::F16, c: Format::F16, d: Format::F16, terms: 16 };
            let mut line =
                || -> Vec<u32> { (0..16).map(|_| element(Format::F16, &mut random, 12)).collect() };
            let (a, b) = (line(), line());
            let c = element(Format::F16, &mut random, 12);
            let mut d = [0];
            float.multiply(Shape { m: 1, n: 1, k: 16 }, (&a, &b), &[c], &mut d);
            let exact = reference(&float, &a, &b, c);
            let expected = soft::convert(exact.to_bits(), F64, soft::F16, Rounding::NearestEven);
            assert_eq!(u64::from(d[0]), if exact == 0.0 { 0 } else { expected }, "{a:x?} {b:x?} {c:x}");
        }
    }

    #[test]
    fn special_values_and_limits() {
        let float = |c, d| Float { factor: Format::Bf16, c, d, terms: 8 };
        let single = float(Format::F32, Format::F32);
        let run = |a: [u32; 2], b: [u32; 2], c: u32| {
            let mut d = [0];
            single.multiply(Shape { m: 1, n: 1, k: 2 }, (&a, &b), &[c], &mut d);
            d[0]
        };
        let (one, infinity, nan, zero) = (0x3f80, 0x7f80, 0x7fc1, 0);
        assert_eq!(run([infinity, one], [one, one], 0), 0x7f80_0000);
        assert_eq!(run([infinity | 0x8000, one], [one, one], 0), 0xff80_0000);
        assert_eq!(run([infinity, one], [zero, one], 0), 0x7fff_ffff);
        assert_eq!(run([infinity, infinity], [one, one | 0x8000], 0), 0x7fff_ffff);
        assert_eq!(run([nan, one], [one, one], 0), 0x7fff_ffff);
        assert_eq!(run([one, one], [one, one], 0x7f80_0001), 0x7fff_ffff);
        assert_eq!(run([one, one], [one, one], 0xff80_0000), 0xff80_0000);
        // 2^127 * 2 overflows; -0 and sums that cancel give +0.
        assert_eq!(run([0x7f00, zero], [0x4000, zero], 0), 0x7f80_0000);
        assert_eq!(run([0x8000, zero], [one, zero], 0x8000_0000), 0);
        assert_eq!(run([one, one], [one, one | 0x8000], 0), 0);
        // Subnormal numbers count: 2^-133 * 2^0 is one, and so is the result.
        assert_eq!(run([1, zero], [one, zero], 0), 1 << 16);
    }

    #[test]
    fn integers_saturate_only_if_told() {
        let integer = Integer { bits: 8, signed: true };
        for (saturate, expected) in [(true, i32::MAX), (false, i32::MIN + 16_128)] {
            let arithmetic = Arithmetic::Integer { a: integer, b: integer, saturate };
            let mut d = [0];
            let (a, shape) = ([127], Shape { m: 1, n: 1, k: 1 });
            arithmetic.multiply(shape, (&a, &a), &[i32::MAX as u32], &mut d);
            assert_eq!(d[0] as i32, expected);
        }
    }
}
