//! Binary floating point by the book: every operation exact, then rounded once, in any format and
//! direction.
//!
//! This is the definition. It is used where the host has no such instruction (directed rounding,
//! half precision with one rounding, conversions that saturate), and tests hold the fast paths
//! against it. Values are bit patterns in the low bits of a `u64`. A NaN in `.f64` keeps its
//! payload, made quiet; in the other formats every NaN that comes out is the one that NVIDIA's
//! hardware makes: all bits set but the sign.

/// A binary interchange format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bits of the exponent field.
    exponent: u32,
    /// Bits of the fraction field.
    fraction: u32,
    /// Whether the largest exponent stands for infinity and NaN. Without, only the pattern of all
    /// ones is a NaN, and what is too large becomes the largest number.
    infinities: bool,
    /// Whether there is no NaN either: a NaN becomes the largest number, positive.
    finite: bool,
}

impl Format {
    const fn ieee(exponent: u32, fraction: u32) -> Format {
        Format { exponent, fraction, infinities: true, finite: false }
    }

    const fn finite(exponent: u32, fraction: u32) -> Format {
        Format { exponent, fraction, infinities: false, finite: true }
    }
}

/// `.f16`.
pub(crate) const F16: Format = Format::ieee(5, 10);
/// `.bf16`.
pub(crate) const BF16: Format = Format::ieee(8, 7);
/// `.tf32`, its bits at the bottom.
pub(crate) const TF32: Format = Format::ieee(8, 10);
/// `.f32`.
pub(crate) const F32: Format = Format::ieee(8, 23);
/// `.f64`.
pub(crate) const F64: Format = Format::ieee(11, 52);
/// `.e5m2`.
pub(crate) const E5M2: Format = Format::ieee(5, 2);
/// `.e4m3`.
pub(crate) const E4M3: Format = Format { exponent: 4, fraction: 3, infinities: false, finite: false };
/// `.e3m2`.
pub(crate) const E3M2: Format = Format::finite(3, 2);
/// `.e2m3`.
pub(crate) const E2M3: Format = Format::finite(2, 3);
/// `.e2m1`.
pub(crate) const E2M1: Format = Format::finite(2, 1);

/// The rounding of a result that has no exact representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// `.rn`.
    NearestEven,
    /// `.rna`: ties away from zero.
    NearestAway,
    /// `.rz`.
    Zero,
    /// `.rm`.
    Down,
    /// `.rp`.
    Up,
}

impl Format {
    pub(crate) fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// Exponent of the last bit of subnormal numbers.
    fn quantum(self) -> i32 {
        1 - self.bias() - self.fraction as i32
    }

    pub(crate) fn sign(self) -> u64 {
        1 << (self.exponent + self.fraction)
    }

    /// The first magnitude beyond the finite ones: infinity, the only NaN, or none that there is.
    pub(crate) fn infinity(self) -> u64 {
        match self.infinities {
            true => ((1 << self.exponent) - 1) << self.fraction,
            false if self.finite => self.sign(),
            false => self.sign() - 1,
        }
    }

    /// The magnitude of the largest number.
    pub(crate) fn largest(self) -> u64 {
        self.infinity() - 1
    }

    /// The number 1.
    pub(crate) fn one(self) -> u64 {
        (self.bias() as u64) << self.fraction
    }

    /// Bits of the fraction field.
    pub(crate) fn fraction(self) -> u32 {
        self.fraction
    }

    /// Whether the largest exponent stands for infinity and NaN.
    pub(crate) fn infinities(self) -> bool {
        self.infinities
    }

    /// Returns the result for a magnitude that is too large, rounded to nearest.
    pub(crate) fn overflow(self) -> u64 {
        if self.infinities { self.infinity() } else { self.largest() }
    }

    /// The NaN that operations make.
    pub(crate) fn nan(self) -> u64 {
        if self == F64 { 0xfff8_0000_0000_0000 } else { self.sign() - 1 }
    }

    pub(crate) fn is_nan(self, bits: u64) -> bool {
        let magnitude = bits & (self.sign() - 1);
        if self.infinities { magnitude > self.infinity() } else { magnitude == self.infinity() }
    }
}

/// The value of a bit pattern.
#[derive(Clone, Copy, Debug)]
enum Number {
    Nan(u64),
    Infinity,
    /// `significand * 2^exponent`; zero has significand 0.
    Finite {
        exponent: i32,
        significand: u128,
    },
}

