//! Floating-point instructions against references: the host's arithmetic, and for directed rounding
//! the exact enclosure by `f64` and error-free sums.

use crate::instruction::Width::{Predicate, W16, W32, W64};
use crate::instruction::{Check, Width, check};

pub(crate) const NAN: u64 = 0x7fff_ffff;

pub(crate) fn f(raw: u64) -> f32 {
    f32::from_bits(raw as u32)
}

pub(crate) fn d(raw: u64) -> f64 {
    f64::from_bits(raw)
}

/// The bits of an `.f32` result.
pub(crate) fn bits(value: f32) -> u64 {
    if value.is_nan() { NAN } else { value.to_bits().into() }
}

pub(crate) fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// Checks an `.f64` instruction; the bits of a NaN are not compared.
fn check64(text: &str, sources: &[Width], reference: impl Fn(&[u64]) -> f64) {
    Check { text, result: W64, sources }.run(&mut |inputs, found| {
        let expected = reference(inputs);
        let same = found == expected.to_bits() || (expected.is_nan() && d(found).is_nan());
        assert!(same, "{text} on {inputs:x?}: {found:#x} instead of {:#x}", expected.to_bits());
    });
}

#[test]
fn single_precision_is_the_hosts() {
    let two = [W32; 2];
    check("add.f32 $d, $a, $b;", W32, &two, |x| bits(f(x[0]) + f(x[1])));
    check("sub.rn.f32 $d, $a, $b;", W32, &two, |x| bits(f(x[0]) - f(x[1])));
    check("mul.f32 $d, $a, $b;", W32, &two, |x| bits(f(x[0]) * f(x[1])));
    check("div.rn.f32 $d, $a, $b;", W32, &two, |x| bits(f(x[0]) / f(x[1])));
    check("fma.rn.f32 $d, $a, $b, $c;", W32, &[W32; 3], |x| bits(f(x[0]).mul_add(f(x[1]), f(x[2]))));
    check("sqrt.rn.f32 $d, $a;", W32, &[W32], |x| bits(f(x[0]).sqrt()));
    check("rcp.rn.f32 $d, $a;", W32, &[W32], |x| bits(1.0 / f(x[0])));
    check("abs.f32 $d, $a;", W32, &[W32], |x| x[0] & 0x7fff_ffff);
    check("neg.f32 $d, $a;", W32, &[W32], |x| x[0] ^ 0x8000_0000);
    check("copysign.f32 $d, $a, $b;", W32, &two, |x| x[0] & 0x8000_0000 | x[1] & 0x7fff_ffff);
}

#[test]
fn modifiers_of_single_precision() {
    let sat = |value: f32| if value.is_nan() { 0 } else { bits(value.clamp(0.0, 1.0) + 0.0) };
    check("add.ftz.f32 $d, $a, $b;", W32, &[W32; 2], |x| bits(flush(flush(f(x[0])) + flush(f(x[1])))));
    check("mul.ftz.f32 $d, $a, $b;", W32, &[W32; 2], |x| bits(flush(flush(f(x[0])) * flush(f(x[1])))));
    check("fma.rn.ftz.f32 $d, $a, $b, $c;", W32, &[W32; 3], |x| {
        bits(flush(flush(f(x[0])).mul_add(flush(f(x[1])), flush(f(x[2])))))
    });
    check("add.sat.f32 $d, $a, $b;", W32, &[W32; 2], |x| sat(f(x[0]) + f(x[1])));
    check("fma.rn.sat.f32 $d, $a, $b, $c;", W32, &[W32; 3], |x| sat(f(x[0]).mul_add(f(x[1]), f(x[2]))));
    check("abs.ftz.f32 $d, $a;", W32, &[W32], |x| u64::from(flush(f(x[0])).to_bits() & 0x7fff_ffff));
}

