//! Products of floats of eight bits and less, with or without scales of blocks.
//!
//! NVIDIA does not document how tensor cores add them. The models are those that MMA-Sim (Xie
//! and others, "MMA-Sim", arXiv 2511.10909) gives for `mma` of RTX Blackwell and for `wgmma` of
//! Hopper; its authors report bitwise equality with both. They refine the rules of
//! [`product`](super::product):
//!
//! 1. All products of an instruction and the accumulator make one sum; scales multiply the
//!    products.
//! 2. Every addend is cut off, towards zero, some bits below the largest exponent among them: 25,
//!    13 in `wgmma`. Zeros take part with [`ZERO_EXPONENT`].
//! 3. Four-bit floats with scales: sixteen neighbours are first added exactly. Their exponent is
//!    that of the scales alone, and the sum is cut 35 bits below the largest.
//! 4. An `.f32` result is rounded towards zero, in `wgmma` to 13 bits of fraction; an `.f16` one to
//!    nearest even.
//!
//! So a result differs from the exact sum by less than one unit of the cut for each addend, and by
//! its own rounding.

use crate::arithmetic::soft;
use crate::matrix::layout::Shape;
use crate::matrix::product::{Format, Number, ZERO_EXPONENT};
use crate::operands::Reg;
use crate::registers::lanes::{Lanes, WARP};

/// Neighbours that are added exactly where [`Narrow::grouped`] says so.
const GROUP: usize = 16;

/// Bits below the largest exponent to which sums of groups are cut.
const KEPT_OF_GROUPS: u32 = 35;

/// Bits of an `.f32` result's fraction that `wgmma` leaves zero.
const COARSE: u32 = (1 << 10) - 1;

/// The type of the elements of a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Element {
    pub(crate) format: soft::Format,
    /// Bits below an element in its container.
    pub(crate) shift: u32,
}

/// A product of narrow floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Narrow {
    pub(crate) a: Element,
    pub(crate) b: Element,
    /// The format of C and D: `.f16` or `.f32`.
    pub(crate) sum: Format,
    /// Bits below the largest exponent to which addends are cut.
    pub(crate) kept: u32,
    /// Whether sixteen neighbours are added exactly.
    pub(crate) grouped: bool,
    /// Whether an `.f32` result has 13 bits of fraction.
    pub(crate) coarse: bool,
}

/// The scales of a product's blocks, in registers of some lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scales {
    /// Blocks of a line.
    pub(crate) blocks: usize,
    /// `.ue4m3`, or `.ue8m0`: an exponent.
    pub(crate) has_fraction: bool,
}

/// Registers of the scales of one factor: the scales, the number of the first byte, and the number
/// that selects lanes.
pub(crate) const SCALE_REGISTERS: usize = 3;

/// `significand * 2^(exponent - fraction)`; `special` if it is not finite.
#[derive(Clone, Copy, Debug)]
struct Value {
    significand: i64,
    fraction: u32,
    exponent: i32,
    special: Option<f64>,
}

const ONE: Value = Value { significand: 1, fraction: 0, exponent: 0, special: None };

impl Value {
    /// The value, as far as only its kind matters.
    fn kind(&self) -> f64 {
        self.special.unwrap_or(self.significand.signum() as f64)
    }

    fn times(&self, other: &Value) -> Value {
        Value {
            significand: self.significand * other.significand,
            fraction: self.fraction + other.fraction,
            exponent: self.exponent + other.exponent,
            special: None,
        }
    }

    fn of_accumulator(number: Number, fraction: u32) -> Value {
        let magnitude = i64::from(number.significand);
        let significand = if number.negative { -magnitude } else { magnitude };
        Value { significand, fraction, exponent: number.exponent, special: number.special }
    }

    /// The exponent with which it takes part in a sum.
    fn place(&self) -> i32 {
        if self.significand == 0 { ZERO_EXPONENT } else { self.exponent }
    }

