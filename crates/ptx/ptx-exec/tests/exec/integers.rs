//! Integer instructions against references on wide integers.

use crate::instruction::Width::{Predicate, W16, W32, W64};
use crate::instruction::{Width, check};

/// The types that most instructions take: name, width, signed.
const TYPES: [(&str, Width, bool); 6] = [
    ("u16", W16, false),
    ("s16", W16, true),
    ("u32", W32, false),
    ("s32", W32, true),
    ("u64", W64, false),
    ("s64", W64, true),
];

fn bits(width: Width) -> u32 {
    match width {
        W16 => 16,
        W32 | Predicate => 32,
        W64 => 64,
    }
}

/// A register's value as its type means it.
fn value(raw: u64, width: Width, signed: bool) -> i128 {
    let shift = 64 - bits(width);
    if signed { ((raw << shift) as i64 >> shift).into() } else { raw.into() }
}

#[test]
fn products_without_carries() {
    let product = |a: u64, b: u64| {
        (0..64).fold(0u128, |sum, bit| if a >> bit & 1 != 0 { sum ^ (u128::from(b) << bit) } else { sum })
    };
    for ty in ["u64", "s64"] {
        let three = [W64; 3];
        check(&format!("clmad.lo.{ty} $d, $a, $b, $c;"), W64, &three, |x| product(x[0], x[1]) as u64 ^ x[2]);
        check(&format!("clmad.hi.{ty} $d, $a, $b, $c;"), W64, &three, |x| {
            (product(x[0], x[1]) >> 64) as u64 ^ x[2]
        });
    }
}

#[test]
fn arithmetic_wraps() {
    for (name, width, signed) in TYPES {
        let v = |raw| value(raw, width, signed);
        let two = [width; 2];
        let three = [width; 3];
        check(&format!("add.{name} $d, $a, $b;"), width, &two, |x| (v(x[0]) + v(x[1])) as u64);
        check(&format!("sub.{name} $d, $a, $b;"), width, &two, |x| (v(x[0]) - v(x[1])) as u64);
        check(&format!("mul.lo.{name} $d, $a, $b;"), width, &two, |x| v(x[0]).wrapping_mul(v(x[1])) as u64);
        check(&format!("mad.lo.{name} $d, $a, $b, $c;"), width, &three, |x| {
            v(x[0]).wrapping_mul(v(x[1])).wrapping_add(v(x[2])) as u64
        });
        check(&format!("mul.hi.{name} $d, $a, $b;"), width, &two, |x| high(x[0], x[1], width, signed));
        check(&format!("mad.hi.{name} $d, $a, $b, $c;"), width, &three, |x| {
            high(x[0], x[1], width, signed).wrapping_add(x[2])
        });
        check(&format!("min.{name} $d, $a, $b;"), width, &two, |x| v(x[0]).min(v(x[1])) as u64);
        check(&format!("max.{name} $d, $a, $b;"), width, &two, |x| v(x[0]).max(v(x[1])) as u64);
        check(&format!("sad.{name} $d, $a, $b, $c;"), width, &three, |x| {
            ((v(x[0]) - v(x[1])).abs() + v(x[2])) as u64
        });
        check(&format!("div.{name} $d, $a, $b;"), width, &two, |x| {
            if v(x[1]) == 0 { u64::MAX } else { (v(x[0]) / v(x[1])) as u64 }
        });
        check(&format!("rem.{name} $d, $a, $b;"), width, &two, |x| {
            if v(x[1]) == 0 { u64::MAX } else { (v(x[0]) % v(x[1])) as u64 }
        });
        if signed {
            check(&format!("abs.{name} $d, $a;"), width, &[width], |x| v(x[0]).abs() as u64);
            check(&format!("neg.{name} $d, $a;"), width, &[width], |x| (-v(x[0])) as u64);
        }
    }
}

/// The upper half of a product.
fn high(a: u64, b: u64, width: Width, signed: bool) -> u64 {
    let (a, b) = (value(a, width, signed), value(b, width, signed));
    if width == W64 && !signed {
        return ((a as u128 * b as u128) >> 64) as u64;
    }
    ((a * b) >> bits(width)) as u64
}