#[test]
fn double_precision_is_the_hosts() {
    check64("add.f64 $d, $a, $b;", &[W64; 2], |x| d(x[0]) + d(x[1]));
    check64("sub.rn.f64 $d, $a, $b;", &[W64; 2], |x| d(x[0]) - d(x[1]));
    check64("mul.f64 $d, $a, $b;", &[W64; 2], |x| d(x[0]) * d(x[1]));
    check64("div.rn.f64 $d, $a, $b;", &[W64; 2], |x| d(x[0]) / d(x[1]));
    check64("fma.rn.f64 $d, $a, $b, $c;", &[W64; 3], |x| d(x[0]).mul_add(d(x[1]), d(x[2])));
    check64("sqrt.rn.f64 $d, $a;", &[W64], |x| d(x[0]).sqrt());
    check64("rcp.rn.f64 $d, $a;", &[W64], |x| 1.0 / d(x[0]));
    check("abs.f64 $d, $a;", W64, &[W64], |x| x[0] & u64::MAX >> 1);
    check("neg.f64 $d, $a;", W64, &[W64], |x| x[0] ^ 1 << 63);
}

/// The `.f32` below or above an exact value that is given as a double plus the sign of what is
/// missing.
pub(crate) fn directed(nearest: f64, rest: f64, up: bool) -> f32 {
    let rounded = nearest as f32;
    if !rounded.is_finite() && nearest.is_finite() {
        // Overflow: the largest number on the inner side.
        return if (nearest > 0.0) == up { rounded } else { f32::MAX.copysign(nearest as f32) };
    }
    let error = nearest - f64::from(rounded);
    let error = if error == 0.0 { rest } else { error };
    match (error > 0.0, error < 0.0, up) {
        (true, _, true) => rounded.next_up(),
        (_, true, false) => rounded.next_down(),
        _ => rounded,
    }
}

/// `a + b` as a double and what it lacks (Knuth).
pub(crate) fn exact_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, if sum.is_finite() { (a - (sum - part)) + (b - part) } else { 0.0 })
}

#[test]
fn directed_rounding_of_single_precision() {
    for (name, up) in [("rm", Some(false)), ("rp", Some(true)), ("rz", None)] {
        // Towards zero is down for positive results and up for negative ones.
        let round = |(nearest, rest): (f64, f64)| {
            let up = up.unwrap_or(nearest < 0.0);
            bits(directed(nearest, rest, up))
        };
        let sum = |a: f32, b: f32| {
            let zero = a == -b && (a != 0.0 || a.is_sign_positive() != b.is_sign_positive());
            if zero {
                bits(if up == Some(false) { -0.0 } else { 0.0 })
            } else {
                round(exact_sum(a.into(), b.into()))
            }
        };
        check(&format!("add.{name}.f32 $d, $a, $b;"), W32, &[W32; 2], |x| sum(f(x[0]), f(x[1])));
        check(&format!("sub.{name}.f32 $d, $a, $b;"), W32, &[W32; 2], |x| {
            if f(x[1]).is_nan() { NAN } else { sum(f(x[0]), -f(x[1])) }
        });
        check(&format!("mul.{name}.f32 $d, $a, $b;"), W32, &[W32; 2], |x| {
            round((f64::from(f(x[0])) * f64::from(f(x[1])), 0.0))
        });
        check(&format!("fma.{name}.f32 $d, $a, $b, $c;"), W32, &[W32; 3], |x| {
            let (product, c) = (f64::from(f(x[0])) * f64::from(f(x[1])), f64::from(f(x[2])));
            let cancels = product == -c && (c != 0.0 || product.is_sign_positive() != c.is_sign_positive());
            if cancels {
                bits(if up == Some(false) { -0.0 } else { 0.0 })
            } else {
                round(exact_sum(product, c))
            }
        });
        check(&format!("div.{name}.f32 $d, $a, $b;"), W32, &[W32; 2], |x| {
            let (a, b) = (f64::from(f(x[0])), f64::from(f(x[1])));
            let quotient = a / b;
            let rest = if quotient.is_finite() && b.is_finite() {
                (-quotient).mul_add(b, a) * b.signum()
            } else {
                0.0
            };
            round((quotient, rest))
        });
        check(&format!("sqrt.{name}.f32 $d, $a;"), W32, &[W32], |x| {
            let a = f64::from(f(x[0]));
            let root = a.sqrt();
            round((root, if root.is_finite() { (-root).mul_add(root, a) } else { 0.0 }))
        });
    }
    // In the other direction -0 is 0's neighbour, not its equal.
    check("add.rz.ftz.f32 $d, $a, $b;", W32, &[W32; 2], |x| {
        let (a, b) = (flush(f(x[0])), flush(f(x[1])));
        if a == -b && (a != 0.0 || a.is_sign_positive() != b.is_sign_positive()) {
            return 0;
        }
        let (nearest, rest) = exact_sum(a.into(), b.into());
        bits(flush(directed(nearest, rest, nearest < 0.0)))
    });
}