/// Sign (true: negative) and magnitude.
fn unpack(bits: u64, format: Format) -> (bool, Number) {
    let negative = bits & format.sign() != 0;
    let fraction = bits & ((1 << format.fraction) - 1);
    let exponent = (bits >> format.fraction & ((1 << format.exponent) - 1)) as i32;
    let number = if format.is_nan(bits) {
        Number::Nan(bits)
    } else if format.infinities && bits & format.infinity() == format.infinity() {
        Number::Infinity
    } else if exponent == 0 {
        Number::Finite { exponent: format.quantum(), significand: fraction.into() }
    } else {
        let significand = u128::from(fraction | 1 << format.fraction);
        Number::Finite { exponent: format.quantum() + exponent - 1, significand }
    };
    (negative, number)
}

/// The NaN that comes out when `bits` goes in.
fn quiet(bits: u64, format: Format) -> u64 {
    if format == F64 { bits | 1 << 51 } else { format.nan() }
}

fn signed(negative: bool, magnitude: u64, format: Format) -> u64 {
    magnitude | if negative { format.sign() } else { 0 }
}

/// Whether a magnitude that was cut is to be made one unit larger: its last bit, the first bit cut
/// off, and whether anything follows.
fn rounds_up(rounding: Rounding, negative: bool, odd: bool, half: bool, rest: bool) -> bool {
    match rounding {
        Rounding::NearestEven => half && (rest || odd),
        Rounding::NearestAway => half,
        Rounding::Zero => false,
        Rounding::Down => negative && (half || rest),
        Rounding::Up => !negative && (half || rest),
    }
}

/// `significand >> shift` with the first bit cut off, and whether any other bit cut off was set.
fn cut(significand: u128, shift: u32) -> (u128, bool, bool) {
    match shift {
        0 => (significand, false, false),
        1..=127 => {
            let (kept, lost) = (significand >> shift, significand & ((1 << shift) - 1));
            let half = 1 << (shift - 1);
            (kept, lost & half != 0, lost & (half - 1) != 0)
        }
        128 => (0, significand >> 127 != 0, significand << 1 != 0),
        _ => (0, false, significand != 0),
    }
}

/// `±(significand + rest) * 2^exponent` in `format`, where `rest` is whether something below one
/// unit was left over.
fn pack(
    negative: bool,
    exponent: i32,
    significand: u128,
    rest: bool,
    format: Format,
    rounding: Rounding,
) -> u64 {
    if significand == 0 {
        return signed(negative, 0, format);
    }
    let top = 127 - significand.leading_zeros() as i32;
    let quantum = (exponent + top - format.fraction as i32).max(format.quantum());
    let shift = quantum - exponent;
    let (mut kept, half, below) =
        if shift <= 0 { (significand << -shift, false, false) } else { cut(significand, shift as u32) };
    kept += u128::from(rounds_up(rounding, negative, kept & 1 != 0, half, below || rest));
    // A carry into the next power of two moves the exponent field by itself, and so does leaving
    // the subnormals.
    let magnitude = (((quantum - format.quantum()) as u128) << format.fraction) + kept;
    let infinity = u128::from(format.infinity());
    let magnitude = if magnitude < infinity {
        magnitude as u64
    } else if matches!(rounding, Rounding::NearestEven | Rounding::NearestAway)
        || rounds_up(rounding, negative, true, true, true)
    {
        format.overflow()
    } else {
        format.largest()
    };
    signed(negative, magnitude, format)
}

/// `a * b + c` with one rounding; also multiplication (`c` = -0) and addition (`b` = 1) where their
/// own signs of zero are kept by their wrappers.
fn sum(a: (bool, i32, u128), b: (bool, i32, u128), format: Format, rounding: Rounding) -> u64 {
    let ((negative_a, exponent_a, a), (negative_b, exponent_b, b)) = (a, b);
    match (a, b) {
        (0, 0) => {
            let negative = if negative_a == negative_b { negative_a } else { rounding == Rounding::Down };
            return signed(negative, 0, format);
        }
        (0, _) => return pack(negative_b, exponent_b, b, false, format, rounding),
        (_, 0) => return pack(negative_a, exponent_a, a, false, format, rounding),
        _ => {}
    }
    // Both with their top bit at 125: room for a carry, and, as products have 106 bits, for 20 bits
    // below.
    let normal = |exponent: i32, value: u128| {
        let shift = value.leading_zeros() as i32 - 2;
        (exponent - shift, value << shift)
    };
    let (mut x, mut y) = ((negative_a, normal(exponent_a, a)), (negative_b, normal(exponent_b, b)));
    if (x.1.0, x.1.1) < (y.1.0, y.1.1) {
        (x, y) = (y, x);
    }
    let ((negative, (exponent, large)), (other, (small_exponent, small))) = (x, y);
    let (kept, half, rest) = cut(small, (exponent - small_exponent) as u32);
    // What is cut off sticks to the last bit, which is far below where anything is rounded.
    let small = kept | u128::from(half || rest);
    if negative == other {
        return pack(negative, exponent, large + small, false, format, rounding);
    }
    match large - small {
        0 => signed(rounding == Rounding::Down, 0, format),
        difference => pack(negative, exponent, difference, false, format, rounding),
    }
}