#[test]
fn wide_products_keep_all_bits() {
    for (name, width, signed) in &TYPES[..4] {
        let v = |raw| value(raw, *width, *signed);
        let wide = if *width == W16 { W32 } else { W64 };
        check(&format!("mul.wide.{name} $d, $a, $b;"), wide, &[*width; 2], |x| (v(x[0]) * v(x[1])) as u64);
        check(&format!("mad.wide.{name} $d, $a, $b, $c;"), wide, &[*width, *width, wide], |x| {
            ((v(x[0]) * v(x[1])) as u64).wrapping_add(x[2])
        });
    }
}

#[test]
fn saturation_stops_at_the_ends() {
    let clamp = |v: i128| v.clamp(i32::MIN.into(), i32::MAX.into()) as u64;
    let v = |raw| value(raw, W32, true);
    check("add.sat.s32 $d, $a, $b;", W32, &[W32; 2], |x| clamp(v(x[0]) + v(x[1])));
    check("sub.sat.s32 $d, $a, $b;", W32, &[W32; 2], |x| clamp(v(x[0]) - v(x[1])));
    check("mad.hi.sat.s32 $d, $a, $b, $c;", W32, &[W32; 3], |x| clamp(((v(x[0]) * v(x[1])) >> 32) + v(x[2])));
}

#[test]
fn pairs_of_16_bits() {
    let by_halves = |x: &[u64], f: fn(i64, i64) -> i64, extend: fn(u64) -> i64| {
        let at = |shift: u32| f(extend(x[0] >> shift), extend(x[1] >> shift)) as u64 & 0xffff;
        at(0) | at(16) << 16
    };
    let (signed, unsigned): (fn(u64) -> i64, fn(u64) -> i64) =
        (|raw| raw as i16 as i64, |raw| raw as u16 as i64);
    for (ty, extend) in [("s16x2", signed), ("u16x2", unsigned)] {
        check(&format!("add.{ty} $d, $a, $b;"), W32, &[W32; 2], |x| by_halves(x, |a, b| a + b, extend));
        check(&format!("min.{ty} $d, $a, $b;"), W32, &[W32; 2], |x| by_halves(x, i64::min, extend));
        check(&format!("max.{ty} $d, $a, $b;"), W32, &[W32; 2], |x| by_halves(x, i64::max, extend));
    }
    check("min.relu.s16x2 $d, $a, $b;", W32, &[W32; 2], |x| by_halves(x, |a, b| a.min(b).max(0), signed));
    check("max.s16x2.relu $d, $a, $b;", W32, &[W32; 2], |x| by_halves(x, |a, b| a.max(b).max(0), signed));
    check("min.relu.s32 $d, $a, $b;", W32, &[W32; 2], |x| (x[0] as i32).min(x[1] as i32).max(0) as u64);
}

#[test]
fn products_of_24_bits() {
    let low = |raw: u64| i128::from(raw & 0xff_ffff);
    let signed = |raw: u64| i128::from((raw as i32) << 8 >> 8);
    check("mul24.lo.u32 $d, $a, $b;", W32, &[W32; 2], |x| (low(x[0]) * low(x[1])) as u64);
    check("mul24.hi.u32 $d, $a, $b;", W32, &[W32; 2], |x| ((low(x[0]) * low(x[1])) >> 16) as u64);
    check("mul24.lo.s32 $d, $a, $b;", W32, &[W32; 2], |x| (signed(x[0]) * signed(x[1])) as u64);
    check("mul24.hi.s32 $d, $a, $b;", W32, &[W32; 2], |x| ((signed(x[0]) * signed(x[1])) >> 16) as u64);
    check("mad24.lo.s32 $d, $a, $b, $c;", W32, &[W32; 3], |x| {
        ((signed(x[0]) * signed(x[1])) as u64).wrapping_add(x[2])
    });
    check("mad24.hi.u32 $d, $a, $b, $c;", W32, &[W32; 3], |x| {
        (((low(x[0]) * low(x[1])) >> 16) as u64).wrapping_add(x[2])
    });
    // Sums beyond the ends are rare with a random addend, so both ends are addends too.
    for addend in ["$c", "0x7fffffff", "0x80000000"] {
        check(&format!("mad24.hi.sat.s32 $d, $a, $b, {addend};"), W32, &[W32; 3], |x| {
            let addend = addend.strip_prefix("0x").map_or(x[2], |hex| u64::from_str_radix(hex, 16).unwrap());
            let sum = ((signed(x[0]) * signed(x[1])) >> 16) + value(addend, W32, true);
            sum.clamp(i32::MIN.into(), i32::MAX.into()) as u64
        });
    }
}

