//! Every conversion against its definition by [`soft`].

use super::*;
use crate::arithmetic::numbers::flush;
use apex_random::Random;

/// Smallest and largest value of an integer type.
fn range(ty: ScalarType) -> (i128, i128) {
    let bits = 8 * ty.bytes() as u32;
    match ty.is_signed() {
        true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => (0, (1 << bits) - 1),
    }
}

/// The definition of a conversion. Bits above the source type's width are ignored; the result is
/// extended to its register.
fn definition(bits: u64, how: Conversion) -> u64 {
    let Conversion { from, to, rounding, whole, saturate, ftz, relu, finite } = how;
    let width = 8 * from.bytes() as u32;
    let bits = bits & u64::MAX >> (64 - width);
    match (format(from), format(to)) {
        (None, None) => {
            let value = integer_value(bits, from);
            integer_bits(if saturate { value.clamp(range(to).0, range(to).1) } else { value }, to)
        }
        (None, Some(to_format)) => {
            let value = soft::from_integer(integer_value(bits, from), to_format, rounding);
            let value = if saturate { saturated_bits(value, to_format) } else { value };
            if to == ScalarType::Tf32 { value << 13 } else { value }
        }
        (Some(from_format), None) => {
            let bits = if ftz { flushed(bits, from) } else { bits };
            match soft::to_integer(bits, from_format, rounding) {
                Some(value) => integer_bits(value.clamp(range(to).0, range(to).1), to),
                None if from == ScalarType::F64 || to.bytes() == 8 => {
                    integer_bits(1 << (8 * to.bytes() - 1), to)
                }
                None => 0,
            }
        }
        (Some(from_format), Some(to_format)) => {
            let bits = if ftz { flushed(bits, from) } else { bits };
            let value = if whole {
                soft::convert(whole_number(bits, from_format, rounding), from_format, to_format, rounding)
            } else {
                soft::convert(bits, from_format, to_format, rounding)
            };
            let value = if ftz { flushed(value, to) } else { value };
            let value = match relu {
                true if to_format.is_nan(value) => to_format.nan(),
                true if value & to_format.sign() != 0 => 0,
                _ => value,
            };
            let value = if saturate { saturated_bits(value, to_format) } else { value };
            let infinite = value & (to_format.sign() - 1) == to_format.infinity() && !to_format.is_nan(value);
            let value =
                if finite && infinite { value & to_format.sign() | to_format.largest() } else { value };
            if to == ScalarType::Tf32 { value << 13 } else { value }
        }
    }
}

fn integer_value(bits: u64, ty: ScalarType) -> i128 {
    let shift = 64 - 8 * ty.bytes() as u32;
    if ty.is_signed() { ((bits << shift) as i64 >> shift).into() } else { bits.into() }
}

/// The low bits of `value`, extended by the sign of the type.
fn integer_bits(value: i128, ty: ScalarType) -> u64 {
    integer_value(value as u64 & u64::MAX >> (64 - 8 * ty.bytes() as u32), ty) as u64
}

/// `.ftz` applies to `.f32` on either side.
fn flushed(bits: u64, ty: ScalarType) -> u64 {
    if ty == ScalarType::F32 { flush(f32::from_bits(bits as u32)).to_bits().into() } else { bits }
}

/// A floating-point number rounded to a whole one, in its own format. NaN stays.
fn whole_number(bits: u64, format: Format, rounding: Rounding) -> u64 {
    match soft::to_integer(bits, format, rounding) {
        // Beyond 2^64 every number is whole.
        Some(value) if value.unsigned_abs() <= 1 << 64 => {
            soft::from_integer(value, format, Rounding::NearestEven) & !format.sign() | bits & format.sign()
        }
        _ => bits,
    }
}

/// Into [0, 1]; NaN to 0.
fn saturated_bits(value: u64, format: Format) -> u64 {
    let one = soft::from_integer(1, format, Rounding::NearestEven);
    if format.is_nan(value) || value & format.sign() != 0 { 0 } else { value.min(one) }
}