    /// In units of `kept` bits below `largest`, cut off.
    fn cut(&self, largest: i32, kept: u32) -> i64 {
        let shift = largest - self.place() + self.fraction as i32 - kept as i32;
        let magnitude = match shift {
            ..=0 => self.significand.abs() << -shift,
            _ => self.significand.abs() >> shift.min(63),
        };
        if self.significand < 0 { -magnitude } else { magnitude }
    }
}

impl Element {
    fn value(self, container: u32) -> Value {
        value_of(self.format, u64::from(container >> self.shift))
    }
}

/// The value of the low bits of `bits`.
fn value_of(format: soft::Format, bits: u64) -> Value {
    let (sign, fraction) = (format.sign(), format.fraction());
    let magnitude = bits & (sign - 1);
    let (field, rest) = ((magnitude >> fraction) as i32, magnitude & ((1 << fraction) - 1));
    let significand = (if field == 0 { rest } else { rest | 1 << fraction }) as i64;
    let negative = bits & sign != 0;
    let special = match () {
        () if format.is_nan(magnitude) => Some(f64::NAN),
        () if format.infinities() && magnitude == format.infinity() => {
            Some(if negative { f64::NEG_INFINITY } else { f64::INFINITY })
        }
        () => None,
    };
    Value {
        significand: if negative { -significand } else { significand },
        fraction,
        exponent: field.max(1) - format.bias(),
        special,
    }
}

impl Scales {
    fn value(self, byte: u8) -> Value {
        match (self.has_fraction, byte) {
            (true, _) => value_of(soft::E4M3, u64::from(byte & 0x7f)),
            (false, 0xff) => Value { special: Some(f64::NAN), ..ONE },
            (false, exponent) => Value { exponent: i32::from(exponent) - 127, ..ONE },
        }
    }

    /// The scales of each line's blocks, line by line. A line's scales are in one lane, from a byte
    /// on: row `m` of A has lane `4 (m mod 8) + 2 t + m / 8`, column `n` of B has lane `4 n + t`.
    ///
    /// # Safety
    /// The frame has the words.
    unsafe fn gather(self, lanes: &Lanes, registers: &[Reg], lines: usize) -> Vec<Value> {
        // SAFETY: the caller's promise.
        let [words, bytes, threads] = [0, 1, 2].map(|at| unsafe { lanes.source::<u32>(registers[at]) });
        let (first, thread) = (bytes[0], threads[0] as usize);
        let lane = |line: usize| match lines {
            8 => 4 * line + thread % 4,
            _ => 4 * (line % 8) + 2 * (thread % 2) + line / 8,
        };
        let of_line = |line: usize| {
            let word = words[lane(line) % WARP];
            (0..self.blocks).map(move |block| self.value((word >> (8 * ((first + block as u32) % 4))) as u8))
        };
        (0..lines).flat_map(of_line).collect()
    }

    /// The scales of A's rows and of B's columns, from the registers that follow those of C.
    ///
    /// # Safety
    /// The frame has the words.
    unsafe fn of_factors(self, lanes: &Lanes, registers: &[Reg], shape: Shape) -> [Vec<Value>; 2] {
        let (a, b) = registers.split_at(SCALE_REGISTERS);
        // SAFETY: the caller's promise.
        unsafe { [self.gather(lanes, a, shape.m), self.gather(lanes, b, shape.n)] }
    }
}

/// The inputs of a cell of D: a row and a column, and their scales.
struct Cell<'v> {
    row: &'v [Value],
    column: &'v [Value],
    scales: [&'v [Value]; 2],
}

