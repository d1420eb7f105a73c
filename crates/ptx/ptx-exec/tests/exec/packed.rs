//! Pairs of floating-point numbers, sources of two widths, and formats of eight bits.

use crate::floats::{NAN, bits, directed, exact_sum, f, flush, half, to_brain, to_half};
use crate::instruction::Width::{W16, W32, W64};
use crate::instruction::check;

fn brain(raw: u64) -> f64 {
    f64::from(f32::from_bits((raw as u32 & 0xffff) << 16))
}

/// `of` applied to both halves of longs.
fn pair(x: &[u64], of: impl Fn(&[u64]) -> u64) -> u64 {
    let at = |shift: u32| {
        let halves: Vec<u64> = x.iter().map(|value| value >> shift & 0xffff_ffff).collect();
        of(&halves) << shift
    };
    at(0) | at(32)
}

#[test]
fn pairs_of_singles() {
    check("add.f32x2 $d, $a, $b;", W64, &[W64; 2], |x| pair(x, |x| bits(f(x[0]) + f(x[1]))));
    check("sub.rn.ftz.f32x2 $d, $a, $b;", W64, &[W64; 2], |x| {
        pair(x, |x| bits(flush(flush(f(x[0])) - flush(f(x[1])))))
    });
    check("mul.rz.f32x2 $d, $a, $b;", W64, &[W64; 2], |x| {
        pair(x, |x| {
            let product = f64::from(f(x[0])) * f64::from(f(x[1]));
            bits(directed(product, 0.0, product < 0.0))
        })
    });
    check("fma.rn.f32x2 $d, $a, $b, $c;", W64, &[W64; 3], |x| {
        pair(x, |x| bits(f(x[0]).mul_add(f(x[1]), f(x[2]))))
    });
}

#[test]
fn sources_of_two_widths() {
    let sat = |value: f32| if value.is_nan() { 0 } else { bits(value.clamp(0.0, 1.0) + 0.0) };
    check("add.f32.f16 $d, $a, $b;", W32, &[W16, W32], |x| bits(half(x[0]) as f32 + f(x[1])));
    check("sub.rn.sat.f32.bf16 $d, $a, $b;", W32, &[W16, W32], |x| sat(brain(x[0]) as f32 - f(x[1])));
    check("fma.rn.f32.f16 $d, $a, $b, $c;", W32, &[W16, W16, W32], |x| {
        bits((half(x[0]) as f32).mul_add(half(x[1]) as f32, f(x[2])))
    });
    check("fma.rp.f32.bf16 $d, $a, $b, $c;", W32, &[W16, W16, W32], |x| {
        let (product, c) = (brain(x[0]) * brain(x[1]), f64::from(f(x[2])));
        if product == -c && (c != 0.0 || product.is_sign_positive() != c.is_sign_positive()) {
            return 0;
        }
        let (sum, rest) = exact_sum(product, c);
        bits(directed(sum, rest, true))
    });
}

#[test]
fn extremes_of_three() {
    let least = |x: &[f32]| {
        x.iter().fold(f32::NAN, |least, &value| {
            let smaller = value < least || (value == least && value.is_sign_negative());
            if least.is_nan() || smaller { value } else { least }
        })
    };
    let most = |x: &[f32]| -least(&x.iter().map(|value| -value).collect::<Vec<_>>());
    let all = |x: &[u64]| x.iter().map(|&raw| f(raw)).collect::<Vec<_>>();
    let sizes = |x: &[u64]| x.iter().map(|&raw| f(raw).abs()).collect::<Vec<_>>();
    let any_nan = |x: &[u64]| x.iter().any(|&raw| f(raw).is_nan());
    check("min.f32 $d, $a, $b, $c;", W32, &[W32; 3], |x| bits(least(&all(x))));
    check("max.f32 $d, $a, $b, $c;", W32, &[W32; 3], |x| bits(most(&all(x))));
    check("max.abs.f32 $d, $a, $b, $c;", W32, &[W32; 3], |x| bits(most(&sizes(x))));
    check(
        "min.NaN.f32 $d, $a, $b, $c;",
        W32,
        &[W32; 3],
        |x| {
            if any_nan(x) { NAN } else { bits(least(&all(x))) }
        },
    );
    check("min.ftz.NaN.abs.f32 $d, $a, $b, $c;", W32, &[W32; 3], |x| {
        if any_nan(x) { NAN } else { bits(flush(least(&sizes(x)))) }
    });
}