#[test]
fn carries_chain() {
    let join = |low: u64, high: u64| u128::from(low) | u128::from(high) << 32;
    let text = "{ .reg .u32 l, h; add.cc.u32 l, $a, $b; addc.u32 h, $c, $e; mov.b64 $d, {l, h}; }";
    check(text, W64, &[W32; 4], |x| (join(x[0], x[2]) + join(x[1], x[3])) as u64);
    let text = "{ .reg .u32 l, h; sub.cc.u32 l, $a, $b; subc.u32 h, $c, $e; mov.b64 $d, {l, h}; }";
    check(text, W64, &[W32; 4], |x| join(x[0], x[2]).wrapping_sub(join(x[1], x[3])) as u64);
    // The carry of a carry: 96 bits, of which the upper word is kept.
    let text = "{ .reg .u32 l, h; add.cc.u32 l, $a, $b; addc.cc.u32 h, $c, $e; addc.u32 $d, 0, 0; }";
    check(text, W32, &[W32; 4], |x| ((join(x[0], x[2]) + join(x[1], x[3])) >> 64) as u64);
    let text =
        "{ .reg .u32 l, h; mad.lo.cc.u32 l, $a, $b, $c; madc.hi.u32 h, $a, $b, $e; mov.b64 $d, {l, h}; }";
    check(text, W64, &[W32; 4], |x| (u128::from(x[0]) * u128::from(x[1]) + join(x[2], x[3])) as u64);
    check("{ .reg .u64 l; add.cc.u64 l, $a, $b; addc.u64 $d, $c, 0; }", W64, &[W64; 3], |x| {
        (((u128::from(x[0]) + u128::from(x[1])) >> 64) as u64).wrapping_add(x[2])
    });
}

/// A sum of all ones carries exactly where a carry comes in, and a difference of zero borrows
/// exactly where a borrow does.
#[test]
fn a_carry_passes_through_all_ones() {
    for (width, bits) in [(W32, 32), (W64, 64)] {
        for sign in ["u", "s"] {
            let ty = format!("{sign}{bits}");
            // The carry that comes in is that of c + e; `$d` is the carry that goes out, 0 or 1.
            let passes = |complement: &str, sum: &str| {
                let text = format!(
                    "{{ .reg .b{bits} p, n, t; {complement} add.cc.{ty} t, $c, $e; {sum} addc.{ty} $d, 0, 0; }}"
                );
                check(&text, width, &[width; 4], |x| carry(x[2], x[3], bits));
            };
            passes(&format!("not.b{bits} n, $a;"), &format!("addc.cc.{ty} t, $a, n;"));
            for half in ["lo", "hi"] {
                passes(
                    &format!("mul.{half}.{ty} p, $a, $b; not.b{bits} n, p;"),
                    &format!("madc.{half}.cc.{ty} t, $a, $b, n;"),
                );
            }
            // What the sum itself is: all ones, or 0 with a carry.
            let text = format!(
                "{{ .reg .b{bits} n, t; not.b{bits} n, $a; add.cc.{ty} t, $c, $e; addc.{ty} $d, $a, n; }}"
            );
            check(&text, width, &[width; 4], |x| carry(x[2], x[3], bits).wrapping_sub(1));
            // A borrow passes through a difference of zero, and leaves all ones behind it.
            let text = format!(
                "{{ .reg .b{bits} t; sub.cc.{ty} t, $a, $b; subc.cc.{ty} t, $c, $c; subc.{ty} $d, 0, 0; }}"
            );
            check(&text, width, &[width; 3], |x| u64::from(x[0] < x[1]).wrapping_neg());
            // The carry after a difference is the complement of its borrow.
            let text = format!(
                "{{ .reg .b{bits} t; sub.cc.{ty} t, $a, $b; subc.cc.{ty} t, $c, $c; addc.{ty} $d, 0, 0; }}"
            );
            check(&text, width, &[width; 3], |x| u64::from(x[0] >= x[1]));
        }
    }
}