impl Cell<'_> {
    /// The product of the scales of the element at `index` of a line.
    fn scale(&self, index: usize) -> Value {
        let block = index * self.scales[0].len() / self.row.len();
        self.scales[0][block].times(&self.scales[1][block])
    }

    fn products(&self, addends: &mut Vec<Value>) {
        let pairs = self.row.iter().zip(self.column).enumerate();
        addends.extend(pairs.map(|(at, (a, b))| a.times(b).times(&self.scale(at))));
    }

    /// The exact sums of [`GROUP`] products each, times their scales. The exponents of four-bit
    /// floats are not negative.
    fn sums(&self, addends: &mut Vec<Value>) {
        for (group, (row, column)) in self.row.chunks(GROUP).zip(self.column.chunks(GROUP)).enumerate() {
            let whole = |(a, b): (&Value, &Value)| {
                let product = a.times(b);
                product.significand << product.exponent.clamp(0, 31)
            };
            let significand = row.iter().zip(column).map(whole).sum();
            let fraction = row[0].fraction + column[0].fraction;
            let sum = Value { significand, fraction, ..ONE };
            addends.push(sum.times(&self.scale(group * GROUP)));
        }
    }

    /// The sum of all addends as a float; NaN and infinities if one is among them.
    fn special(&self, c: &Value) -> Option<f64> {
        let all = [self.row, self.column, self.scales[0], self.scales[1], std::slice::from_ref(c)];
        if all.iter().all(|values| values.iter().all(|value| value.special.is_none())) {
            return None;
        }
        let scale = |at: usize| self.scales[0][at].kind() * self.scales[1][at].kind();
        let block = |at: usize| at * self.scales[0].len() / self.row.len();
        let product = |(at, (a, b)): (usize, (&Value, &Value))| a.kind() * b.kind() * scale(block(at));
        Some(self.row.iter().zip(self.column).enumerate().map(product).sum::<f64>() + c.kind())
    }
}

impl Narrow {
    fn cell(&self, cell: &Cell, c: u32, addends: &mut Vec<Value>) -> u32 {
        let c = Value::of_accumulator(self.sum.unpack(c), self.sum.fraction());
        if let Some(special) = cell.special(&c) {
            return self.sum.not_finite(special);
        }
        addends.clear();
        addends.push(c);
        let kept = match self.grouped {
            true => {
                cell.sums(addends);
                KEPT_OF_GROUPS
            }
            false => {
                cell.products(addends);
                self.kept
            }
        };
        let largest = addends.iter().map(Value::place).max().unwrap_or(ZERO_EXPONENT);
        let sum = addends.iter().map(|addend| addend.cut(largest, kept)).sum();
        let bits = self.sum.pack(sum, largest - kept as i32);
        if self.coarse && self.sum == Format::F32 { bits & !COARSE } else { bits }
    }

    fn compute(
        &self,
        shape: Shape,
        (a, b): (&[u32], &[u32]),
        scales: [&[Value]; 2],
        (c, d): (&[u32], &mut [u32]),
    ) {
        let a: Vec<Value> = a.iter().map(|&bits| self.a.value(bits)).collect();
        let b: Vec<Value> = b.iter().map(|&bits| self.b.value(bits)).collect();
        let blocks = scales[0].len() / shape.m;
        let mut addends = Vec::with_capacity(shape.k + 1);
        for (m, row) in a.chunks_exact(shape.k).enumerate() {
            for (n, column) in b.chunks_exact(shape.k).enumerate() {
                let of = |side: usize, line: usize| &scales[side][line * blocks..(line + 1) * blocks];
                let cell = Cell { row, column, scales: [of(0, m), of(1, n)] };
                d[m * shape.n + n] = self.cell(&cell, c[m * shape.n + n], &mut addends);
            }
        }
    }

    /// `d = a * b + c`: A by rows, B by columns, C and D by rows.
    pub(super) fn multiply(&self, shape: Shape, factors: (&[u32], &[u32]), c: &[u32], d: &mut [u32]) {
        let ones = [ONE].repeat(shape.m.max(shape.n));
        self.compute(shape, factors, [&ones[..shape.m], &ones[..shape.n]], (c, d));
    }