/// `a + b`.
pub(crate) fn add(a: u64, b: u64, format: Format, rounding: Rounding) -> u64 {
    let ((negative_a, x), (negative_b, y)) = (unpack(a, format), unpack(b, format));
    match (x, y) {
        (Number::Nan(bits), _) | (_, Number::Nan(bits)) => quiet(bits, format),
        (Number::Infinity, Number::Infinity) if negative_a != negative_b => format.nan(),
        (Number::Infinity, _) => a,
        (_, Number::Infinity) => b,
        (
            Number::Finite { exponent: exponent_a, significand: a },
            Number::Finite { exponent: exponent_b, significand: b },
        ) => sum((negative_a, exponent_a, a), (negative_b, exponent_b, b), format, rounding),
    }
}

/// `a - b`.
pub(crate) fn sub(a: u64, b: u64, format: Format, rounding: Rounding) -> u64 {
    add(a, if format.is_nan(b) { b } else { b ^ format.sign() }, format, rounding)
}

/// `a * b`.
pub(crate) fn mul(a: u64, b: u64, format: Format, rounding: Rounding) -> u64 {
    let ((negative_a, x), (negative_b, y)) = (unpack(a, format), unpack(b, format));
    let negative = negative_a != negative_b;
    match (x, y) {
        (Number::Nan(bits), _) | (_, Number::Nan(bits)) => quiet(bits, format),
        (Number::Infinity, Number::Finite { significand: 0, .. })
        | (Number::Finite { significand: 0, .. }, Number::Infinity) => format.nan(),
        (Number::Infinity, _) | (_, Number::Infinity) => signed(negative, format.infinity(), format),
        (
            Number::Finite { exponent: exponent_a, significand: a },
            Number::Finite { exponent: exponent_b, significand: b },
        ) => pack(negative, exponent_a + exponent_b, a * b, false, format, rounding),
    }
}

/// `a * b + c`.
pub(crate) fn fma(a: u64, b: u64, c: u64, format: Format, rounding: Rounding) -> u64 {
    let ((negative_a, x), (negative_b, y), (negative_c, z)) =
        (unpack(a, format), unpack(b, format), unpack(c, format));
    let negative = negative_a != negative_b;
    match (x, y, z) {
        (Number::Nan(bits), ..) | (_, Number::Nan(bits), _) => quiet(bits, format),
        (Number::Infinity, Number::Finite { significand: 0, .. }, _)
        | (Number::Finite { significand: 0, .. }, Number::Infinity, _) => format.nan(),
        (_, _, Number::Nan(bits)) => quiet(bits, format),
        (Number::Infinity, ..) | (_, Number::Infinity, _) => match z {
            Number::Infinity if negative != negative_c => format.nan(),
            _ => signed(negative, format.infinity(), format),
        },
        (.., Number::Infinity) => c,
        (
            Number::Finite { exponent: exponent_a, significand: a },
            Number::Finite { exponent: exponent_b, significand: b },
            Number::Finite { exponent: exponent_c, significand: c },
        ) => {
            let product = (negative, exponent_a + exponent_b, a * b);
            sum(product, (negative_c, exponent_c, c), format, rounding)
        }
    }
}