#[test]
fn directed_rounding_of_double_precision() {
    for (name, up) in [("rm", false), ("rp", true)] {
        check64(&format!("add.{name}.f64 $d, $a, $b;"), &[W64; 2], |x| {
            let (a, b) = (d(x[0]), d(x[1]));
            let (sum, rest) = exact_sum(a, b);
            match (sum == 0.0 && (a != 0.0 || a.is_sign_positive() != b.is_sign_positive()), up) {
                (true, true) => 0.0,
                (true, false) => -0.0,
                (_, true) if rest > 0.0 => sum.next_up(),
                (_, false) if rest < 0.0 => sum.next_down(),
                (_, true) if sum == f64::NEG_INFINITY && a.is_finite() && b.is_finite() => f64::MIN,
                (_, false) if sum == f64::INFINITY && a.is_finite() && b.is_finite() => f64::MAX,
                _ => sum,
            }
        });
    }
}

#[test]
fn smaller_and_larger() {
    let least = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
        (true, _) => bits(b),
        (_, true) => bits(a),
        _ if a == b => bits(if a.is_sign_negative() { a } else { b }),
        _ => bits(if a < b { a } else { b }),
    };
    let most = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
        (true, _) => bits(b),
        (_, true) => bits(a),
        _ if a == b => bits(if a.is_sign_negative() { b } else { a }),
        _ => bits(if a < b { b } else { a }),
    };
    check("min.f32 $d, $a, $b;", W32, &[W32; 2], |x| least(f(x[0]), f(x[1])));
    check("max.f32 $d, $a, $b;", W32, &[W32; 2], |x| most(f(x[0]), f(x[1])));
    check("min.NaN.f32 $d, $a, $b;", W32, &[W32; 2], |x| {
        if f(x[0]).is_nan() || f(x[1]).is_nan() { NAN } else { least(f(x[0]), f(x[1])) }
    });
    check("max.xorsign.abs.f32 $d, $a, $b;", W32, &[W32; 2], |x| match most(f(x[0]).abs(), f(x[1]).abs()) {
        NAN => NAN,
        magnitude => magnitude | (x[0] ^ x[1]) & 0x8000_0000,
    });
    check64("min.f64 $d, $a, $b;", &[W64; 2], |x| match (d(x[0]), d(x[1])) {
        (a, b) if a.is_nan() => b,
        (a, b) if b.is_nan() => a,
        (a, b) if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        (a, b) => {
            if a < b {
                a
            } else {
                b
            }
        }
    });
}

