//! Operands near the limits of their types.
//!
//! A column of a case's input holds one operand for each thread. Its values are a mixture: the
//! values around the type's boundaries, numbers of moderate size (so that additions cancel and not
//! all products are infinite), and random bits. The values for a seed must never change (see
//! [`crate::random`]).

use crate::random::Random;
use serde::{Deserialize, Serialize};

/// The values of a column, as its cells lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are PTX's")]
pub enum Values {
    /// 8 bits; as all integers without regard to signs.
    B8,
    B16,
    B32,
    B64,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    /// TensorFloat-32: the upper 19 bits of an `.f32`.
    Tf32,
    F32,
    F64,
    /// Two `.e4m3` or `.e5m2`, or any two bytes.
    F8x2,
    /// 0 or 1 in 32 bits.
    Pred,
    /// Positions, lengths and distances of bits: 0 to 70, rarely more.
    Position,
    /// The same, but never more than 255.
    BytePosition,
    /// Angles between -2π and 2π, where the ISA bounds the error of sines, and values that are not
    /// numbers.
    Angle,
    /// 0 to 31.
    Lane,
    /// Integers of at most 4 in magnitude, so that sums of products are exact in any order.
    SmallF16x2,
    SmallBf16x2,
    SmallTf32,
    SmallF32,
    SmallF64,
    /// Numbers between -1 and 1.
    UnitF16x2,
    UnitBf16x2,
    UnitTf32,
    UnitF32,
    UnitF64,
    /// A byte offset of a 4-byte cell among 64.
    Cell,
    /// One number between -1 and 1.
    UnitF16,
    /// An integer around an image of up to 16 texels: -6 to 21.
    Texel,
    /// The same as an `.f32` in steps of 1/256.
    TexelPosition,
    /// A position relative to an image's size, between -2 and 3 in steps of 1/4096.
    Ratio,
    /// The same between steps, and values that are far away or not numbers.
    AnyRatio,
    /// 0 to 4, rarely more.
    Layer,
    /// Levels of mipmaps: -1 to 4 in steps of 1/256.
    Level,
    /// A component of a direction: -1 to 1 in steps of 1/16.
    Direction,
    /// Four integers of at most 4 in magnitude, or numbers between -1 and 1, in formats of 8 bits.
    SmallE4m3x4,
    SmallE5m2x4,
    UnitE4m3x4,
    UnitE5m2x4,
    /// The change of a [`Ratio`](Values::Ratio) from one pixel to the next: a power of two.
    Gradient,
    /// Which two of each four elements a sparse matrix has: eight pairs of places, the lower first.
    Sparse2of4,
    /// Which of each two elements it has, in the same form.
    Sparse1of2,
}

/// Bits of numbers of `.f32` around which things change.
#[rustfmt::skip]
const SINGLES: [u32; 64] = [
    0x0000_0000, 0x8000_0000, // zeros
    0x0000_0001, 0x8000_0001, 0x007f_ffff, 0x807f_ffff, // subnormal
    0x0040_0000, 0x0000_8000, // subnormal
    0x0080_0000, 0x8080_0000, 0x0080_0001, 0x0100_0000, // smallest normal ones
    0x7f7f_ffff, 0xff7f_ffff, 0x7f00_0000, 0xff00_0000, 0x7e80_0000, // largest
    0x7f80_0000, 0xff80_0000, // infinities
    0x7fc0_0000, 0xffc0_0000, 0x7fff_ffff, 0xffff_ffff, 0x7f80_0001, 0xffa0_1234, 0x7fc1_2345, // NaNs
    0x3f80_0000, 0xbf80_0000, 0x3f80_0001, 0x3f7f_ffff, 0xbf7f_ffff, 0xbf80_0001, // around 1
    0x3f00_0000, 0xbf00_0000, 0x3eff_ffff, 0x3f00_0001, 0x3fc0_0000, 0xbfc0_0000, 0x4020_0000, 0xc020_0000, // ties
    0x4000_0000, 0xc000_0000, 0x4040_0000, 0x4120_0000, 0x3dcc_cccd, 0x4049_0fdb, // 2, 3, 10, 0.1, pi
    0x4b00_0000, 0x4b00_0001, 0x4a80_0001, 0xcb00_0000, // 2^23 and what has a half
    0x42fe_0000, 0x4300_0000, 0xc300_0000, 0x437f_0000, 0x437f_8000, // 8-bit bounds
    0x46ff_fe00, 0x4700_0000, 0xc700_0000, 0x477f_ff00, // 16-bit bounds
    0x4eff_ffff, 0x4f00_0000, 0xcf00_0000, 0x4f80_0000, 0x5f00_0000, // 32- and 64-bit bounds
];