/// `a / b`.
pub(crate) fn div(a: u64, b: u64, format: Format, rounding: Rounding) -> u64 {
    let ((negative_a, x), (negative_b, y)) = (unpack(a, format), unpack(b, format));
    let negative = negative_a != negative_b;
    match (x, y) {
        (Number::Nan(bits), _) | (_, Number::Nan(bits)) => quiet(bits, format),
        (Number::Infinity, Number::Infinity)
        | (Number::Finite { significand: 0, .. }, Number::Finite { significand: 0, .. }) => format.nan(),
        (Number::Infinity, _) | (_, Number::Finite { significand: 0, .. }) => {
            signed(negative, format.infinity(), format)
        }
        (_, Number::Infinity) | (Number::Finite { significand: 0, .. }, _) => signed(negative, 0, format),
        (
            Number::Finite { exponent: exponent_a, significand: a },
            Number::Finite { exponent: exponent_b, significand: b },
        ) => {
            let shift = a.leading_zeros();
            let (quotient, rest) = ((a << shift) / b, (a << shift) % b);
            pack(negative, exponent_a - shift as i32 - exponent_b, quotient, rest != 0, format, rounding)
        }
    }
}

/// The square root.
pub(crate) fn sqrt(a: u64, format: Format, rounding: Rounding) -> u64 {
    match unpack(a, format) {
        (_, Number::Nan(bits)) => quiet(bits, format),
        (_, Number::Finite { significand: 0, .. }) => a,
        (true, _) => format.nan(),
        (false, Number::Infinity) => a,
        (false, Number::Finite { exponent, significand }) => {
            // As many bits as fit, with an even exponent.
            let mut shift = significand.leading_zeros() as i32;
            shift -= (exponent - shift) & 1;
            let value = significand << shift;
            let root = value.isqrt();
            pack(false, (exponent - shift) / 2, root, root * root != value, format, rounding)
        }
    }
}

/// `a`, a number of format `from`, in format `to`.
pub(crate) fn convert(a: u64, from: Format, to: Format, rounding: Rounding) -> u64 {
    match unpack(a, from) {
        (negative, Number::Nan(bits)) if to == F64 => {
            // The payload moves to the top of the wider fraction.
            let fraction = bits & ((1 << from.fraction) - 1);
            signed(negative, F64.infinity() | 1 << 51 | fraction << (52 - from.fraction), F64)
        }
        (_, Number::Nan(_)) => to.nan(),
        (negative, Number::Infinity) => signed(negative, to.overflow(), to),
        (negative, Number::Finite { exponent, significand }) => {
            pack(negative, exponent, significand, false, to, rounding)
        }
    }
}

/// An integer in `format`.
#[cfg(test)]
pub(crate) fn from_integer(value: i128, format: Format, rounding: Rounding) -> u64 {
    pack(value < 0, 0, value.unsigned_abs(), false, format, rounding)
}