#[test]
fn comparisons_know_nan() {
    let relations: [(&str, fn(f64, f64) -> bool); 14] = [
        ("eq", |a, b| a == b),
        ("ne", |a, b| a != b && !a.is_nan() && !b.is_nan()),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
        ("equ", |a, b| a == b || a.is_nan() || b.is_nan()),
        ("neu", |a, b| a != b || a.is_nan() || b.is_nan()),
        ("ltu", |a, b| a < b || a.is_nan() || b.is_nan()),
        ("leu", |a, b| a <= b || a.is_nan() || b.is_nan()),
        ("gtu", |a, b| a > b || a.is_nan() || b.is_nan()),
        ("geu", |a, b| a >= b || a.is_nan() || b.is_nan()),
        ("num", |a, b| !(a.is_nan() || b.is_nan())),
        ("nan", |a, b| a.is_nan() || b.is_nan()),
    ];
    for (relation, holds) in relations {
        check(&format!("setp.{relation}.f32 $d, $a, $b;"), Predicate, &[W32; 2], |x| {
            holds(f(x[0]).into(), f(x[1]).into()).into()
        });
        check(&format!("setp.{relation}.f64 $d, $a, $b;"), Predicate, &[W64; 2], |x| {
            holds(d(x[0]), d(x[1])).into()
        });
        check(&format!("setp.{relation}.f16 $d, $a, $b;"), Predicate, &[W16; 2], |x| {
            holds(half(x[0]), half(x[1])).into()
        });
    }
    check("setp.lt.ftz.f32 $d, $a, $b;", Predicate, &[W32; 2], |x| (flush(f(x[0])) < flush(f(x[1]))).into());
    check("{ .reg .pred p; setp.lt.f16x2 p|$d, $a, $b; }", Predicate, &[W32; 2], |x| {
        (half(x[0] >> 16) < half(x[1] >> 16)).into()
    });
    check("set.gt.f16x2.f16x2 $d, $a, $b;", W32, &[W32; 2], |x| {
        let one = |a: u64, b: u64| if half(a) > half(b) { 0x3c00 } else { 0 };
        one(x[0] & 0xffff, x[1] & 0xffff) | one(x[0] >> 16, x[1] >> 16) << 16
    });
    for (property, holds) in [
        ("finite", (|a| a.is_finite()) as fn(f32) -> bool),
        ("infinite", |a| a.is_infinite()),
        ("number", |a| !a.is_nan()),
        ("notanumber", |a| a.is_nan()),
        ("normal", |a| a.is_normal() || a == 0.0),
        ("subnormal", |a| a.is_subnormal()),
    ] {
        check(&format!("testp.{property}.f32 $d, $a;"), Predicate, &[W32], |x| holds(f(x[0])).into());
    }
}

/// An `.f16` as a number.
pub(crate) fn half(raw: u64) -> f64 {
    let (exponent, fraction) = (raw >> 10 & 31, (raw & 1023) as f64);
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (fraction + 1024.0) * 2f64.powi(exponent as i32 - 25),
    };
    if raw & 0x8000 != 0 { -magnitude } else { magnitude }
}

/// The `.f16` nearest to a number, by trying: ties go to the even one.
pub(crate) fn to_half(value: f64) -> u64 {
    if value.is_nan() {
        return 0x7fff;
    }
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let value = value.abs();
    // Largest half not above the value; past the largest finite one the next step would be 65536.
    let below = (0..0x7c00u64).rev().find(|&raw| half(raw) <= value).unwrap_or(0);
    let above = if below == 0x7bff { 65536.0 } else { half(below + 1) };
    let (low, high) = (value - half(below), above - value);
    let up = high < low || (high == low && below & 1 == 1);
    sign | if up || value == f64::INFINITY { below + 1 } else { below }
}

#[test]
fn half_precision_rounds_once() {
    check("add.f16 $d, $a, $b;", W16, &[W16; 2], |x| to_half(half(x[0]) + half(x[1])));
    check("sub.f16 $d, $a, $b;", W16, &[W16; 2], |x| to_half(half(x[0]) - half(x[1])));
    check("mul.f16 $d, $a, $b;", W16, &[W16; 2], |x| to_half(half(x[0]) * half(x[1])));
    check("mul.rn.f16x2 $d, $a, $b;", W32, &[W32; 2], |x| {
        let at = |shift: u32| to_half(half(x[0] >> shift & 0xffff) * half(x[1] >> shift & 0xffff));
        at(0) | at(16) << 16
    });
    check("neg.f16x2 $d, $a;", W32, &[W32], |x| x[0] ^ 0x8000_8000);
    check("abs.f16 $d, $a;", W16, &[W16], |x| x[0] & 0x7fff);
    check("max.f16 $d, $a, $b;", W16, &[W16; 2], |x| match (half(x[0]), half(x[1])) {
        (a, b) if a.is_nan() && b.is_nan() => 0x7fff,
        (a, _) if a.is_nan() => x[1],
        (_, b) if b.is_nan() => x[0],
        (a, b) if a == b => x[0] & x[1],
        (a, b) => {
            if a > b {
                x[0]
            } else {
                x[1]
            }
        }
    });
    let sat = |raw: u64| if half(raw).is_nan() || raw & 0x8000 != 0 { 0 } else { raw.min(0x3c00) };
    check("add.sat.f16 $d, $a, $b;", W16, &[W16; 2], |x| sat(to_half(half(x[0]) + half(x[1]))));
    check("cvt.rn.f16.f32 $d, $a;", W16, &[W32], |x| to_half(f(x[0]).into()));
    check("cvt.f32.f16 $d, $a;", W32, &[W16], |x| bits(half(x[0]) as f32));
    check("cvt.rn.f16.f64 $d, $a;", W16, &[W64], |x| to_half(d(x[0])));
    check("cvt.rn.f16x2.f32 $d, $a, $b;", W32, &[W32; 2], |x| {
        to_half(f(x[0]).into()) << 16 | to_half(f(x[1]).into())
    });
    check("cvt.rn.f16.s32 $d, $a;", W16, &[W32], |x| to_half((x[0] as i32).into()));
    check("cvt.rzi.s32.f16 $d, $a;", W32, &[W16], |x| half(x[0]) as i32 as u64);
}