/// The carry of a sum.
fn carry(a: u64, b: u64, bits: u32) -> u64 {
    ((u128::from(a) + u128::from(b)) >> bits) as u64
}

#[test]
fn upper_halves_take_and_give_carries() {
    for (name, width, signed) in &TYPES[2..] {
        let bits = bits(*width);
        let sum = |x: &[u64]| {
            let carry_in = u128::from(carry(x[3], x[3], bits));
            u128::from(low_bits(high(x[0], x[1], *width, *signed), bits)) + u128::from(x[2]) + carry_in
        };
        let before = format!("{{ .reg .b{bits} t; add.cc.{name} t, $e, $e;");
        check(&format!("{before} madc.hi.{name} $d, $a, $b, $c; }}"), *width, &[*width; 4], |x| {
            sum(x) as u64
        });
        let carried = format!("{before} madc.hi.cc.{name} t, $a, $b, $c; addc.{name} $d, 0, 0; }}");
        check(&carried, *width, &[*width; 4], |x| (sum(x) >> bits) as u64);
    }
}

/// The low bits of a number.
fn low_bits(value: u64, bits: u32) -> u64 {
    value & u64::MAX >> (64 - bits)
}

#[test]
fn logic_and_shifts() {
    for (width, name) in [(W16, 16), (W32, 32), (W64, 64)] {
        check(&format!("and.b{name} $d, $a, $b;"), width, &[width; 2], |x| x[0] & x[1]);
        check(&format!("or.b{name} $d, $a, $b;"), width, &[width; 2], |x| x[0] | x[1]);
        check(&format!("xor.b{name} $d, $a, $b;"), width, &[width; 2], |x| x[0] ^ x[1]);
        check(&format!("not.b{name} $d, $a;"), width, &[width], |x| !x[0]);
        check(&format!("cnot.b{name} $d, $a;"), width, &[width], |x| u64::from(x[0] == 0));
        check(&format!("shl.b{name} $d, $a, $b;"), width, &[width, W32], |x| {
            if x[1] >= name { 0 } else { x[0] << x[1] }
        });
        check(&format!("shr.u{name} $d, $a, $b;"), width, &[width, W32], |x| {
            if x[1] >= name { 0 } else { x[0] >> x[1] }
        });
        check(&format!("shr.s{name} $d, $a, $b;"), width, &[width, W32], |x| {
            (value(x[0], width, true) >> x[1].min(100)) as u64
        });
    }
    check("and.pred $d, $a, $b;", Predicate, &[Predicate; 2], |x| x[0] & x[1]);
    check("xor.pred $d, $a, $b;", Predicate, &[Predicate; 2], |x| x[0] ^ x[1]);
    check("not.pred $d, $a;", Predicate, &[Predicate], |x| !x[0]);
    for (mode, left) in [("l", true), ("r", false)] {
        for (limit, clamp) in [("clamp", true), ("wrap", false)] {
            check(&format!("shf.{mode}.{limit}.b32 $d, $a, $b, $c;"), W32, &[W32; 3], |x| {
                let both = u128::from(x[0]) | u128::from(x[1]) << 32;
                let count = if clamp { x[2].min(32) } else { x[2] % 32 };
                (if left { both << count >> 32 } else { both >> count }) as u64
            });
        }
    }
    for table in [0x96u32, 0x1a, 0xca, 0x00, 0xff, 0x80, 0x01] {
        check(&format!("lop3.b32 $d, $a, $b, $c, {table};"), W32, &[W32; 3], |x| {
            (0..32).fold(0, |result, bit| {
                let index = (x[0] >> bit & 1) << 2 | (x[1] >> bit & 1) << 1 | (x[2] >> bit & 1);
                result | u64::from(table >> index & 1) << bit
            })
        });
    }
}

