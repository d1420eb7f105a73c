//! Video instructions against references that follow the ISA's pseudocode on lists of numbers.

use crate::instruction::Width::W32;
use crate::instruction::check;

/// The numbers in a register: `count` of them, lowest first.
fn numbers(raw: u64, count: u32, signed: bool) -> Vec<i128> {
    let width = 32 / count;
    (0..count)
        .map(|index| {
            let bits = i128::from(raw as u32 >> (index * width)) & ((1 << width) - 1);
            if signed && bits >> (width - 1) != 0 { bits - (1 << width) } else { bits }
        })
        .collect()
}

/// The part of a register that a selector such as `.h1` names.
fn part(raw: u64, selector: &str, signed: bool) -> i128 {
    let at = |index: usize, count| numbers(raw, count, signed)[index];
    match selector {
        "" => at(0, 1),
        ".h0" | ".h1" => at(usize::from(selector == ".h1"), 2),
        _ => at(selector[2..].parse().unwrap(), 4),
    }
}

fn limits(width: u32, signed: bool) -> (i128, i128) {
    if signed { (-(1 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) }
}

fn saturated(value: i128, width: u32, signed: bool) -> i128 {
    let (low, high) = limits(width, signed);
    value.max(low).min(high)
}

fn basic(name: &str, a: i128, b: i128) -> i128 {
    match name {
        "vadd" => a + b,
        "vsub" => a - b,
        "vabsdiff" => (a - b).abs(),
        "vmin" => a.min(b),
        "vmax" => a.max(b),
        _ if a + b >= 0 => (a + b + 1).div_euclid(2),
        _ => (a + b).div_euclid(2),
    }
}

const SIGNS: [(&str, bool); 2] = [("u32", false), ("s32", true)];

#[test]
fn single_numbers() {
    for name in ["vadd", "vsub", "vabsdiff", "vmin", "vmax"] {
        for (d, signed_d) in SIGNS {
            for (a, signed_a) in SIGNS {
                for (b, signed_b) in SIGNS {
                    let types = format!("{d}.{a}.{b}");
                    check(&format!("{name}.{types} $d, $a, $b;"), W32, &[W32; 2], |x| {
                        basic(name, part(x[0], "", signed_a), part(x[1], "", signed_b)) as u64
                    });
                    check(&format!("{name}.{types}.sat $d, $a.h1, $b;"), W32, &[W32; 2], |x| {
                        let value = basic(name, part(x[0], ".h1", signed_a), part(x[1], "", signed_b));
                        saturated(value, 32, signed_d) as u64
                    });
                    check(&format!("{name}.{types}.sat.add $d, $a.b2, $b.b0, $c;"), W32, &[W32; 3], |x| {
                        let value = basic(name, part(x[0], ".b2", signed_a), part(x[1], ".b0", signed_b));
                        (saturated(value, 32, signed_d) + part(x[2], "", signed_d)) as u64
                    });
                }
            }
        }
    }
    check("vmin.s32.s32.s32.max $d, $a, $b.h0, $c;", W32, &[W32; 3], |x| {
        part(x[0], "", true).min(part(x[1], ".h0", true)).max(part(x[2], "", true)) as u64
    });
    check("vsub.s32.u32.u32.sat.min $d, $a, $b, $c;", W32, &[W32; 3], |x| {
        saturated(part(x[0], "", false) - part(x[1], "", false), 32, true).min(part(x[2], "", true)) as u64
    });
}

#[test]
fn results_are_merged() {
    for (selector, low, width) in
        [(".b0", 0, 8), (".b1", 8, 8), (".b2", 16, 8), (".b3", 24, 8), (".h0", 0, 16), (".h1", 16, 16)]
    {
        for (d, signed) in SIGNS {
            check(&format!("vadd.{d}.s32.s32.sat $d{selector}, $a, $b.h1, $c;"), W32, &[W32; 3], |x| {
                let sum = part(x[0], "", true) + part(x[1], ".h1", true);
                let mask = ((1u64 << width) - 1) << low;
                (saturated(sum, width, signed) as u64) << low & mask | x[2] & !mask
            });
        }
        check(&format!("vsub.u32.u32.u32 $d{selector}, $a.b3, $b.b1, $c;"), W32, &[W32; 3], |x| {
            let mask = ((1u64 << width) - 1) << low;
            ((part(x[0], ".b3", false) - part(x[1], ".b1", false)) as u64) << low & mask | x[2] & !mask
        });
    }
}

#[test]
fn shifts_and_comparisons() {
    for (a, signed_a) in SIGNS {
        let v = |raw, selector| part(raw, selector, signed_a);
        check(&format!("vshl.u32.{a}.u32.clamp $d, $a, $b;"), W32, &[W32; 2], |x| {
            (v(x[0], "") << x[1].min(32)) as u64
        });
        check(&format!("vshl.s32.{a}.u32.sat.clamp $d, $a.h0, $b.b0;"), W32, &[W32; 2], |x| {
            saturated(v(x[0], ".h0") << (x[1] & 255).min(32), 32, true) as u64
        });
        check(&format!("vshr.s32.{a}.u32.wrap $d, $a, $b;"), W32, &[W32; 2], |x| {
            (v(x[0], "") >> (x[1] & 31)) as u64
        });
        check(&format!("vshr.u32.{a}.u32.clamp.add $d, $a.b1, $b, $c;"), W32, &[W32; 3], |x| {
            ((v(x[0], ".b1") >> x[1].min(32)) as u64).wrapping_add(x[2])
        });
        for (b, signed_b) in SIGNS {
            let w = |raw, selector| part(raw, selector, signed_b);
            check(&format!("vset.{a}.{b}.lt $d, $a, $b;"), W32, &[W32; 2], |x| {
                (v(x[0], "") < w(x[1], "")).into()
            });
            check(&format!("vset.{a}.{b}.ge.add $d, $a.b0, $b.b3, $c;"), W32, &[W32; 3], |x| {
                u64::from(v(x[0], ".b0") >= w(x[1], ".b3")).wrapping_add(x[2])
            });
            check(&format!("vset.{a}.{b}.ne $d.h1, $a.h0, $b.h1, $c;"), W32, &[W32; 3], |x| {
                u64::from(v(x[0], ".h0") != w(x[1], ".h1")) << 16 | x[2] & 0xffff
            });
        }
    }
}

#[test]
fn products() {
    for (a, signed_a) in SIGNS {
        for (b, signed_b) in SIGNS {
            let product = |x: &[u64], pa, pb| part(x[0], pa, signed_a) * part(x[1], pb, signed_b);
            let signed = signed_a || signed_b;
            check(&format!("vmad.u32.{a}.{b} $d, $a, $b, $c;"), W32, &[W32; 3], |x| {
                (product(x, "", "") + part(x[2], "", signed)) as u64
            });
            check(&format!("vmad.s32.{a}.{b}.sat.shr7 $d, $a.h1, $b.b2, $c;"), W32, &[W32; 3], |x| {
                saturated((product(x, ".h1", ".b2") + part(x[2], "", signed)) >> 7, 32, signed) as u64
            });
            check(&format!("vmad.u32.{a}.{b}.po.shr15 $d, $a, $b, $c;"), W32, &[W32; 3], |x| {
                ((product(x, "", "") + part(x[2], "", signed) + 1) >> 15) as u64
            });
            check(&format!("vmad.s32.{a}.{b}.sat $d, -$a, $b, $c;"), W32, &[W32; 3], |x| {
                saturated(part(x[2], "", true) - product(x, "", ""), 32, true) as u64
            });
            check(&format!("vmad.s32.{a}.{b} $d, $a, $b, -$c;"), W32, &[W32; 3], |x| {
                (product(x, "", "") - part(x[2], "", true)) as u64
            });
        }
    }
}

/// `vadd2` and its like, with selectors: which places of `a` and `b`, counted through both, and a
/// mask.
fn several(
    count: u32,
    name: &str,
    types: [(&str, bool); 3],
    sat: bool,
    selectors: Option<(&str, &str, &str)>,
    add: bool,
) {
    let [(d, signed_d), (a, signed_a), (b, signed_b)] = types;
    let width = 32 / count;
    let (mask, left, right) = selectors.unwrap_or(("", "", ""));
    let digits = |text: &str, default: Vec<usize>| match text {
        "" => default,
        text => text[2..].bytes().rev().map(|digit| usize::from(digit - b'0')).collect(),
    };
    let n = count as usize;
    let places = digits(mask, (0..n).collect());
    let (left_places, right_places) = (digits(left, (0..n).collect()), digits(right, (n..2 * n).collect()));
    let flags = format!("{}{}", if sat { ".sat" } else { "" }, if add { ".add" } else { "" });
    check(
        &format!("{name}{count}.{d}.{a}.{b}{flags} $d{mask}, $a{left}, $b{right}, $c;"),
        W32,
        &[W32; 3],
        |x| {
            let both = |signed| [numbers(x[0], count, signed), numbers(x[1], count, signed)].concat();
            let values: Vec<i128> = (0..n)
                .map(|i| {
                    let value = basic(name, both(signed_a)[left_places[i]], both(signed_b)[right_places[i]]);
                    if sat { saturated(value, width, signed_d) } else { value }
                })
                .collect();
            if add {
                return places.iter().fold(x[2] as i128, |sum, &place| sum + values[place]) as u64;
            }
            let old = numbers(x[2], count, false);
            (0..n).fold(0, |result, i| {
                let value = if places.contains(&i) { values[i] } else { old[i] };
                result | (value as u64 & ((1 << width) - 1)) << (width * i as u32)
            })
        },
    );
}

#[test]
fn several_numbers_at_once() {
    for name in ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vavrg"] {
        for d in SIGNS {
            for a in SIGNS {
                for b in SIGNS {
                    for count in [2, 4] {
                        several(count, name, [d, a, b], false, None, false);
                        several(count, name, [d, a, b], false, None, true);
                        several(count, name, [d, a, b], true, None, false);
                    }
                    several(2, name, [d, a, b], true, Some((".h1", ".h31", ".h02")), false);
                    several(4, name, [d, a, b], false, Some((".b310", ".b7012", ".b3654")), false);
                    several(4, name, [d, a, b], false, Some((".b2", ".b4444", ".b0123")), true);
                }
            }
        }
    }
    check("vset2.u32.s32.lt $d, $a, $b, $c;", W32, &[W32; 3], |x| {
        let (a, b) = (numbers(x[0], 2, false), numbers(x[1], 2, true));
        u64::from(a[0] < b[0]) | u64::from(a[1] < b[1]) << 16
    });
    check("vset4.s32.s32.eq.add $d.b210, $a, $b, $c;", W32, &[W32; 3], |x| {
        let (a, b) = (numbers(x[0], 4, true), numbers(x[1], 4, true));
        (0..3).fold(x[2], |sum, i| sum.wrapping_add(u64::from(a[i] == b[i])))
    });
}