/// The same of `.f64`.
#[rustfmt::skip]
const DOUBLES: [u64; 40] = [
    0, 0x8000_0000_0000_0000, // zeros
    1, 0x8000_0000_0000_0001, 0x000f_ffff_ffff_ffff, 0x8008_0000_0000_0000, // subnormal
    0x0010_0000_0000_0000, 0x8010_0000_0000_0000, 0x0010_0000_0000_0001, // smallest normal ones
    0x7fef_ffff_ffff_ffff, 0xffef_ffff_ffff_ffff, 0x7fe0_0000_0000_0000, // largest
    0x7ff0_0000_0000_0000, 0xfff0_0000_0000_0000, // infinities
    0x7ff8_0000_0000_0000, 0xfff8_0000_0000_1234, 0x7ff0_0000_0000_0001, 0x7fff_ffff_ffff_ffff, // NaNs
    0x3ff0_0000_0000_0000, 0xbff0_0000_0000_0000, 0x3ff0_0000_0000_0001, 0x3fef_ffff_ffff_ffff, // around 1
    0x3fe0_0000_0000_0000, 0x3ff8_0000_0000_0000, 0x4004_0000_0000_0000, 0xbfe0_0000_0000_0000, // ties
    0x4330_0000_0000_0000, 0x4330_0000_0000_0001, 0x4320_0000_0000_0001, // 2^52 and what has a half
    0x41df_ffff_ffc0_0000, 0x41e0_0000_0000_0000, 0xc1e0_0000_0000_0000, 0x41ef_ffff_ffe0_0000, // 32-bit bounds
    0x43e0_0000_0000_0000, 0xc3e0_0000_0000_0000, 0x43f0_0000_0000_0000, // 64-bit bounds
    0x36a0_0000_0000_0000, 0x3690_0000_0000_0000, 0x47ef_ffff_f000_0000, 0x380f_ffff_ffff_ffff, // .f32 bounds
];

/// The same of `.f16`.
#[rustfmt::skip]
const HALVES: [u16; 32] = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x0200, 0x0400, 0x8400, 0x0401, 0x7bff, 0xfbff,
    0x7800, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0x7fff, 0xffff, 0x3c00, 0xbc00, 0x3c01, 0x3bff,
    0x3800, 0x3e00, 0x4100, 0xc100, 0x6400, 0x6401, 0x4248, 0x2e66,
];

impl Values {
    /// Bytes of a cell.
    pub fn bytes(self) -> usize {
        use Values::*;
        match self {
            B8 => 1,
            B16 | F16 | Bf16 | F8x2 | UnitF16 => 2,
            B64 | F64 | SmallF64 | UnitF64 => 8,
            _ => 4,
        }
    }

    /// The operand in a column for the thread `row` of a case.
    ///
    /// A quarter of the rows have operands that are equal or nearly so in all columns of the same
    /// kind.
    pub fn value(self, seed: u64, column: usize, row: usize) -> u64 {
        let mut shared = Random::of(&[seed, row as u64]);
        let alike = shared.once_in(4);
        let mut own = Random::of(&[seed, row as u64, 1 + column as u64]);
        if !alike {
            return self.random(&mut own);
        }
        let value = self.random(&mut shared);
        match self {
            Values::B8 | Values::B16 | Values::B32 | Values::B64 => {
                value.wrapping_add(own.next() % 3) & self.mask()
            }
            Values::F16 | Values::Bf16 | Values::F32 | Values::F64 => {
                let sign = own.next() % 2 * (self.mask() ^ self.mask() >> 1);
                value.wrapping_add(own.next() % 3) & self.mask() ^ sign
            }
            _ => value,
        }
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }

    /// A random value.
    pub fn random(self, random: &mut Random) -> u64 {
        use Values::*;
        let half = |random: &mut Random, value: Values| value.random(random);
        match self {
            B8 | B16 | B32 | B64 => integer(random, 8 * self.bytes() as u32),
            F16 => f16(random),
            Bf16 => single(random) >> 16,
            F32 => single(random),
            Tf32 => single(random) & 0xffff_e000,
            F64 => double(random),
            F16x2 => half(random, F16) | half(random, F16) << 16,
            Bf16x2 => half(random, Bf16) | half(random, Bf16) << 16,
            F8x2 => random.next() & 0xffff,
            Pred => random.next() & 1,
            Position => match random.below(16) {
                0 => integer(random, 32),
                1 => *random.pick(&[0, 1, 31, 32, 33, 63, 64, 65]),
                _ => random.next() % 70,
            },
            BytePosition => match random.below(16) {
                0 => random.next() % 256,
                1 => *random.pick(&[0, 1, 31, 32, 33, 63, 64, 65]),
                _ => random.next() % 70,
            },
            Angle => match random.below(4) {
                0 => *random.pick(&[
                    0,
                    0x8000_0000,
                    1,
                    0x8040_0000,
                    0x7f80_0000,
                    0xff80_0000,
                    0x7fc0_0000,
                    0x3f80_0000,
                ]),
                _ => u64::from(((random.next() >> 44) as f32 / 166_900.0 - std::f32::consts::PI).to_bits()),
            },
            SmallF16x2 => {
                let small = |random: &mut Random| {
                    [0, 0x3c00, 0x4000, 0x4200, 0x4400][random.below(5)] | random.next() << 15 & 0x8000
                };
                small(random) | small(random) << 16
            }
            SmallBf16x2 => {
                let small = |random: &mut Random| u64::from(small(random).to_bits() >> 16);
                small(random) | small(random) << 16
            }
            SmallF32 | SmallTf32 => small(random).to_bits().into(),
            SmallF64 => f64::from(small(random)).to_bits(),
            UnitF16x2 => {
                let unit =
                    |random: &mut Random| random.next() & 0x83ff | (0x2c00 + (random.next() & 3) * 0x400);
                unit(random) | unit(random) << 16
            }
            UnitBf16x2 => {
                let unit = |random: &mut Random| u64::from(unit(random).to_bits() >> 16);
                unit(random) | unit(random) << 16
            }
            UnitF32 => unit(random).to_bits().into(),
            UnitTf32 => u64::from(unit(random).to_bits() & 0xffff_e000),
            UnitF64 => ((random.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0).to_bits(),
            Lane => random.next() % 32,
            Cell => random.next() % 64 * 4,
            UnitF16 => random.next() & 0x83ff | (0x2c00 + (random.next() & 3) * 0x400),
            Texel => u64::from((random.below(28) as u32).wrapping_sub(6)),
            TexelPosition => steps(random, -6.0, 28, 256),
            Ratio => steps(random, -2.0, 5, 4096),
            AnyRatio => match random.below(8) {
                0 => single(random),
                _ => u64::from(((random.next() >> 40) as f32 / (1u32 << 24) as f32 * 5.0 - 2.0).to_bits()),
            },
            Layer if random.once_in(8) => integer(random, 32),
            Layer => random.next() % 5,
            Level => steps(random, -1.0, 5, 256),
            Direction => u64::from(((random.below(33) as f32 - 16.0) / 16.0).to_bits()),
            SmallE4m3x4 => four(random, |random| {
                [0, 0x38, 0x40, 0x44, 0x48][random.below(5)] | random.next() << 7 & 0x80
            }),
            SmallE5m2x4 => four(random, |random| {
                [0, 0x3c, 0x40, 0x42, 0x44][random.below(5)] | random.next() << 7 & 0x80
            }),
            // From 1/16 to just below 1.
            UnitE4m3x4 => four(random, |random| (0x18 + random.next() % 0x20) | random.next() << 7 & 0x80),
            UnitE5m2x4 => four(random, |random| (0x2c + random.next() % 0x10) | random.next() << 7 & 0x80),
            Sparse2of4 => places(random, &[0x4, 0x8, 0x9, 0xc, 0xd, 0xe]),
            Sparse1of2 => places(random, &[0x4, 0xe]),
            Gradient => u64::from((random.below(9) as f32 - 7.0).exp2().to_bits()),
        }
    }
}

fn small(random: &mut Random) -> f32 {
    random.below(9) as f32 - 4.0
}

fn unit(random: &mut Random) -> f32 {
    (random.next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
}

/// Eight of these numbers of four bits.
fn places(random: &mut Random, choices: &[u64]) -> u64 {
    (0..8).fold(0, |word, _| word << 4 | *random.pick(choices))
}

/// Four bytes.
fn four(random: &mut Random, byte: impl Fn(&mut Random) -> u64) -> u64 {
    (0..4).fold(0, |word, _| word << 8 | byte(random))
}

/// A number of `.f32` between `least` and `least + range` in steps of `1/per_unit`.
fn steps(random: &mut Random, least: f32, range: usize, per_unit: usize) -> u64 {
    u64::from((least + random.below(range * per_unit) as f32 / per_unit as f32).to_bits())
}

/// Returns an integer of `bits` bits: extreme, small, around a power of two, a pattern, or any.
fn integer(random: &mut Random, bits: u32) -> u64 {
    let any = random.next();
    let value = match random.below(8) {
        0 => *random.pick(&[0, 1, 2, 3, u64::MAX, u64::MAX - 1]),
        1 => (1u64 << (bits - 1)).wrapping_add(any % 3).wrapping_sub(1),
        2 => (1u64 << (any % u64::from(bits))).wrapping_add(random.next() % 3).wrapping_sub(1),
        3 => any % 100,
        4 => (any % 100).wrapping_neg(),
        5 => *random.pick(&[
            0x5555_5555_5555_5555,
            0xaaaa_aaaa_aaaa_aaaa,
            0x0123_4567_89ab_cdef,
            0x00ff_00ff_00ff_00ff,
            0x8080_8080_7f7f_7f7f,
        ]),
        _ => any,
    };
    value & u64::MAX >> (64 - bits)
}

fn single(random: &mut Random) -> u64 {
    let any = random.next();
    u64::from(match random.below(8) {
        0..3 => *random.pick(&SINGLES),
        // Near 1, with few bits set, so that results are ties.
        3 => (any as u32 & 0x8000_0000) | (0x3c00_0000 + (any as u32 >> 3 & 0x07ff_8000)),
        4 | 5 => (any as u32 & 0x807f_ffff) | (0x3c00_0000 + (((any >> 32) as u32 % 16) << 23)),
        6 => ((any as i32 >> (any >> 32 & 31)) as f32).to_bits(),
        _ => any as u32,
    })
}

fn double(random: &mut Random) -> u64 {
    let any = random.next();
    match random.below(8) {
        0..3 => *random.pick(&DOUBLES),
        3 => (any & 0x8000_0000_0000_0000) | (0x3fc0_0000_0000_0000 + (any & 0x007f_fc00_0000_0000)),
        4 | 5 => (any & 0x800f_ffff_ffff_ffff) | (0x3fc0_0000_0000_0000 + ((random.next() % 8) << 52)),
        6 => ((any as i64 >> (random.next() % 64)) as f64).to_bits(),
        _ => any,
    }
}

fn f16(random: &mut Random) -> u64 {
    let any = random.next() as u16;
    u64::from(match random.below(8) {
        0..3 => *random.pick(&HALVES),
        3 => any & 0x80f0 | 0x3800,
        4 | 5 => any & 0x83ff | (0x3400 + (random.next() as u16 & 7) * 0x400),
        _ => any,
    })
}

/// The bits of a cell with every NaN replaced by one pattern: cells are equal under
/// [`Rule::AnyNan`](crate::case::Rule::AnyNan) exactly if these are.
pub fn canonical(values: Values, bits: u64) -> u64 {
    let scalar = |values: Values, bits: u64| if number(values, bits).is_nan() { u64::MAX } else { bits };
    match halves(values) {
        Some(half) => scalar(half, bits & 0xffff) & 0xffff | scalar(half, bits >> 16) << 16,
        None => scalar(values, bits),
    }
}

/// The type of each half of a cell that holds two numbers.
pub fn halves(values: Values) -> Option<Values> {
    match values {
        Values::F16x2 => Some(Values::F16),
        Values::Bf16x2 => Some(Values::Bf16),
        _ => None,
    }
}

/// The number that a cell of a floating-point type holds.
pub fn number(values: Values, bits: u64) -> f64 {
    match values {
        Values::F64 => f64::from_bits(bits),
        Values::F16 => {
            let magnitude = match (bits >> 10 & 31, bits & 0x3ff) {
                (0, fraction) => fraction as f64 * 2f64.powi(-24),
                (31, 0) => f64::INFINITY,
                (31, _) => f64::NAN,
                (exponent, fraction) => (1024 + fraction) as f64 * 2f64.powi(exponent as i32 - 25),
            };
            if bits & 0x8000 != 0 { -magnitude } else { magnitude }
        }
        Values::Bf16 => f32::from_bits((bits as u32) << 16).into(),
        _ => f32::from_bits(bits as u32).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that depends on what columns of these kinds hold.
    fn digest(all: &[Values]) -> u64 {
        let mut digest = 0u64;
        for (column, values) in all.iter().enumerate() {
            for row in 0..100 {
                let value = values.value(42, column, row);
                assert_eq!(value & !values.mask(), 0, "{values:?} fits its cell");
                digest = digest.rotate_left(5) ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
        digest
    }

    #[test]
    #[rustfmt::skip]
    fn values_are_what_they_were_when_the_corpus_was_recorded() {
        use Values::*;
        let first = [
            B8, B16, B32, B64, F16, Bf16, F16x2, Bf16x2, Tf32, F32, F64, F8x2, Pred, Position, BytePosition, Angle, Lane,
            SmallF16x2, SmallBf16x2, SmallTf32, SmallF32, SmallF64, UnitF16x2, UnitBf16x2, UnitTf32, UnitF32, UnitF64, Cell,
        ];
        assert_eq!(digest(&first), 5309427474992156987);
        let second = [
            UnitF16, Texel, TexelPosition, Ratio, AnyRatio, Layer, Level, Direction, SmallE4m3x4, SmallE5m2x4, UnitE4m3x4,
            UnitE5m2x4, Gradient,
        ];
        assert_eq!(digest(&second), 12729978480876619117);
    }

    #[test]
    fn edges_come_up() {
        let count = |values: Values, wanted: fn(u64) -> bool| {
            (0..2048).filter(|row| wanted(values.value(1, 0, *row))).count()
        };
        assert!(count(Values::F32, |bits| f32::from_bits(bits as u32).is_nan()) > 40);
        assert!(count(Values::F32, |bits| f32::from_bits(bits as u32).is_subnormal()) > 20);
        assert!(count(Values::F64, |bits| f64::from_bits(bits).is_infinite()) > 10);
        assert!(count(Values::B32, |bits| bits == 0xffff_ffff) > 20);
    }

    #[test]
    fn halves_are_read_as_the_format_says() {
        for (bits, value) in [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 2f64.powi(-24)), (0x7bff, 65504.0)] {
            assert_eq!(number(Values::F16, bits), value);
        }
        assert!(number(Values::F16, 0x7c01).is_nan());
    }
}