#[test]
fn single_bits_and_fields() {
    check("popc.b32 $d, $a;", W32, &[W32], |x| x[0].count_ones().into());
    check("popc.b64 $d, $a;", W32, &[W64], |x| x[0].count_ones().into());
    check("clz.b32 $d, $a;", W32, &[W32], |x| (x[0].leading_zeros() - 32).into());
    check("clz.b64 $d, $a;", W32, &[W64], |x| x[0].leading_zeros().into());
    check("brev.b32 $d, $a;", W32, &[W32], |x| x[0].reverse_bits() >> 32);
    check("brev.b64 $d, $a;", W64, &[W64], |x| x[0].reverse_bits());
    for (name, width, signed) in &TYPES[2..] {
        let highest = |raw: u64| {
            let v = value(raw, *width, *signed);
            let v = if v < 0 { !v } else { v };
            (0..64).rev().find(|bit| v >> bit & 1 != 0)
        };
        let size = bits(*width);
        check(&format!("bfind.{name} $d, $a;"), W32, &[*width], |x| highest(x[0]).unwrap_or(u64::MAX));
        check(&format!("bfind.shiftamt.{name} $d, $a;"), W32, &[*width], |x| {
            highest(x[0]).map_or(u64::MAX, |bit| u64::from(size) - 1 - bit)
        });
        // The ISA's own loop.
        check(&format!("bfe.{name} $d, $a, $b, $c;"), *width, &[*width, W32, W32], |x| {
            let (position, length, top) = (x[1] & 255, x[2] & 255, u64::from(size) - 1);
            let sign = if !signed || length == 0 { 0 } else { x[0] >> (position + length - 1).min(top) & 1 };
            (0..=top).fold(0, |result, bit| {
                let inside = bit < length && position + bit <= top;
                result | (if inside { x[0] >> (position + bit) & 1 } else { sign }) << bit
            })
        });
    }
    for (name, width) in [("b32", W32), ("b64", W64)] {
        check(&format!("bfi.{name} $d, $a, $b, $c, $e;"), width, &[width, width, W32, W32], |x| {
            let (position, length, top) = (x[2] & 255, x[3] & 255, u64::from(bits(width)) - 1);
            (0..length).filter(|bit| position + bit <= top).fold(x[1], |result, bit| {
                result & !(1 << (position + bit)) | (x[0] >> bit & 1) << (position + bit)
            })
        });
    }
    check("bmsk.clamp.b32 $d, $a, $b;", W32, &[W32; 2], |x| {
        (0..32u64).filter(|&bit| bit >= x[0] && bit < x[0] + x[1]).fold(0, |mask, bit| mask | 1 << bit)
    });
    check("szext.clamp.s32 $d, $a, $b;", W32, &[W32; 2], |x| match x[1].min(32) {
        0 => 0,
        width => ((x[0] << (64 - width)) as i64 >> (64 - width)) as u64,
    });
    check("fns.b32 $d, $a, $b, $c;", W32, &[W32; 3], |x| {
        let (base, offset) = (x[1] as i64, x[2] as i32);
        if base > 31 {
            return u64::MAX;
        }
        let set = |bit: &i64| x[0] >> bit & 1 != 0;
        let found = match offset {
            0 => Some(base).filter(set),
            1.. => (base..32).filter(set).nth(offset as usize - 1),
            _ => (0..=base).rev().filter(set).nth(offset.unsigned_abs() as usize - 1),
        };
        found.map_or(u64::MAX, |bit| bit as u64)
    });
}

#[test]
fn bytes_are_permuted() {
    let pick = |a: u64, b: u64, selector: u64| {
        let byte = (b << 32 | a) >> (8 * (selector & 7)) & 255;
        if selector & 8 == 0 {
            byte
        } else if byte & 128 != 0 {
            255
        } else {
            0
        }
    };
    let all = |x: &[u64], selectors: [u64; 4]| {
        selectors
            .iter()
            .enumerate()
            .fold(0, |result, (index, &selector)| result | pick(x[0], x[1], selector) << (8 * index))
    };
    check("prmt.b32 $d, $a, $b, $c;", W32, &[W32; 3], |x| {
        all(x, std::array::from_fn(|index| x[2] >> (4 * index) & 15))
    });
    // The ISA's tables, lowest byte first, for control values 0 to 3.
    let tables: [(&str, [[u64; 4]; 4]); 6] = [
        ("f4e", [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]),
        ("b4e", [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]]),
        ("rc8", [[0; 4], [1; 4], [2; 4], [3; 4]]),
        ("ecl", [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]]),
        ("ecr", [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]]),
        ("rc16", [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]]),
    ];
    for (mode, table) in tables {
        check(&format!("prmt.b32.{mode} $d, $a, $b, $c;"), W32, &[W32; 3], |x| {
            all(x, table[(x[2] & 3) as usize])
        });
    }
}

