//! Single precision: pairs, three operands, operands in half precision.

use super::bfloat::widened;
use crate::code::Code;
use crate::site::Site;

/// `add.f32x2` and the like: each half for itself. A rounding is always named, which keeps
/// assemblers from contracting the scalar instructions.
pub(super) fn pairs(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if site.last() != "f32x2" {
        return None;
    }
    let mnemonic = format!("{}{}{}.f32", site.opcode(), site.rounding(), site.dotted("ftz"));
    let sources: Option<Vec<String>> = (1..site.operands().len()).map(|index| site.operand(index)).collect();
    let sources: Vec<[String; 2]> = sources?.iter().map(|source| code.halves("b64", "f32", source)).collect();
    let results = [0, 1].map(|half| {
        let result = code.register("f32");
        let operands: Vec<&str> = sources.iter().map(|source| source[half].as_str()).collect();
        code.op(format!("{mnemonic} {result}, {}", operands.join(", ")));
        result
    });
    code.op(format!("mov.b64 {}, {{{}, {}}}", site.operand(0)?, results[0], results[1]));
    Some(())
}

/// `min.f32 d, a, b, c`.
pub(super) fn three_inputs(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if !matches!(site.opcode(), "min" | "max") || site.last() != "f32" || site.operands().len() != 4 {
        return None;
    }
    let (ftz, nan) = (site.dotted("ftz"), site.dotted("NaN"));
    let mut sources = [site.operand(1)?, site.operand(2)?, site.operand(3)?];
    if site.has("abs") {
        sources = sources.map(|source| {
            let magnitude = code.register("f32");
            code.op(format!("abs{ftz}.f32 {magnitude}, {source}"));
            magnitude
        });
    }
    let [a, b, c] = sources;
    let first = code.register("f32");
    let mnemonic = format!("{}{ftz}{nan}.f32", site.opcode());
    code.op(format!("{mnemonic} {first}, {a}, {b}"));
    code.op(format!("{mnemonic} {}, {first}, {c}", site.operand(0)?));
    Some(())
}

/// `add.f32.bf16 d, a, c`, where `c` has 32 bits; of `fma`, `a` and `b` have 16.
pub(super) fn mixed(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let ty = site.last();
    if !site.has("f32") || !matches!(ty, "f16" | "bf16") || !matches!(site.opcode(), "add" | "sub" | "fma") {
        return None;
    }
    let mnemonic = format!("{}{}{}.f32", site.opcode(), site.rounding(), site.dotted("sat"));
    let narrow = site.operands().len() - 2;
    let mut operands = vec![site.operand(0)?];
    for index in 1..=narrow {
        operands.push(widened(code, ty, &site.operand(index)?));
    }
    operands.push(site.operand(narrow + 1)?);
    code.op(format!("{mnemonic} {}", operands.join(", ")));
    Some(())
}