/// `a * b + c` of halves: exact in units of 2^-48, then near enough for one rounding to be right.
fn fused_half(a: u64, b: u64, c: u64) -> f64 {
    let [x, y, z] = [a, b, c].map(|raw| half(raw & 0xffff));
    if !(x * y).is_finite() || !z.is_finite() {
        return x * y + z;
    }
    let product = (x * 2f64.powi(24)) as i128 * (y * 2f64.powi(24)) as i128;
    let sum = product + ((z * 2f64.powi(24)) as i128) * (1 << 24);
    if sum == 0 {
        return x * y + z;
    }
    // Bits below the 50 highest are gathered in the last one.
    let shift = (128 - sum.unsigned_abs().leading_zeros() as i32 - 50).max(0);
    let kept = (sum.abs() >> shift) | i128::from(sum.abs() & ((1 << shift) - 1) != 0);
    (kept as f64 * 2f64.powi(shift - 48)).copysign(sum as f64)
}

#[test]
fn halves_are_fused_and_clamped() {
    let relu = |raw: u64| if raw & 0x8000 != 0 && raw & 0x7fff <= 0x7c00 { 0 } else { raw };
    let sat = |raw: u64| if half(raw).is_nan() || raw & 0x8000 != 0 { 0 } else { raw.min(0x3c00) };
    let ftz = |raw: u64| if raw & 0x7c00 == 0 { raw & 0x8000 } else { raw & 0xffff };
    check("fma.rn.f16 $d, $a, $b, $c;", W16, &[W16; 3], |x| to_half(fused_half(x[0], x[1], x[2])));
    check("fma.rn.relu.f16x2 $d, $a, $b, $c;", W32, &[W32; 3], |x| {
        let at = |shift: u32| relu(to_half(fused_half(x[0] >> shift, x[1] >> shift, x[2] >> shift)));
        at(0) | at(16) << 16
    });
    check("fma.rn.ftz.sat.f16 $d, $a, $b, $c;", W16, &[W16; 3], |x| {
        sat(ftz(to_half(fused_half(ftz(x[0]), ftz(x[1]), ftz(x[2])))))
    });
    check("sub.ftz.f16x2 $d, $a, $b;", W32, &[W32; 2], |x| {
        let at = |shift: u32| {
            let [a, b] = [x[0], x[1]].map(|raw| half(ftz(raw >> shift)));
            ftz(to_half(a - b))
        };
        at(0) | at(16) << 16
    });
    check("min.xorsign.abs.bf16 $d, $a, $b;", W16, &[W16; 2], |x| {
        let magnitude = match [x[0] & 0x7fff, x[1] & 0x7fff] {
            [a, b] if a > 0x7f80 && b > 0x7f80 => return 0x7fff,
            [a, b] if a > 0x7f80 => b,
            [a, b] if b > 0x7f80 => a,
            [a, b] => a.min(b),
        };
        magnitude | (x[0] ^ x[1]) & 0x8000
    });
    check("max.ftz.NaN.xorsign.abs.f16 $d, $a, $b;", W16, &[W16; 2], |x| {
        let [a, b] = [ftz(x[0]) & 0x7fff, ftz(x[1]) & 0x7fff];
        if a > 0x7c00 || b > 0x7c00 { 0x7fff } else { a.max(b) | (x[0] ^ x[1]) & 0x8000 }
    });
    check("set.lt.bf16.f32 $d, $a, $b;", W16, &[W32; 2], |x| if f(x[0]) < f(x[1]) { 0x3f80 } else { 0 });
    check("set.geu.u32.f16x2 $d, $a, $b;", W32, &[W32; 2], |x| {
        let at = |shift: u32| {
            let less = half(x[0] >> shift & 0xffff) < half(x[1] >> shift & 0xffff);
            if less { 0 } else { 0xffff }
        };
        at(0) | at(16) << 16
    });
}

/// A format of eight bits: bits of its fraction, its bias, and the largest magnitude that is a
/// number.
struct Small {
    fraction: u32,
    bias: i32,
    largest: u64,
}

const E4M3: Small = Small { fraction: 3, bias: 7, largest: 0x7e };
const E5M2: Small = Small { fraction: 2, bias: 15, largest: 0x7b };

impl Small {
    fn value(&self, raw: u64) -> f64 {
        let (exponent, fraction) = ((raw & 0x7f) >> self.fraction, raw & ((1 << self.fraction) - 1));
        let scale = |power: i32| 2f64.powi(power - self.bias - self.fraction as i32);
        let magnitude = match exponent {
            _ if raw & 0x7f > self.largest && (self.fraction == 3 || fraction != 0) => f64::NAN,
            _ if raw & 0x7f > self.largest => f64::INFINITY,
            0 => fraction as f64 * scale(1),
            _ => (fraction + (1 << self.fraction)) as f64 * scale(exponent as i32),
        };
        if raw & 0x80 != 0 { -magnitude } else { magnitude }
    }