#[test]
fn dot_products() {
    let byte = |raw: u64, index: usize, signed: bool| {
        let byte = raw.to_le_bytes()[index];
        if signed { i64::from(byte as i8) } else { byte.into() }
    };
    let half = |raw: u64, index: usize, signed: bool| {
        let half = (raw >> (16 * index)) as u16;
        if signed { i64::from(half as i16) } else { half.into() }
    };
    for (a, signed_a) in [("u32", false), ("s32", true)] {
        for (b, signed_b) in [("u32", false), ("s32", true)] {
            check(&format!("dp4a.{a}.{b} $d, $a, $b, $c;"), W32, &[W32; 3], |x| {
                let sum: i64 = (0..4).map(|i| byte(x[0], i, signed_a) * byte(x[1], i, signed_b)).sum();
                (sum as u64).wrapping_add(x[2])
            });
            for (part, from) in [("lo", 0), ("hi", 2)] {
                check(&format!("dp2a.{part}.{a}.{b} $d, $a, $b, $c;"), W32, &[W32; 3], |x| {
                    let sum: i64 =
                        (0..2).map(|i| half(x[0], i, signed_a) * byte(x[1], from + i, signed_b)).sum();
                    (sum as u64).wrapping_add(x[2])
                });
            }
        }
    }
}

#[test]
fn comparisons_and_selections() {
    for (name, width, signed) in TYPES {
        let v = |raw| value(raw, width, signed);
        let relations: [(&str, fn(i128, i128) -> bool); 6] = [
            ("eq", |a, b| a == b),
            ("ne", |a, b| a != b),
            ("lt", |a, b| a < b),
            ("le", |a, b| a <= b),
            ("gt", |a, b| a > b),
            ("ge", |a, b| a >= b),
        ];
        for (relation, holds) in relations {
            check(&format!("setp.{relation}.{name} $d, $a, $b;"), Predicate, &[width; 2], |x| {
                holds(v(x[0]), v(x[1])).into()
            });
        }
        check(&format!("selp.{name} $d, $a, $b, $c;"), width, &[width, width, Predicate], |x| {
            if x[2] != 0 { x[0] } else { x[1] }
        });
        check(&format!("slct.{name}.s32 $d, $a, $b, $c;"), width, &[width, width, W32], |x| {
            if x[2] as i32 >= 0 { x[0] } else { x[1] }
        });
    }
    check("setp.lo.u32 $d, $a, $b;", Predicate, &[W32; 2], |x| (x[0] < x[1]).into());
    check("setp.hs.u64 $d, $a, $b;", Predicate, &[W64; 2], |x| (x[0] >= x[1]).into());
    check("setp.lt.and.s32 $d, $a, $b, $c;", Predicate, &[W32, W32, Predicate], |x| {
        u64::from((x[0] as i32) < x[1] as i32) & x[2]
    });
    check("setp.lt.or.s32 $d, $a, $b, !$c;", Predicate, &[W32, W32, Predicate], |x| {
        u64::from((x[0] as i32) < x[1] as i32) | (x[2] ^ 1)
    });
    check("{ .reg .pred p; setp.eq.xor.s32 p|$d, $a, $b, $c; }", Predicate, &[W32, W32, Predicate], |x| {
        u64::from(x[0] != x[1]) ^ x[2]
    });
    check(
        "{ .reg .b32 r; lop3.or.b32 r|$d, $a, $b, 0, 0xc0, $c; }",
        Predicate,
        &[W32, W32, Predicate],
        |x| u64::from(x[0] & x[1] != 0) | x[2],
    );
    check(
        "set.gt.u32.s32 $d, $a, $b;",
        W32,
        &[W32; 2],
        |x| if x[0] as i32 > x[1] as i32 { u64::MAX } else { 0 },
    );
    check("set.le.f32.u64 $d, $a, $b;", W32, &[W64; 2], |x| if x[0] <= x[1] { 0x3f80_0000 } else { 0 });
}