/// The `.bf16` nearest to a number.
pub(crate) fn to_brain(value: f64) -> u64 {
    if value.is_nan() {
        return 0x7fff;
    }
    let sign = if value.is_sign_negative() { 0x8000u64 } else { 0 };
    let value = value.abs();
    let brain = |raw: u64| f64::from(f32::from_bits((raw as u32) << 16));
    let (mut low, mut high) = (0u64, 0x7f80u64);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if brain(middle) <= value { low = middle } else { high = middle }
    }
    let above = if low == 0x7f7f { 2f64.powi(128) } else { brain(low + 1) };
    let (below, over) = (value - brain(low), above - value);
    let up = over < below || (over == below && low & 1 == 1) || value == f64::INFINITY;
    sign | if up { low + 1 } else { low }
}

#[test]
fn brain_floats() {
    let b = |raw: u64| f64::from(f32::from_bits((raw as u32) << 16));
    check("add.rn.bf16 $d, $a, $b;", W16, &[W16; 2], |x| to_brain((b(x[0]) as f32 + b(x[1]) as f32).into()));
    check("mul.rn.bf16 $d, $a, $b;", W16, &[W16; 2], |x| to_brain(b(x[0]) * b(x[1])));
    check("cvt.rn.bf16.f32 $d, $a;", W16, &[W32], |x| to_brain(f(x[0]).into()));
    check("cvt.f32.bf16 $d, $a;", W32, &[W16], |x| bits(b(x[0]) as f32));
    check("cvt.rn.bf16x2.f32 $d, $a, $b;", W32, &[W32; 2], |x| {
        to_brain(f(x[0]).into()) << 16 | to_brain(f(x[1]).into())
    });
    check("cvt.rn.relu.bf16x2.f32 $d, $a, $b;", W32, &[W32; 2], |x| {
        let relu =
            |value: f32| if value.is_sign_negative() && !value.is_nan() { 0 } else { to_brain(value.into()) };
        relu(f(x[0])) << 16 | relu(f(x[1]))
    });
    check("cvt.rz.bf16.f32 $d, $a;", W16, &[W32], |x| if f(x[0]).is_nan() { 0x7fff } else { x[0] >> 16 });
}

