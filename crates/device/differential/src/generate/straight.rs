//! Random straight-line programs of 10 to 60 instructions that depend on each other: what a
//! compiler may get wrong between instructions (which register, in which order, which lanes) rather
//! than in one.
//!
//! Single precision runs wild, since its NaN is one; double precision stays finite. Multiplications
//! and additions name their rounding, so that no compiler fuses them.

use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;

const PROGRAMS: usize = 128;

/// Registers of each kind that instructions read and write.
const POOL: usize = 6;

/// Instructions: `$d` is written; `$r`, `$l`, `$f`, `$w`, `$h`, `$p` read a word, a long, a single,
/// a double, a half word and a predicate; the first letter says what is written, `$i` is a small
/// number.
const INSTRUCTIONS: [(char, &str); 74] = [
    ('r', "add.u32 $d, $r, $r"),
    ('r', "sub.s32 $d, $r, $r"),
    ('r', "add.sat.s32 $d, $r, $r"),
    ('r', "mul.lo.u32 $d, $r, $r"),
    ('r', "mul.hi.s32 $d, $r, $r"),
    ('r', "mad.lo.s32 $d, $r, $r, $r"),
    ('r', "mul24.lo.u32 $d, $r, $r"),
    ('r', "sad.u32 $d, $r, $r, $r"),
    ('r', "div.u32 $d, $r, $r"),
    ('r', "rem.u32 $d, $r, 1$i"),
    ('r', "min.s32 $d, $r, $r"),
    ('r', "max.u32 $d, $r, $r"),
    ('r', "abs.s32 $d, $r"),
    ('r', "and.b32 $d, $r, $r"),
    ('r', "lop3.b32 $d, $r, $r, $r, 0x96"),
    ('r', "not.b32 $d, $r"),
    ('r', "shl.b32 $d, $r, $i"),
    ('r', "shr.s32 $d, $r, $r"),
    ('r', "shf.r.clamp.b32 $d, $r, $r, $r"),
    ('r', "bfe.s32 $d, $r, $i, 9"),
    ('r', "bfi.b32 $d, $r, $r, $i, 11"),
    ('r', "brev.b32 $d, $r"),
    ('r', "popc.b64 $d, $l"),
    ('r', "clz.b32 $d, $r"),
    ('r', "bfind.s32 $d, $r"),
    ('r', "prmt.b32 $d, $r, $r, $r"),
    ('r', "dp4a.s32.u32 $d, $r, $r, $r"),
    ('r', "selp.b32 $d, $r, $r, $p"),
    ('r', "slct.s32.s32 $d, $r, $r, $r"),
    ('r', "set.lt.u32.f32 $d, $f, $f"),
    ('r', "cvt.u32.u16 $d, $h"),
    ('r', "cvt.u32.u64 $d, $l"),
    ('r', "cvt.rzi.s32.f32 $d, $f"),
    ('r', "cvt.rni.u32.f64 $d, $w"),
    ('r', "mov.b32 $d, $f"),
    ('r', "mul.wide.u16 $d, $h, $h"),
    ('l', "add.u64 $d, $l, $l"),
    ('l', "mul.wide.s32 $d, $r, $r"),
    ('l', "mad.wide.u32 $d, $r, $r, $l"),
    ('l', "mul.hi.u64 $d, $l, $l"),
    ('l', "shr.u64 $d, $l, $i"),
    ('l', "xor.b64 $d, $l, $l"),
    ('l', "bfe.u64 $d, $l, $i, 23"),
    ('l', "min.s64 $d, $l, $l"),
    ('l', "cvt.s64.s32 $d, $r"),
    ('l', "mov.b64 $d, {$r, $r}"),
    ('l', "selp.b64 $d, $l, $l, $p"),
    ('f', "add.rn.f32 $d, $f, $f"),
    ('f', "sub.rz.f32 $d, $f, $f"),
    ('f', "mul.rn.ftz.f32 $d, $f, $f"),
    ('f', "fma.rn.f32 $d, $f, $f, $f"),
    ('f', "fma.rm.f32 $d, $f, $f, $f"),
    ('f', "div.rn.f32 $d, $f, $f"),
    ('f', "sqrt.rn.f32 $d, $f"),
    ('f', "min.f32 $d, $f, $f"),
    ('f', "max.NaN.f32 $d, $f, $f"),
    ('f', "cvt.rn.f32.s32 $d, $r"),
    ('f', "cvt.rn.f32.f64 $d, $w"),
    ('f', "cvt.f32.f16 $d, $h"),
    ('f', "rcp.rn.f32 $d, $f"),
    ('w', "add.rn.f64 $d, $w, $w"),
    ('w', "sub.rp.f64 $d, $w, $w"),
    ('w', "fma.rn.f64 $d, $w, 0d3FE0000000000000, $w"),
    ('w', "max.f64 $d, $w, $w"),
    ('w', "cvt.rn.f64.s64 $d, $l"),
    ('h', "add.u16 $d, $h, $h"),
    ('h', "mul.lo.s16 $d, $h, $h"),
    ('h', "cvt.u16.u32 $d, $r"),
    ('h', "cvt.rn.f16.f32 $d, $f"),
    ('h', "fma.rn.f16 $d, $h, $h, $h"),
    ('p', "setp.gt.s32 $d, $r, $r"),
    ('p', "setp.ltu.and.f32 $d, $f, $f, $p"),
    ('p', "setp.ne.xor.u64 $d, $l, $l, !$p"),
    ('p', "xor.pred $d, $p, $p"),
];