/// A value of one lane: any bits, integers of any size, numbers around powers of two and
/// halves, special ones.
fn value(random: &mut Random, from: ScalarType) -> u64 {
    let (bits, kind) = (random.bits(), random.bits());
    let Some(format) = format(from) else {
        let sized = bits >> (kind >> 8 & 63);
        return if kind & 1 != 0 { sized } else { sized.wrapping_neg() };
    };
    let small = || (bits as i64 >> (kind >> 8 & 63)).into();
    match kind % 8 {
        0 => bits,
        1 => [0, format.sign(), format.infinity(), format.infinity() | format.sign(), format.nan(), 1]
            [(bits % 6) as usize],
        2 => (format.infinity() - 1 - (bits & 0x3f)) | ((bits >> 60 & 1) * format.sign()),
        3 => soft::from_integer(small(), format, Rounding::NearestEven),
        4 => soft::from_integer(small(), format, Rounding::NearestEven).wrapping_add(bits >> 62),
        // Halves, and next to them.
        5 => {
            let twice = soft::from_integer(i128::from(bits as i16 | 1), soft::F64, Rounding::NearestEven);
            let half = (f64::from_bits(twice) / 2.0).to_bits();
            soft::convert(half, soft::F64, format, Rounding::NearestEven).wrapping_add(kind >> 62)
        }
        // Around the limits of narrower formats: exponents near zero and near their ends.
        6 => {
            let exponent = [-150, -127, -25, -15, -10, -7, 8, 9, 15, 16, 127, 128][(kind >> 8) as usize % 12];
            let number = f64::from_bits(
                ((1023 + exponent + (kind >> 16 & 3) as i64) as u64) << 52
                    | bits & 0xf_ffff_ffff_ffff & !(u64::MAX >> 12 >> (kind >> 20 & 63).min(52)),
            );
            soft::convert(number.to_bits(), soft::F64, format, Rounding::Zero)
        }
        _ => bits & (format.sign() - 1) | format.sign(),
    }
}

fn conversions() -> Vec<(u32, Conversion)> {
    let mut all = Vec::new();
    for from in TYPES {
        for to in TYPES {
            for rounding in ROUNDINGS {
                for flags in [0, 1, 2, 3, 4, 6, 7, 8, 16, 24] {
                    let flag = |index: u32| flags >> index & 1 != 0;
                    let how = Conversion {
                        from,
                        to,
                        rounding,
                        whole: flag(0),
                        saturate: flag(1),
                        ftz: flag(2),
                        relu: flag(3),
                        finite: flag(4),
                    };
                    let whole = how.whole && (format(to).is_none() || from != to);
                    all.extend(how.pack().filter(|_| !whole).map(|packed| (packed, how)));
                }
            }
        }
    }
    all
}

#[test]
fn immediates_keep_everything() {
    assert!(conversions().iter().all(|(packed, how)| Conversion::unpack(*packed) == *how));
}

#[test]
fn every_conversion_is_the_definition() {
    let mut random = Random::new(4711);
    for (packed, how) in conversions() {
        for _ in 0..8 {
            let longs: Longs = std::array::from_fn(|_| value(&mut random, how.from));
            let words = map(&longs, |x| x as u32);
            let found = match (how.from.bytes() == 8, how.to.bytes() == 8) {
                (false, false) => map(&word_to_word(&words, packed), u64::from),
                (false, true) => word_to_long(&words, packed),
                (true, false) => map(&long_to_word(&longs, packed), u64::from),
                (true, true) => long_to_long(&longs, packed),
            };
            for lane in 0..WARP {
                let expected = definition(longs[lane], how);
                let expected = if how.to.bytes() == 8 { expected } else { expected & 0xffff_ffff };
                assert_eq!(
                    found[lane], expected,
                    "{how:?} of {:x}: {:x} {expected:x}",
                    longs[lane], found[lane]
                );
            }
        }
    }
}