    /// The same with the scales in `registers`, which follow those of C.
    ///
    /// # Safety
    /// The frame has the words.
    pub(super) unsafe fn multiply_scaled(
        &self,
        scales: Scales,
        (lanes, registers): (&Lanes, &[Reg]),
        shape: Shape,
        factors: (&[u32], &[u32]),
        cells: (&[u32], &mut [u32]),
    ) {
        // SAFETY: the caller's promise.
        let [of_a, of_b] = unsafe { scales.of_factors(lanes, registers, shape) };
        self.compute(shape, factors, [&of_a, &of_b], cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const E2M1: Element = Element { format: soft::E2M1, shift: 0 };
    const E4M3: Element = Element { format: soft::E4M3, shift: 0 };
    const WHOLE: Narrow =
        Narrow { a: E4M3, b: E4M3, sum: Format::F32, kept: 25, grouped: false, coarse: false };
    const ONE_CELL: Shape = Shape { m: 1, n: 1, k: 2 };

    fn one(narrow: Narrow, a: [u32; 2], b: [u32; 2], c: f32) -> f32 {
        let mut d = [0];
        narrow.multiply(ONE_CELL, (&a, &b), &[c.to_bits()], &mut d);
        f32::from_bits(d[0])
    }

    #[test]
    fn elements_have_the_values_of_their_formats() {
        let value = |format, bits| {
            let value = value_of(format, bits);
            value.significand as f64 * 2f64.powi(value.exponent - value.fraction as i32)
        };
        let all: Vec<f64> = (0..8).map(|bits| value(soft::E2M1, bits)).collect();
        assert_eq!(all, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(value(soft::E2M1, 15), -6.0);
        assert_eq!((value(soft::E2M3, 31), value(soft::E2M3, 1)), (7.5, 0.125));
        assert_eq!((value(soft::E3M2, 31), value(soft::E3M2, 1)), (28.0, 0.0625));
        assert_eq!((value(soft::E4M3, 0x7e), value(soft::E5M2, 0x7b)), (448.0, 57344.0));
        assert!(value_of(soft::E4M3, 0x7f).special.is_some_and(f64::is_nan));
        assert_eq!(value_of(soft::E5M2, 0xfc).special, Some(f64::NEG_INFINITY));
    }

    #[test]
    fn addends_are_cut_below_the_largest() {
        // 448 * 448 has exponent 16, so the unit is 2^-9, or 2^3 in `wgmma`.
        let (most, one_) = (0x7e, 0x38);
        let exact = 448.0 * 448.0;
        assert_eq!(one(WHOLE, [most, one_], [most, one_], 0.0), exact + 1.0);
        assert_eq!(one(WHOLE, [most, 0], [most, 0], 1.5 * 2f32.powi(-7)), exact + 2f32.powi(-7));
        let coarse = Narrow { kept: 13, coarse: true, ..WHOLE };
        assert_eq!(one(coarse, [most, one_], [most, one_], 0.0), exact);
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        assert!(one(WHOLE, [0x7f, 0], [0, 0], 0.0).is_nan());
        let half = Element { format: soft::E5M2, shift: 0 };
        let wide = Narrow { a: half, b: half, ..WHOLE };
        assert_eq!(one(wide, [0xfc, 0], [0x3c, 0], 1.0), f32::NEG_INFINITY);
        assert!(one(wide, [0x7c, 0], [0, 0], 1.0).is_nan());
        assert_eq!(one(wide, [0, 0], [0, 0], f32::INFINITY), f32::INFINITY);
    }

    #[test]
    fn groups_are_exact_and_scaled() {
        let grouped = Narrow { a: E2M1, b: E2M1, grouped: true, ..WHOLE };
        let shape = Shape { m: 1, n: 1, k: 64 };
        let (a, scales) = ([7u32; 64], Scales { blocks: 4, has_fraction: true });
        // 1, 1.5, 2 and the largest, 448.
        let of_a = [0x38, 0x3c, 0x40, 0x7e].map(|byte| scales.value(byte));
        let of_b = [scales.value(0x38); 4];
        let mut d = [0];
        grouped.compute(shape, (&a, &a), [&of_a, &of_b], (&[0], &mut d));
        assert_eq!(f32::from_bits(d[0]), 16.0 * 36.0 * (1.0 + 1.5 + 2.0 + 448.0));
        let powers = Scales { blocks: 2, has_fraction: false };
        let scale = [powers.value(127), powers.value(0xff)];
        grouped.compute(shape, (&a, &a), [&scale, &scale], (&[0], &mut d));
        assert!(f32::from_bits(d[0]).is_nan());
    }
}
