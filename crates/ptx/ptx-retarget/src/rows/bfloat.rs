//! bfloat16, whose arithmetic sm_80 does by `fma` alone: the upper half of an `.f32`.

use crate::code::Code;
use crate::site::Site;

/// The `.f32` with the value of a register of 16 bits, exactly.
pub(super) fn widened(code: &mut Code, ty: &str, source: &str) -> String {
    let wide = code.register("f32");
    if ty == "f16" {
        code.op(format!("cvt.f32.f16 {wide}, {source}"));
    } else {
        let zero = code.copy("b16", "0");
        code.op(format!("mov.b32 {wide}, {{{zero}, {source}}}"));
    }
    wide
}

fn is_bfloat(ty: &str) -> bool {
    matches!(ty, "bf16" | "bf16x2")
}

/// `a + b` is `a * 1 + b`, `a - b` is `b * -1 + a`, `a * b` is `a * b + -0`.
pub(super) fn arithmetic(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let ty = site.last();
    if !is_bfloat(ty) || site.operands().len() != 3 {
        return None;
    }
    let number = match site.opcode() {
        "add" => 0x3f80,
        "sub" => 0xbf80,
        "mul" => 0x8000_u32,
        _ => return None,
    };
    let constant = match ty {
        "bf16" => code.copy("b16", &number.to_string()),
        _ => code.copy("b32", &(number * 0x1_0001).to_string()),
    };
    let (d, a, b) = (site.operand(0)?, site.operand(1)?, site.operand(2)?);
    let operands = match site.opcode() {
        "add" => format!("{a}, {constant}, {b}"),
        "sub" => format!("{b}, {constant}, {a}"),
        _ => format!("{a}, {b}, {constant}"),
    };
    code.op(format!("fma.rn.{ty} {d}, {operands}"));
    Some(())
}

/// `setp.lt.bf16 p, a, b`, or with `p|q` for the halves of `.bf16x2`.
pub(super) fn comparison(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let ty = site.last();
    if site.opcode() != "setp" || !is_bfloat(ty) {
        return None;
    }
    let mnemonic = site.rewritten(|word| Some(if word == ty { "f32" } else { word }));
    let (a, b) = (site.operand(1)?, site.operand(2)?);
    let rest = site.operand(3).map_or(String::new(), |operand| format!(", {operand}"));
    if ty == "bf16" {
        let (a, b) = (widened(code, ty, &a), widened(code, ty, &b));
        code.op(format!("{mnemonic} {}, {a}, {b}{rest}", site.operand(0)?));
        return Some(());
    }
    let (a, b) = (code.halves("b32", "b16", &a), code.halves("b32", "b16", &b));
    // The source predicate may be one of the results.
    let results: Vec<String> = (0..2)
        .map(|half| {
            let (a, b) = (widened(code, "bf16", &a[half]), widened(code, "bf16", &b[half]));
            let result = code.register("pred");
            code.op(format!("{mnemonic} {result}, {a}, {b}{rest}"));
            result
        })
        .collect();
    let ptx::syntax::tree::Operand::Pair(p, q) = &site.operands()[0] else { return None };
    // The guard may be one of them too: both instructions choose by the guard of before.
    let guarded = [p, q].into_iter().zip(&results).filter(|(to, _)| !crate::code::is_sink(to));
    let guard = site.line.instruction.predicate.as_ref().map(|guard| guard.register.to_string());
    let (last, first): (Vec<_>, Vec<_>) = guarded.partition(|(to, _)| Some(to.to_string()) == guard);
    for (to, from) in first.into_iter().chain(last) {
        code.op(format!("mov.pred {to}, {from}"));
    }
    Some(())
}