const KINDS: [(char, Values); 6] = [
    ('r', Values::B32),
    ('l', Values::B64),
    ('f', Values::F32),
    ('w', Values::UnitF64),
    ('h', Values::B16),
    ('p', Values::Pred),
];

pub(super) fn generate(cases: &mut Vec<Case>) {
    cases.extend((0..PROGRAMS).map(program));
}

fn program(number: usize) -> Case {
    let name = format!("program: straight line/{number}");
    let mut random = Random::named(&name);
    let mut kernel = Kernel::new(1, 32);
    // Two of each pool come from the input; the others get their first value from these.
    let mut pools: Vec<Vec<String>> = Vec::new();
    for (_, values) in KINDS {
        let mut pool: Vec<String> = (0..2).map(|_| kernel.load(values)).collect();
        for index in 0..POOL - 2 {
            let (width, copy) = match values {
                Values::Pred => (1, "mov.pred".to_owned()),
                _ => (8 * values.bytes(), format!("mov.b{}", 8 * values.bytes())),
            };
            let register = kernel.register(width);
            kernel.line(format!("{copy} {register}, {};", pool[index % 2]));
            pool.push(register);
        }
        pools.push(pool);
    }
    let pool = |kind: char| KINDS.iter().position(|(known, _)| *known == kind).unwrap_or(0);
    for _ in 0..10 + random.below(51) {
        let (kind, pattern) = *random.pick(&INSTRUCTIONS);
        let mut text = String::new();
        if random.once_in(6) {
            let guard = random.pick(&pools[pool('p')]).clone();
            text += &format!("@{}{guard} ", if random.once_in(2) { "!" } else { "" });
        }
        let mut parts = pattern.split('$');
        text += parts.next().unwrap_or("");
        for part in parts {
            let (what, rest) = part.split_at(1);
            match what.chars().next().unwrap_or('d') {
                'd' => text += random.pick(&pools[pool(kind)]).as_str(),
                'i' => text += &random.below(32).to_string(),
                source => text += random.pick(&pools[pool(source)]).as_str(),
            }
            text += rest;
        }
        kernel.line(text + ";");
    }
    for ((kind, values), pool) in KINDS.iter().zip(&pools) {
        let values = if *values == Values::UnitF64 { Values::F64 } else { *values };
        for (index, register) in pool.iter().enumerate() {
            kernel.store(&format!("{kind}{index}"), values, Rule::Exact, register);
        }
    }
    kernel.finish(name)
}