    /// The number nearest to `value`, never beyond the largest one; of two the even one.
    fn nearest(&self, value: f64) -> u64 {
        if value.is_nan() {
            return 0x7f;
        }
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        let size = value.abs().min(self.value(self.largest));
        let distance = |raw: &u64| (self.value(*raw) - size).abs();
        let best = (0..=self.largest).reduce(|best, raw| match distance(&raw).total_cmp(&distance(&best)) {
            std::cmp::Ordering::Less => raw,
            std::cmp::Ordering::Equal if raw & 1 == 0 => raw,
            _ => best,
        });
        sign | best.unwrap_or(0)
    }
}

#[test]
fn formats_of_eight_bits() {
    let relu =
        |value: f64| if value < 0.0 || value.is_sign_negative() && !value.is_nan() { 0.0 } else { value };
    for (name, small) in [("e4m3", E4M3), ("e5m2", E5M2)] {
        check(&format!("cvt.rn.satfinite.{name}x2.f32 $d, $a, $b;"), W16, &[W32; 2], |x| {
            small.nearest(f(x[0]).into()) << 8 | small.nearest(f(x[1]).into())
        });
        check(&format!("cvt.rn.satfinite.relu.{name}x2.f32 $d, $a, $b;"), W16, &[W32; 2], |x| {
            small.nearest(relu(f(x[0]).into())) << 8 | small.nearest(relu(f(x[1]).into()))
        });
        check(&format!("cvt.rn.satfinite.{name}x2.f16x2 $d, $a;"), W16, &[W32], |x| {
            small.nearest(half(x[0] >> 16)) << 8 | small.nearest(half(x[0] & 0xffff))
        });
        check(&format!("cvt.rn.f16x2.{name}x2 $d, $a;"), W32, &[W16], |x| {
            to_half(small.value(x[0] >> 8)) << 16 | to_half(small.value(x[0] & 0xff))
        });
        check(&format!("cvt.rn.relu.f16x2.{name}x2 $d, $a;"), W32, &[W16], |x| {
            to_half(relu(small.value(x[0] >> 8))) << 16 | to_half(relu(small.value(x[0] & 0xff)))
        });
    }
}

#[test]
fn conversions_stay_finite() {
    let finite = |raw: u64, infinity: u64| if raw & 0x7fff == infinity { raw - 1 } else { raw };
    check("cvt.rn.satfinite.f16.f32 $d, $a;", W16, &[W32], |x| finite(to_half(f(x[0]).into()), 0x7c00));
    check("cvt.rn.satfinite.bf16x2.f32 $d, $a, $b;", W32, &[W32; 2], |x| {
        let one = |raw: u64| finite(to_brain(f(raw).into()), 0x7f80);
        one(x[0]) << 16 | one(x[1])
    });
    check("cvt.rz.relu.satfinite.f16x2.f32 $d, $a, $b;", W32, &[W32; 2], |x| {
        let one = |raw: u64| match f(raw) {
            value if value.is_nan() => 0x7fff,
            value if value.is_sign_negative() => 0,
            value => {
                let nearest = finite(to_half(value.into()), 0x7c00);
                if half(nearest) > value.into() { nearest - 1 } else { nearest }
            }
        };
        one(x[0]) << 16 | one(x[1])
    });
    check("cvt.rn.satfinite.tf32.f32 $d, $a;", W32, &[W32], |x| match f(x[0]) {
        value if value.is_nan() => 0x7fff_e000,
        value if value.is_infinite() => x[0] & 0x8000_0000 | 0x7f7f_e000,
        _ => {
            let rounded = (x[0] + 0xfff + (x[0] >> 13 & 1)) & 0xffff_e000;
            if rounded & 0x7fff_ffff == 0x7f80_0000 { rounded - 0x2000 } else { rounded }
        }
    });
    check("cvt.rz.relu.tf32.f32 $d, $a;", W32, &[W32], |x| match f(x[0]) {
        value if value.is_nan() => 0x7fff_e000,
        value if value.is_sign_negative() => 0,
        _ => x[0] & 0xffff_e000,
    });
}

#[test]
fn integers_are_packed() {
    for (name, bits, signed) in [
        ("u16", 16, false),
        ("s16", 16, true),
        ("u8", 8, false),
        ("s8", 8, true),
        ("u4", 4, false),
        ("s4", 4, true),
        ("u2", 2, false),
        ("s2", 2, true),
    ] {
        let (low, high) =
            if signed { (-(1i64 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
        let narrow = move |raw: u64| (raw as i32 as i64).max(low).min(high) as u64 & ((1 << bits) - 1);
        if bits == 16 {
            check(&format!("cvt.pack.sat.{name}.s32 $d, $a, $b;"), W32, &[W32; 2], |x| {
                narrow(x[0]) << 16 | narrow(x[1])
            });
        } else {
            check(&format!("cvt.pack.sat.{name}.s32.b32 $d, $a, $b, $c;"), W32, &[W32; 3], |x| {
                narrow(x[0]) << bits | narrow(x[1]) | x[2] << (2 * bits)
            });
        }
    }
}