/// Conversions through `.f32`: to a wider type or from a narrower one it is exact; otherwise both
/// steps round in the same direction.
pub(super) fn conversion(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if site.opcode() != "cvt" || site.operands().len() != 2 || site.words.len() < 3 {
        return None;
    }
    let (to, from) = (site.words[site.words.len() - 2], site.last());
    let (d, a) = (site.operand(0)?, site.operand(1)?);
    match (to, from) {
        ("bf16", "bf16") => {
            let wide = widened(code, from, &a);
            let whole = code.register("f32");
            code.op(format!("{} {whole}, {wide}", prefix(site, "f32.f32")));
            code.op(format!("cvt.rn.bf16.f32 {d}, {whole}"));
        }
        (_, "bf16") if to != "f32" => {
            let wide = widened(code, from, &a);
            code.op(format!("{} {d}, {wide}", prefix(site, &format!("{to}.f32"))));
        }
        ("bf16", _) if from != "f32" => {
            let wide = code.register("f32");
            let exact = matches!(from, "u8" | "s8" | "u16" | "s16");
            match from {
                "f16" => code.op(format!("cvt.f32.f16 {wide}, {a}")),
                _ if exact => code.op(format!("cvt.rn.f32.{from} {wide}, {a}")),
                _ if site.rounding() != ".rn" => {
                    code.op(format!("cvt{}.f32.{from} {wide}, {a}", site.rounding()))
                }
                _ => return None,
            }
            code.op(format!("cvt{}.bf16.f32 {d}, {wide}", site.rounding()));
        }
        _ => return None,
    }
    Some(())
}

/// The mnemonic with other types.
fn prefix(site: &Site<'_, '_>, types: &str) -> String {
    format!("{}.{types}", site.words[..site.words.len() - 2].join("."))
}

/// `atom.add.noftz.bf16x2`: the new value is stored if the old one is still there.
pub(super) fn atomics(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let ty = site.last();
    let returns = site.opcode() == "atom";
    if !(returns || site.opcode() == "red")
        || !is_bfloat(ty)
        || !site.has("add")
        || site.elements(usize::from(returns) + 1).is_some()
    {
        return None;
    }
    let bits = if ty == "bf16" { "b16" } else { "b32" };
    let place = usize::from(returns);
    let (address, b) = (site.operand(place)?, site.operand(place + 1)?);
    let space = site.words.iter().find(|word| matches!(**word, "global" | "shared" | "shared::cta"));
    let space = space.map_or(String::new(), |space| format!(".{space}"));
    let exchange = site.words[1..].iter().filter(|word| !matches!(**word, "add" | "noftz") && **word != ty);
    let exchange: Vec<&str> = std::iter::once("atom").chain(exchange.copied()).chain(["cas", bits]).collect();
    let (old, new, seen) = (code.register(bits), code.register(bits), code.register(bits));
    let again = code.register("pred");
    let one = match ty {
        "bf16" => code.copy("b16", "0x3f80"),
        _ => code.copy("b32", "0x3f803f80"),
    };
    code.region(|code, _, _| {
        code.op(format!("ld.volatile{space}.{bits} {old}, {address}"));
        code.region(|code, start, _| {
            code.op(format!("fma.rn.{ty} {new}, {old}, {one}, {b}"));
            code.op(format!("{} {seen}, {address}, {old}, {new}", exchange.join(".")));
            code.op(format!("setp.ne.{} {again}, {seen}, {old}", bits));
            code.op(format!("mov.{bits} {old}, {seen}"));
            code.when(&again, format!("bra {start}"));
        });
        if returns && !crate::code::is_sink(&site.operands()[0]) {
            code.op(format!("mov.{bits} {}, {old}", site.operands()[0]));
        }
    });
    Some(())
}

/// `tanh` and `ex2` through `.f32`.
pub(super) fn approximate(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let ty = site.last();
    if !matches!(site.opcode(), "tanh" | "ex2") || !is_bfloat(ty) {
        return None;
    }
    let (d, a) = (site.operand(0)?, site.operand(1)?);
    let mnemonic = site.rewritten(|word| Some(if word == ty { "f32" } else { word }));
    let one = |code: &mut Code, half: &str| {
        let (wide, result) = (widened(code, "bf16", half), code.register("f32"));
        code.op(format!("{mnemonic} {result}, {wide}"));
        result
    };
    if ty == "bf16" {
        let result = one(code, &a);
        code.op(format!("cvt.rn.bf16.f32 {d}, {result}"));
    } else {
        let [low, high] = code.halves("b32", "b16", &a);
        let (low, high) = (one(code, &low), one(code, &high));
        code.op(format!("cvt.rn.bf16x2.f32 {d}, {high}, {low}"));
    }
    Some(())
}