#[test]
fn moves_pack_and_unpack() {
    check("mov.b64 $d, {$a, $b};", W64, &[W32; 2], |x| x[0] | x[1] << 32);
    check("mov.b32 $d, {$a, $b};", W32, &[W16; 2], |x| x[0] | x[1] << 16);
    check("mov.b64 $d, {$a, $b, $c, $e};", W64, &[W16; 4], |x| x[0] | x[1] << 16 | x[2] << 32 | x[3] << 48);
    check("{ .reg .b32 x; mov.b64 {x, $d}, $a; }", W32, &[W64], |x| x[0] >> 32);
    check("{ .reg .b16 x, y, z; mov.b64 {x, y, $d, z}, $a; }", W16, &[W64], |x| x[0] >> 32);
    check("{ .reg .b16 x; mov.b32 {$d, x}, $a; }", W16, &[W32], |x| x[0]);
    check("mov.b64 {$d, _}, $a;", W32, &[W64], |x| x[0]);
    // Vectors move at once, and from vector registers, which are written whole or in part.
    check("{ mov.v2.b32 {$a, $b}, {$b, $a}; sub.u32 $d, $a, $b; }", W32, &[W32; 2], |x| {
        x[1].wrapping_sub(x[0])
    });
    check(
        "{ .reg .v2 .b32 v; mov.b32 v.x, 1; mov.v2.b32 v, {$a, $b}; add.u32 $d, v.x, v.y; }",
        W32,
        &[W32; 2],
        |x| x[0].wrapping_add(x[1]),
    );
    // A register may be unpacked into itself and its neighbour.
    check(
        "{ .reg .b64 x; mov.b64 x, {$a, $b}; mov.b64 {$a, $b}, x; xor.b32 $d, $a, $b; }",
        W32,
        &[W32; 2],
        |x| x[0] ^ x[1],
    );
}

#[test]
fn integers_convert() {
    let types: [(&str, Width, u32, bool); 8] = [
        ("u8", W16, 8, false),
        ("s8", W16, 8, true),
        ("u16", W16, 16, false),
        ("s16", W16, 16, true),
        ("u32", W32, 32, false),
        ("s32", W32, 32, true),
        ("u64", W64, 64, false),
        ("s64", W64, 64, true),
    ];
    let extend = |raw: u64, bits: u32, signed: bool| -> i128 {
        let raw = raw & u64::MAX >> (64 - bits);
        if signed { ((raw << (64 - bits)) as i64 >> (64 - bits)).into() } else { raw.into() }
    };
    for (from, from_width, from_bits, from_signed) in types {
        for (to, to_width, to_bits, to_signed) in types {
            check(&format!("cvt.{to}.{from} $d, $a;"), to_width, &[from_width], |x| {
                extend(extend(x[0], from_bits, from_signed) as u64, to_bits, to_signed) as u64
            });
            check(&format!("cvt.sat.{to}.{from} $d, $a;"), to_width, &[from_width], |x| {
                let (low, high) = if to_signed {
                    (-(1i128 << (to_bits - 1)), (1 << (to_bits - 1)) - 1)
                } else {
                    (0, (1 << to_bits) - 1)
                };
                extend(x[0], from_bits, from_signed).clamp(low, high) as u64
            });
        }
    }
    // Registers wider than the types.
    check("cvt.s32.s8 $d, $a;", W32, &[W32], |x| x[0] as i8 as u64);
    check("cvt.s16.s8 $d, $a;", W32, &[W32], |x| x[0] as i8 as u64);
    check("cvt.s64.s16 $d, $a;", W64, &[W64], |x| x[0] as i16 as u64);
    check("cvt.u16.u32 $d, $a;", W64, &[W64], |x| x[0] & 0xffff);
}