#[test]
fn integers_and_floats_convert() {
    let int = |value: f64, low: f64, high: f64| {
        if value.is_nan() { 0 } else { value.clamp(low, high) as i128 as u64 }
    };
    for (mode, round) in [
        ("rzi", f64::trunc as fn(f64) -> f64),
        ("rmi", f64::floor),
        ("rpi", f64::ceil),
        ("rni", f64::round_ties_even),
    ] {
        let single = |raw: u64| round(f(raw).into());
        let double = |raw: u64| round(d(raw));
        check(&format!("cvt.{mode}.s32.f32 $d, $a;"), W32, &[W32], |x| {
            int(single(x[0]), -2147483648.0, 2147483647.0)
        });
        check(&format!("cvt.{mode}.u32.f32 $d, $a;"), W32, &[W32], |x| int(single(x[0]), 0.0, 4294967295.0));
        check(&format!("cvt.{mode}.s16.f32 $d, $a;"), W16, &[W32], |x| int(single(x[0]), -32768.0, 32767.0));
        check(&format!("cvt.{mode}.u8.f32 $d, $a;"), W16, &[W32], |x| int(single(x[0]), 0.0, 255.0));
        check(&format!("cvt.{mode}.s64.f64 $d, $a;"), W64, &[W64], |x| {
            if d(x[0]).is_nan() { 1 << 63 } else { double(x[0]) as i64 as u64 }
        });
        check(&format!("cvt.{mode}.u64.f64 $d, $a;"), W64, &[W64], |x| {
            if d(x[0]).is_nan() { 1 << 63 } else { double(x[0]) as u64 }
        });
        check(&format!("cvt.{mode}.u64.f32 $d, $a;"), W64, &[W32], |x| {
            if f(x[0]).is_nan() { 1 << 63 } else { single(x[0]) as u64 }
        });
        check(&format!("cvt.{mode}.s32.f64 $d, $a;"), W32, &[W64], |x| {
            if d(x[0]).is_nan() { 1 << 31 } else { int(double(x[0]), -2147483648.0, 2147483647.0) }
        });
        check(&format!("cvt.{mode}.f32.f32 $d, $a;"), W32, &[W32], |x| bits(single(x[0]) as f32));
        check64(&format!("cvt.{mode}.f64.f64 $d, $a;"), &[W64], |x| double(x[0]));
    }
    check("cvt.rzi.ftz.s32.f32 $d, $a;", W32, &[W32], |x| {
        int(flush(f(x[0])).trunc().into(), -2147483648.0, 2147483647.0)
    });
    check("cvt.rpi.ftz.s32.f32 $d, $a;", W32, &[W32], |x| {
        int(flush(f(x[0])).ceil().into(), -2147483648.0, 2147483647.0)
    });
    check("cvt.rn.f32.s32 $d, $a;", W32, &[W32], |x| bits(x[0] as i32 as f32));
    check("cvt.rn.f32.u32 $d, $a;", W32, &[W32], |x| bits(x[0] as f32));
    check("cvt.rn.f32.s64 $d, $a;", W32, &[W64], |x| bits(x[0] as i64 as f32));
    check("cvt.rn.f32.u64 $d, $a;", W32, &[W64], |x| bits(x[0] as f32));
    check("cvt.rn.f32.u8 $d, $a;", W32, &[W16], |x| bits(x[0] as u8 as f32));
    check("cvt.rz.f32.u32 $d, $a;", W32, &[W32], |x| bits(directed(x[0] as f64, 0.0, false)));
    check("cvt.rp.f32.s32 $d, $a;", W32, &[W32], |x| bits(directed(x[0] as i32 as f64, 0.0, true)));
    check64("cvt.rn.f64.s32 $d, $a;", &[W32], |x| x[0] as i32 as f64);
    check64("cvt.rn.f64.u64 $d, $a;", &[W64], |x| x[0] as f64);
    check64("cvt.rn.f64.s64 $d, $a;", &[W64], |x| x[0] as i64 as f64);
    check("cvt.rn.f32.f64 $d, $a;", W32, &[W64], |x| bits(d(x[0]) as f32));
    check("cvt.rz.f32.f64 $d, $a;", W32, &[W64], |x| bits(directed(d(x[0]), 0.0, d(x[0]) < 0.0)));
    check("cvt.rm.ftz.f32.f64 $d, $a;", W32, &[W64], |x| bits(flush(directed(d(x[0]), 0.0, false))));
    check("cvt.sat.f32.f32 $d, $a;", W32, &[W32], |x| if f(x[0]) > 0.0 { bits(f(x[0]).min(1.0)) } else { 0 });
    check64("cvt.f64.f32 $d, $a;", &[W32], |x| f(x[0]).into());
    check("cvt.rna.tf32.f32 $d, $a;", W32, &[W32], |x| tf32(x[0]));
}

/// `.tf32` nearest to an `.f32`, ties away from zero.
fn tf32(raw: u64) -> u64 {
    match f(raw) {
        value if value.is_nan() => 0x7fff_e000,
        value if value.is_infinite() => raw,
        _ => (raw + 0x1000) & 0xffff_e000,
    }
}

#[test]
fn division_by_huge_numbers() {
    // A divisor beyond 2^126 gives zero, or NaN for an infinite dividend.
    check("div.approx.f32 $d, $a, 0f7F000000;", W32, &[W32], |x| {
        if f(x[0]).is_finite() { x[0] & 0x8000_0000 } else { NAN }
    });
}