/// The integer that `a` is rounded to; far outside `i64` and `u64` it is some number far outside.
/// `None` for NaN.
#[cfg(test)]
pub(crate) fn to_integer(a: u64, format: Format, rounding: Rounding) -> Option<i128> {
    let (negative, magnitude) = match unpack(a, format) {
        (_, Number::Nan(_)) => return None,
        (negative, Number::Infinity) => (negative, i128::MAX),
        (negative, Number::Finite { exponent, significand }) if exponent >= 0 => {
            // Significands have at most 53 bits.
            (
                negative,
                if exponent < 70 {
                    (significand << exponent) as i128
                } else {
                    i128::MAX * i128::from(significand != 0)
                },
            )
        }
        (negative, Number::Finite { exponent, significand }) => {
            let (kept, half, rest) = cut(significand, exponent.unsigned_abs());
            let up = rounds_up(rounding, negative, kept & 1 != 0, half, rest);
            (negative, kept as i128 + i128::from(up))
        }
    };
    Some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_random::Random;

    /// Numbers that matter, and random ones.
    pub(crate) fn patterns(count: usize, seed: u64) -> Vec<u64> {
        let special = [
            0,
            1,
            0x8000_0000_0000_0000,
            0x7ff0_0000_0000_0000,
            0xfff0_0000_0000_0000,
            0x3ff0_0000_0000_0000,
            0x7fef_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            0x000f_ffff_ffff_ffff,
            0x4330_0000_0000_0001,
        ];
        let mut random = Random::new(seed);
        let random = (0..count).map(|_| {
            let bits = random.bits();
            // Half of them with exponents near each other, so that sums cancel and round.
            if bits & 1 == 0 { bits } else { bits & 0x803f_ffff_ffff_ffff | 0x3fc0_0000_0000_0000 }
        });
        special.into_iter().chain(random).collect()
    }

    fn same64(soft: u64, host: f64) {
        assert!(
            soft == host.to_bits() || (F64.is_nan(soft) && host.is_nan()),
            "{soft:x} {:x}",
            host.to_bits()
        );
    }

    #[test]
    fn nearest_even_agrees_with_the_host_in_double_precision() {
        let values = patterns(20_000, 0x1234_5678_9abc_def1);
        for window in values.windows(3) {
            let [a, b, c] = [window[0], window[1], window[2]];
            let [x, y, z] = [a, b, c].map(f64::from_bits);
            same64(add(a, b, F64, Rounding::NearestEven), x + y);
            same64(sub(a, b, F64, Rounding::NearestEven), x - y);
            same64(mul(a, b, F64, Rounding::NearestEven), x * y);
            same64(div(a, b, F64, Rounding::NearestEven), x / y);
            same64(fma(a, b, c, F64, Rounding::NearestEven), x.mul_add(y, z));
            same64(sqrt(a, F64, Rounding::NearestEven), x.sqrt());
        }
    }

    #[test]
    fn nearest_even_agrees_with_the_host_in_single_precision() {
        let values: Vec<u64> = patterns(20_000, 77).iter().map(|v| v >> 32).collect();
        let same = |soft: u64, host: f32| {
            let equal = soft == u64::from(host.to_bits()) || (F32.is_nan(soft) && host.is_nan());
            assert!(equal, "{soft:x} {:x}", host.to_bits());
        };
        for window in values.windows(3) {
            let [a, b, c] = [window[0], window[1], window[2]];
            let [x, y, z] = [a, b, c].map(|bits| f32::from_bits(bits as u32));
            same(add(a, b, F32, Rounding::NearestEven), x + y);
            same(mul(a, b, F32, Rounding::NearestEven), x * y);
            same(div(a, b, F32, Rounding::NearestEven), x / y);
            same(fma(a, b, c, F32, Rounding::NearestEven), x.mul_add(y, z));
            same(sqrt(a, F32, Rounding::NearestEven), x.sqrt());
            same(convert(u64::from_le_bytes(f64::from(x).to_le_bytes()), F64, F32, Rounding::NearestEven), x);
            let wide = f64::from_bits(values[0] ^ a << 29 ^ b);
            same(convert(wide.to_bits(), F64, F32, Rounding::NearestEven), wide as f32);
            same(
                from_integer((a as i64 - b as i64).into(), F32, Rounding::NearestEven),
                (a as i64 - b as i64) as f32,
            );
        }
    }

    #[test]
    fn directed_results_enclose_the_exact_one() {
        // Down and up are neighbours around the nearest, and equal where the result is exact.
        for window in patterns(20_000, 3).windows(2) {
            let [a, b] = [window[0], window[1]];
            for operation in [add, sub, mul, div] {
                let [nearest, zero, down, up] =
                    [Rounding::NearestEven, Rounding::Zero, Rounding::Down, Rounding::Up]
                        .map(|rounding| f64::from_bits(operation(a, b, F64, rounding)));
                if nearest.is_nan() {
                    assert!(zero.is_nan() && down.is_nan() && up.is_nan());
                    continue;
                }
                assert!(down <= nearest && nearest <= up, "{down} {nearest} {up}");
                assert!(down == up || down.next_up() == up, "{down} {up}");
                assert_eq!(zero, if nearest.is_sign_negative() { up } else { down });
            }
        }
    }

    #[test]
    fn integers_round_as_told() {
        let half = |value: f64, rounding| to_integer(value.to_bits(), F64, rounding);
        assert_eq!(half(2.5, Rounding::NearestEven), Some(2));
        assert_eq!(half(2.5, Rounding::NearestAway), Some(3));
        assert_eq!(half(-2.5, Rounding::Down), Some(-3));
        assert_eq!(half(-2.5, Rounding::Up), Some(-2));
        assert_eq!(half(-2.5, Rounding::Zero), Some(-2));
        assert_eq!(half(1e-300, Rounding::Up), Some(1));
        assert_eq!(half(f64::NAN, Rounding::Up), None);
        assert!(half(f64::INFINITY, Rounding::Zero) > Some(u64::MAX.into()));
        assert_eq!(half(1e18, Rounding::Zero), Some(1_000_000_000_000_000_000));
    }

    #[test]
    fn every_half_survives_the_way_to_double_and_back() {
        for bits in 0..=u64::from(u16::MAX) {
            for format in [F16, BF16] {
                let back =
                    convert(convert(bits, format, F64, Rounding::NearestEven), F64, format, Rounding::Zero);
                assert!(back == bits || (format.is_nan(bits) && back == format.nan()), "{bits:x} {back:x}");
            }
        }
    }
}
